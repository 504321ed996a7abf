"""The paper's network on features, and what its methods add to the loss.

Imported only when such a network is trained: it needs torch and, for some methods, inFairness.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.redaction import logger
from biasbios_mlflow.training.auditing import Audit, Auditor
from biasbios_mlflow.training.methods import Settings
from biasbios_mlflow.training.weights import balanced_weights

__all__ = ["Examples", "fit_head"]

_logger = logger(__name__)

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
    genders : int array of shape (n,)
        0 male, 1 female.
    n_labels : int
    """

    features: FloatArray
    counterfactuals: FloatArray
    occupations: npt.NDArray[np.int64]
    genders: npt.NDArray[np.int8]
    n_labels: int


def fit_head(
    examples: Examples,
    *,
    method: str,
    settings: Settings,
    seed: int,
    report: Callable[[int, Mapping[str, float]], object] | None = None,
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
        Told each step's number and figures: ``loss``, and where worst bios are searched for
        ``auditor_distance``, their mean fair distance, and ``auditor_multiplier`` (see `Audit`).

    Returns
    -------
    dict of str to float32 array
        ``hidden.weight`` (width, d), ``hidden.bias``, ``output.weight`` (labels, width) and
        ``output.bias``. Scaling and projection of the features are part of the hidden layer.

    Raises
    ------
    MlflowException
        When no bio has anything to swap, and the method learns from that; when the sensitive
        subspace would be all there is.
    """
    # Features come in any scale; the auditor's random start is within 0.1 of each.
    mean = examples.features.mean(axis=0)
    spread = examples.features.std(axis=0)
    spread = np.where(spread > 1e-6 * spread.max(), spread, 1.0).astype(np.float32)
    features = torch.from_numpy((examples.features - mean) / spread)
    counterfactuals = torch.from_numpy((examples.counterfactuals - mean) / spread)
    labels = torch.from_numpy(examples.occupations)
    with _seeded(seed):
        seen, n_sensitive = _seen(
            method, features, counterfactuals, torch.from_numpy(examples.genders), settings
        )
        if seen is not None:
            features, counterfactuals = features @ seen, counterfactuals @ seen
        weights = torch.ones(len(labels))
        if method == "balanced":
            weights = torch.from_numpy(balanced_weights(examples.genders, examples.occupations))
        if method == "cda":
            features = torch.cat([features, counterfactuals])
            labels, weights = torch.cat([labels, labels]), torch.cat([weights, weights])
        network = nn.Sequential(
            nn.Linear(features.shape[1], settings.width),
            nn.ReLU(),
            nn.Linear(settings.width, examples.n_labels),
        )
        audits: deque[Audit] = deque(maxlen=1)
        objective = _objective(
            method,
            network,
            features,
            counterfactuals,
            labels,
            weights,
            n_sensitive,
            settings,
            audits,
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
        for step, rows in enumerate(_balanced_batches(labels, settings)):
            optimizer.zero_grad()
            loss = objective(rows)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if report is not None:
                figures = {"loss": loss.item()}
                if audits:
                    figures["auditor_distance"] = audits[-1].distance
                    figures["auditor_multiplier"] = audits[-1].multiplier
                report(step, figures)
    hidden, output = cast(nn.Linear, network[0]), cast(nn.Linear, network[2])
    weight = hidden.weight.detach().double()
    if seen is not None:
        weight = weight @ seen.double().T
    weight = weight / torch.from_numpy(spread).double()
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
    weights: torch.Tensor,
    n_sensitive: int,
    settings: Settings,
    audits: deque[Audit],
) -> Objective:
    """Return the loss of a method on the rows of a batch; ``audits`` gets what an auditor finds."""

    def plain(rows: torch.Tensor) -> torch.Tensor:
        losses = functional.cross_entropy(network(features[rows]), labels[rows], reduction="none")
        return (losses * weights[rows]).mean()

    def paired(rows: torch.Tensor) -> torch.Tensor:
        logits = network(features[rows])
        distance = (logits - network(counterfactuals[rows])).abs().mean()
        return functional.cross_entropy(logits, labels[rows]) + settings.pairing * distance

    if method == "clp":
        return paired
    if method not in ("sensei", "sensr"):
        return plain
    eps = min(settings.eps, _reach(features[:, n_sensitive:], labels))
    if eps < settings.eps:
        _logger.warning(
            "biasbios: eps is cut from %g to %.3g, half the way to the next occupation: a "
            "classifier that treats alike what lies further apart tells no occupations.",
            *(settings.eps, eps),
        )
    auditor = Auditor(
        n_sensitive=n_sensitive,
        eps=eps,
        steps=settings.auditor_steps,
        rate=settings.auditor_rate,
    )

    def worst(rows: torch.Tensor) -> torch.Tensor:
        """SenSR: the loss of the worst bio nearby."""

        def loss(logits: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(logits, labels[rows], reduction="none")

        found = auditor.audit(network, features[rows], loss)
        audits.append(found)
        return loss(network(found.worst)).mean()

    def invariant(rows: torch.Tensor) -> torch.Tensor:
        """SenSeI: the distance between the predictions for a bio and for the worst one nearby."""
        logits = network(features[rows])
        own = logits.softmax(dim=1)
        fixed = own.detach()
        found = auditor.audit(network, features[rows], lambda worst: _apart(worst, fixed))
        audits.append(found)
        unfairness = _apart(network(found.worst), own).mean()
        return functional.cross_entropy(logits, labels[rows]) + settings.rho * unfairness

    return worst if method == "sensr" else invariant


def _reach(features: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the squared half of the distance from an occupation to the next, by their means.

    The median over the occupations; infinite where there is one alone.
    """
    present = torch.unique(labels)
    means = torch.stack([features[labels == label].mean(dim=0) for label in present])
    if len(means) < 2:
        return math.inf
    apart = torch.cdist(means, means).fill_diagonal_(math.inf)
    return (apart.min(dim=1).values.median().item() / 2) ** 2


def _apart(logits: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
    """Return the squared distance of predictions, of probabilities: bounded, unlike of logits."""
    return (logits.softmax(dim=1) - probabilities).square().sum(dim=1)


def _seen(
    method: str,
    features: torch.Tensor,
    counterfactuals: torch.Tensor,
    genders: torch.Tensor,
    settings: Settings,
) -> tuple[torch.Tensor | None, int]:
    """Return the matrix through which a method sees standardized features; None for as they are.

    Beside it, how many of the features that it gives, the first, span the sensitive subspace.
    """
    if method == "leace":
        return _least_squares_erasure(features, genders), 0
    if method == "inlp":
        return _null_space(features, genders, settings.projections), 0
    if method not in ("project", "sensr", "sensei"):
        return None, 0
    turn, n_sensitive = _turn(features - counterfactuals, settings.directions)
    if method == "project":
        return turn[:, n_sensitive:], 0
    return turn, n_sensitive


def _least_squares_erasure(features: torch.Tensor, genders: torch.Tensor) -> torch.Tensor:
    """Return what takes out all that a linear classifier could tell genders by."""
    with warnings.catch_warnings():  # at import it uses torch.jit.script, which is to go
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch.jit")
        from concept_erasure import LeaceEraser

    eraser = LeaceEraser.fit(features.double(), genders.double())
    return eraser.P.T.float()


def _null_space(features: torch.Tensor, genders: torch.Tensor, most: int) -> torch.Tensor:
    """Project out the directions of linear classifiers of gender until none beats a guess."""
    from sklearn.linear_model import RidgeClassifier

    found: list[npt.NDArray[np.float64]] = []
    whole, labels = features.double().numpy(), genders.numpy()
    guess = max(np.mean(labels), 1 - np.mean(labels))
    projection = np.eye(whole.shape[1])
    while guess < 1 and len(found) < min(most, whole.shape[1] - 1):
        classifier = RidgeClassifier().fit(whole @ projection, labels)
        if found and classifier.score(whole @ projection, labels) <= guess:
            break
        direction = projection @ classifier.coef_.ravel()
        found.append(direction / np.linalg.norm(direction))
        basis, _ = np.linalg.qr(np.stack(found, axis=1))
        projection = np.eye(len(basis)) - basis @ basis.T
    return torch.from_numpy(projection).float()


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
    width = differences.shape[1]
    if directions >= width:
        raise invalid(
            "directions",
            found=f"{directions} for features of length {width}",
            expected=f"less than {width}: the rest is what occupations are told from",
            fix=f"use directions={min(25, max(1, width // 10))}",
        )
    if directions > len(changed):
        _logger.warning(
            "biasbios: the sensitive subspace has %d directions instead of %d, one for each bio "
            "that the swap changes.",
            *(len(changed), directions),
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
    return inFairness
