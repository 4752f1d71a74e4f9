"""AdamW on theta: means and plain parameters in one group, everything that is a scale in the other."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from metaprior.metagrad.problem import Problem
from metaprior.training.settings import MetaTraining
from metaprior.training.shards import Whole
from metaprior.weights import PLAIN, Parameters, WeightDistribution

MEANS, SCALES = "means", "scales"
STEP = "step"
"""AdamW's own name for how often it has moved a tensor; one number, whatever is sharded."""


def movable_copy(theta: WeightDistribution) -> WeightDistribution:
    """Return a copy that an optimiser can move in place."""
    # Fused AdamW takes a parameter and its gradient to lie in memory alike, and gradients lie row by row.
    return theta.map(lambda value: value.detach().clone(memory_format=torch.contiguous_format).requires_grad_())


def groups_of(problem: Problem, theta: WeightDistribution) -> dict[str, list[str]]:
    """Return the names (as in ``theta.named()``) of what is learned, by group. A point prior's scales are not."""
    noise = {PLAIN + name for name in problem.likelihood.parameter_names}
    scales = [name for name in theta.named() if name in noise or name == "log_lr"]
    means = [name for name in theta.named() if name not in ("rho", *scales)]
    return {MEANS: means, SCALES: [*scales, *(["rho"] if bool(torch.isfinite(theta.rho).all()) else [])]}


class ThetaOptimizer:
    """Fresh AdamW. Scales are not decayed: a decayed rho or log step size would drift to a value nobody chose."""

    def __init__(self, problem: Problem, theta: WeightDistribution, settings: MetaTraining, shards: Whole) -> None:
        groups = groups_of(problem, theta)
        learned = {name for names in groups.values() for name in names}
        self._theta = {name: tensor for name, tensor in theta.named().items() if name in learned}
        self._shards = shards
        self._held = {name: shards.part(tensor) for name, tensor in self._theta.items()}
        decay = {MEANS: settings.weight_decay, SCALES: 0.0}
        named: list[dict[str, Any]] = [
            {"params": [self._held[n] for n in names], "name": group, "names": names, "weight_decay": decay[group]}
            for group, names in groups.items()
            if names
        ]
        self._adam = torch.optim.AdamW(named, lr=settings.lr, fused=theta.mu.device.type in ("cpu", "cuda"))

    def descend(self, grads: Parameters, learning_rates: Mapping[str, float], clip: float) -> dict[str, float]:
        """One step along the gradients, each group's norm clipped; returns the norms before clipping.

        A group without a learning rate is left alone, and so are its moments.
        """
        of_theta, norms = grads.named(), {}
        for group in self._adam.param_groups:
            group["lr"] = learning_rates.get(group["name"], 0.0)
            if group["name"] in learning_rates:
                norms[group["name"]] = _clip([of_theta[name] for name in group["names"]], clip)
                for name in group["names"]:
                    self._held[name].grad = self._shards.part(of_theta[name].contiguous())
        self._adam.step()
        for name, part in self._held.items():
            if part.grad is not None:
                self._shards.join(self._theta[name])
            part.grad = None
        return norms

    def moments(self) -> Iterator[tuple[str, Tensor]]:
        """The optimiser's own tensors, named after theta's, whole."""
        for name, held in self._held.items():
            for part, value in self._adam.state.get(held, {}).items():
                yield f"{name}/{part}", value if part == STEP else self._shards.whole(value, self._theta[name])

    def restore_moments(self, saved: Mapping[str, Tensor]) -> None:
        """Put back what ``moments`` gave."""
        for key, value in saved.items():
            name, part = key.rsplit("/", 1)
            here = value.to(self._theta[name].device)
            own = here if part == STEP else self._shards.part(here)
            self._adam.state[self._held[name]][part] = own.clone()


def _clip(grads: Sequence[Tensor], clip: float) -> float:
    """Shrink gradients in place to a norm of ``clip``, if theirs is larger; returns what it was."""
    norm = torch.nn.utils.get_total_norm(grads)
    factor = (clip / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad *= factor
    return float(norm)
