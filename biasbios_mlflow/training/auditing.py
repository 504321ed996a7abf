"""The worst bio nearby: what SenSR and SenSeI train against.

Imported only when such a network is trained: it needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["Audit", "Auditor"]

_START = 0.1
"""The search starts within so much of each sensitive feature: at the bio itself, the distance of
predictions has no slope."""


@dataclass(frozen=True, eq=False)
class Audit:
    """What an auditor found for a batch of n bios.

    Attributes
    ----------
    worst : tensor of shape (n, d)
        The worst bios nearby.
    distance : float
        Their mean fair distance (squared, off the sensitive subspace) from the bios.
    multiplier : float
        What a unit of ``eps`` more would add to the mean objective: the Lagrange multiplier of the
        constraint, to first order.
    """

    worst: torch.Tensor
    distance: float
    multiplier: float


class Auditor:
    """Finds, for each bio of a batch, the one nearby that a classifier treats most differently.

    The constraint is that of the papers: the mean of the fair distances is at most ``eps``, where
    the fair distance is the squared length of the move off the sensitive subspace. As published
    for SenSR (Yurochkin, Bower & Sun 2020, algorithm 2), the search goes through the subspace
    first, where moves are free, and then everywhere by small steps. In that second part the moves
    off the subspace are projected back into the ball that the constraint describes, so that it
    holds at each step and for any ``eps``; a penalty with a multiplier would hold it in the limit.

    Parameters
    ----------
    n_sensitive : int
        The first so many features span the sensitive subspace.
    eps : float
        The largest mean fair distance.
    steps : int
        Steps of each of the two parts.
    rate : float
        Rate of Adam within the subspace, in standard deviations of a feature.

    Examples
    --------
    Against a linear objective, the worst bios are known: all move along the slope, together as far
    as ``eps`` allows.

    >>> import torch
    >>> slope = torch.tensor([0.0, 3.0, 4.0])
    >>> auditor = Auditor(n_sensitive=1, eps=4.0, steps=5, rate=0.5)
    >>> found = auditor.audit(torch.nn.Identity(), torch.zeros(2, 3), lambda x: x @ slope)
    >>> [round(value, 4) for value in (found.worst[0, 1:] / 2).tolist()], round(found.distance, 4)
    ([0.6, 0.8], 4.0)
    """

    def __init__(self, *, n_sensitive: int, eps: float, steps: int, rate: float) -> None:
        self.n_sensitive = n_sensitive
        self.eps = eps
        self.steps = steps
        self.rate = rate

    def audit(
        self,
        network: nn.Module,
        bios: torch.Tensor,
        objective: Callable[[torch.Tensor], torch.Tensor],
    ) -> Audit:
        """Search.

        Parameters
        ----------
        network : nn.Module
            From features to logits; it is not changed.
        bios : tensor of shape (n, d)
        objective : callable
            From logits of shape (n, labels) to one value a bio: how much worse they are.

        Returns
        -------
        Audit
        """
        trained = [weight for weight in network.parameters() if weight.requires_grad]
        for weight in trained:
            weight.requires_grad_(False)
        try:
            return self._audit(network, bios, objective)
        finally:
            for weight in trained:
                weight.requires_grad_(True)

    def _audit(
        self,
        network: nn.Module,
        bios: torch.Tensor,
        objective: Callable[[torch.Tensor], torch.Tensor],
    ) -> Audit:
        n, width = bios.shape
        free = torch.zeros(n, width)
        free[:, : self.n_sensitive] = (2 * torch.rand(n, self.n_sensitive) - 1) * _START
        move = free.requires_grad_(True)
        optimizer = torch.optim.Adam([move], lr=self.rate, maximize=True)
        for _ in range(self.steps):
            (gradient,) = torch.autograd.grad(objective(network(bios + move)).sum(), move)
            gradient[:, self.n_sensitive :] = 0.0
            move.grad = gradient
            optimizer.step()
        radius, slope = math.sqrt(self.eps), 0.0
        for _ in range(self.steps):
            (gradient,) = torch.autograd.grad(objective(network(bios + move)).sum(), move)
            gradient[:, : self.n_sensitive] = 0.0
            slope = _root_mean_square(gradient)
            if slope == 0:
                break
            with torch.no_grad():
                moved = move + gradient * (2 * radius / (self.steps * slope))
                length = _root_mean_square(moved[:, self.n_sensitive :])
                moved[:, self.n_sensitive :] *= min(1.0, radius / length) if length > 0 else 1.0
            move = moved.requires_grad_(True)
        with torch.no_grad():
            # An attack that failed is no attack.
            failed = objective(network(bios + move)) < objective(network(bios))
            found = torch.where(failed[:, None], 0.0, move.detach())
        distance = found[:, self.n_sensitive :].square().sum(dim=1).mean().item()
        return Audit(bios + found, distance, slope / (2 * radius))


def _root_mean_square(rows: torch.Tensor) -> float:
    """Return the root of the mean squared length of some rows."""
    return math.sqrt(rows.square().sum(dim=1).mean().item())
