"""A meta-batch that several processes work on: each sums over its own tasks, and then all sums are added."""

from collections.abc import Callable

import torch
from torch import Tensor

from metaprior.metagrad.meta_batch import BatchSums
from metaprior.metagrad.problem import OuterTerms
from metaprior.team import current_team
from metaprior.weights import Parameters, WeightDistribution


def summed(theta: WeightDistribution, own_part: Callable[[], BatchSums]) -> BatchSums:
    """Sums over all ranks' tasks, the same on every rank to the last bit, with all failures in the tasks' order."""
    team = current_team()
    own, notes = team.attempt(own_part, lambda sums: (sums.names, sums.weight, sums.failures))
    if team.size == 1:
        return own
    names = tuple(name for part, _, _ in notes for name in part)
    failures = tuple(failure for _, _, part in notes for failure in part)
    if not names:
        return BatchSums(failures=failures)
    grads, terms = _dense(theta, own)
    team.sum_([*grads.tensors(), *terms])
    return BatchSums(names, sum(weight for _, weight, _ in notes), grads, terms, failures)


def _dense(theta: WeightDistribution, own: BatchSums) -> tuple[Parameters, OuterTerms]:
    """Return tensors that can be added in place: zeros where this rank has nothing, and no views."""
    if own.grads is None or own.terms is None:
        return theta.zeros(), OuterTerms(*(torch.zeros_like(theta.mu[0]) for _ in OuterTerms._fields))
    return own.grads.map(Tensor.contiguous), OuterTerms(*(term.clone() for term in own.terms))
