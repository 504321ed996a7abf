"""The paper's network on features, and what its methods add to the loss.

Imported only when such a network is trained: it needs torch and, for some methods, inFairness.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.training.methods import SUBSPACE_METHODS, Settings

__all__ = ["Examples", "fit_head"]

FloatArray = npt.NDArray[np.float32]
Objective = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Examples:
    """What a network learns from: n bios as vectors of length d.

    Attributes
    ----------
    features, counterfactuals : float32 arrays of shape (n, d)
        Of the bios and of their gender-swapped copies.
    occupations : int64 array of shape (n,)
        Codes below ``n_labels``.
    n_labels : int
    """

    features: FloatArray
    counterfactuals: FloatArray
    occupations: npt.NDArray[np.int64]
    n_labels: int


def fit_head(
    examples: Examples,
    *,
    method: str,
    settings: Settings,
    seed: int,
    report: Callable[[int, float], object] | None = None,
) -> dict[str, FloatArray]:
    """Train a network with one hidden layer, ``output(relu(hidden(features)))``, by Adam.

    Batches hold equally many bios of each occupation.

    Parameters
    ----------
    examples : Examples
    method : str
        One of `biasbios_mlflow.training.METHODS`.
    settings : Settings
    seed : int
        Of the weights, the batches and the auditor. The same seed gives the same weights on the
        same machine with the same number of threads.
    report : callable, optional
        Told each step's number and loss.

    Returns
    -------
    dict of str to float32 array
        ``hidden.weight`` (width, d), ``hidden.bias``, ``output.weight`` (labels, width) and
        ``output.bias``. Scaling and projection of the features are part of the hidden layer.

    Raises
    ------
    MlflowException
        When no bio has anything to swap, and the method learns from that.
    """
    # Features come in any scale; the auditor's random start is within 0.1 of each.
    mean = examples.features.mean(axis=0)
    spread = examples.features.std(axis=0)
    spread = np.where(spread > 1e-6 * spread.max(), spread, 1.0).astype(np.float32)
    features = torch.from_numpy((examples.features - mean) / spread)
    counterfactuals = torch.from_numpy((examples.counterfactuals - mean) / spread)
    labels = torch.from_numpy(examples.occupations)
    with _seeded(seed):
        turn, n_sensitive = torch.eye(features.shape[1]), 0
        if method in SUBSPACE_METHODS:
            turn, n_sensitive = _turn(features - counterfactuals, settings.directions)
            features, counterfactuals = features @ turn, counterfactuals @ turn
        if method == "project":
            features[:, :n_sensitive] = 0
        if method == "cda":
            features = torch.cat([features, counterfactuals])
            labels = torch.cat([labels, labels])
        network = nn.Sequential(
            nn.Linear(features.shape[1], settings.width),
            nn.ReLU(),
            nn.Linear(settings.width, examples.n_labels),
        )
        objective = _objective(
            method, network, features, counterfactuals, labels, n_sensitive, settings
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
        for step, rows in enumerate(_balanced_batches(labels, settings)):
            optimizer.zero_grad()
            loss = objective(rows)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if report is not None:
                report(step, loss.item())
    hidden, output = cast(nn.Linear, network[0]), cast(nn.Linear, network[2])
    weight = hidden.weight.detach().double()
    if method == "project":
        weight[:, :n_sensitive] = 0
    weight = weight @ turn.double().T / torch.from_numpy(spread).double()
    bias = hidden.bias.detach().double() - weight @ torch.from_numpy(mean).double()
    return {
        "hidden.weight": weight.float().numpy(),
        "hidden.bias": bias.float().numpy(),
        "output.weight": output.weight.detach().numpy(),
        "output.bias": output.bias.detach().numpy(),
    }


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators that inFairness draws from, and put them back afterwards."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _balanced_batches(labels: torch.Tensor, settings: Settings) -> Iterator[torch.Tensor]:
    """Yield the rows of each batch: equally many of each occupation, drawn with replacement."""
    order = torch.argsort(labels, stable=True)
    sizes = torch.bincount(labels)
    starts = torch.cumsum(sizes, 0) - sizes
    sizes, starts = sizes[sizes > 0][:, None], starts[sizes > 0][:, None]
    for _ in range(settings.steps):
        draws = torch.rand(len(sizes), settings.bios_per_occupation, dtype=torch.float64)
        yield order[(starts + (draws * sizes).long()).ravel()]


def _objective(
    method: str,
    network: nn.Module,
    features: torch.Tensor,
    counterfactuals: torch.Tensor,
    labels: torch.Tensor,
    n_sensitive: int,
    settings: Settings,
) -> Objective:
    """Return the loss of a method on the rows of a batch."""

    def plain(rows: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(network(features[rows]), labels[rows])

    def paired(rows: torch.Tensor) -> torch.Tensor:
        logits = network(features[rows])
        distance = (logits - network(counterfactuals[rows])).abs().mean()
        return functional.cross_entropy(logits, labels[rows]) + settings.pairing * distance

    if method == "clp":
        return paired
    if method not in ("sensei", "sensr"):
        return plain
    fair = _fair_algorithm(method, network, features.shape[1], n_sensitive, settings)
    fair.train()

    def audited(rows: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = fair(features[rows], labels[rows]).loss
        return loss

    return audited


def _fair_algorithm(
    method: str, network: nn.Module, width: int, n_sensitive: int, settings: Settings
) -> Any:
    library = _infairness()
    distance = library.distances.SensitiveSubspaceDistance()
    distance.fit(torch.eye(width)[:, :n_sensitive])
    auditor = {"auditor_nsteps": settings.auditor_steps, "auditor_lr": settings.auditor_rate}
    if method == "sensr":
        return library.fairalgo.SenSR(
            network,
            distance,
            functional.cross_entropy,
            eps=settings.eps,
            lr_lamb=settings.multiplier_rate,
            lr_param=1.0,
            **auditor,
        )
    squared = library.distances.SquaredEuclideanDistance()
    squared.fit(num_dims=network[-1].out_features)  # type: ignore[index]
    return library.fairalgo.SenSeI(
        network,
        distance,
        _OnProbabilities(squared),
        functional.cross_entropy,
        rho=settings.rho,
        eps=settings.eps,
        **auditor,
    )


class _OnProbabilities(nn.Module):
    """A distance of outputs taken between probabilities: bounded, unlike that of logits.

    Parameters
    ----------
    distance : inFairness.distances.Distance
    """

    def __init__(self, distance: nn.Module) -> None:
        super().__init__()
        self.distance = distance

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        distance: torch.Tensor = self.distance(a.softmax(dim=-1), b.softmax(dim=-1))
        return distance


def _turn(differences: torch.Tensor, directions: int) -> tuple[torch.Tensor, int]:
    """Find the sensitive subspace: the directions in which the swap moves features most.

    Parameters
    ----------
    differences : tensor of shape (n, d)
        Features of the bios minus those of their swapped copies.
    directions : int

    Returns
    -------
    turn : tensor of shape (d, d)
        An orthogonal matrix. Turned by it, features have the sensitive subspace in the first
        coordinates, and the auditor's Adam, which scales the step of each coordinate by itself,
        does not mix what the fair metric sees with what it does not see.
    n_sensitive : int
        How many coordinates that are.
    """
    changed = differences[(differences != 0).any(dim=1)]
    if len(changed) == 0:
        raise invalid(
            "data",
            found="no bio that the swap changes",
            expected="bios with gendered words, from which the sensitive directions are learned",
            fix="use another scope, or a method that needs no such directions (baseline, cda, clp)",
        )
    metric = _infairness().distances.SVDSensitiveSubspaceDistance()
    metric.fit(changed, n_components=min(directions, *changed.shape))
    # The metric's matrix is a projection: its eigenvalues are 0 (sensitive) and 1, in this order.
    values, turn = torch.linalg.eigh(metric.sigma.double())
    return turn.float(), int((values < 0.5).sum())


def _infairness() -> Any:
    with warnings.catch_warnings():  # at import it uses functorch.vmap, which torch has renamed
        warnings.filterwarnings("ignore", category=FutureWarning, module="inFairness")
        import inFairness.distances
        import inFairness.fairalgo
    return inFairness
