"""What moves theta: AdamW, its state sharded over processes, and the average of the iterates.

AdamW treats every number by itself, so a part of theta can be moved without the rest (ZeRO's first stage, Rajbhandari
et al. 2020). Sharded, a process holds the moments of its part alone; theta itself is whole on every process, because
every task needs all of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from metaprior.adaptation.task_model import MEANS, SCALES
from metaprior.team import Team
from metaprior.training.settings import MetaTraining
from metaprior.weights import Parameters, WeightDistribution

STEP = "step"
"""AdamW's own name for how often it has moved a tensor; one number, whatever is sharded."""
SMALLEST = 2**12
"""Numbers from which a tensor is divided; smaller ones every process moves by itself, all in the same way."""
ALIGNED = 64
"""Parts begin at multiples of so many numbers: an operation on a part then rounds as that on the whole does."""


def movable_copy(theta: WeightDistribution) -> WeightDistribution:
    """Return a copy that an optimiser can move in place."""
    # Fused AdamW takes a parameter and its gradient to lie in memory alike, and gradients lie row by row.
    return theta.map(lambda value: value.detach().clone(memory_format=torch.contiguous_format).requires_grad_())


class Shards:
    """What a process holds of every large tensor: all of it or, if there is a ``team``, a part.

    All processes of the team call every method together.
    """

    def __init__(self, team: Team | None = None) -> None:
        self._team = team

    def part(self, tensor: Tensor) -> Tensor:
        """Return what is held of a contiguous tensor, in the same memory (a part is flat)."""
        return tensor if self._team is None else self._parts(tensor, self._team.size)[self._team.rank]

    def join(self, tensor: Tensor) -> None:
        """Update a tensor after every process has changed its part of it."""
        if self._team is not None and tensor.numel() >= SMALLEST:
            self._team.exchange_(self._parts(tensor, self._team.size))

    def whole(self, part: Tensor, like: Tensor) -> Tensor:
        """Return a tensor from its parts."""
        if self._team is None:
            return part
        tensor = torch.empty_like(like, requires_grad=False)
        self.part(tensor).copy_(part)
        self.join(tensor)
        return tensor

    @staticmethod
    def _parts(tensor: Tensor, size: int) -> list[Tensor]:
        """Return every rank's part; a small tensor is everybody's. Later parts may be shorter, or empty."""
        flat = tensor.detach().view(-1)
        if tensor.numel() < SMALLEST:
            return [flat] * size
        length = -(-len(flat) // (size * ALIGNED)) * ALIGNED
        return [flat[rank * length : (rank + 1) * length] for rank in range(size)]


class ThetaOptimizer:
    """AdamW with two groups: means and plain parameters, and everything that is a scale.

    Scales are not decayed: a decayed rho or log step size would drift to a value nobody chose.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[str]],
        theta: WeightDistribution,
        settings: MetaTraining,
        shards: Shards,
    ) -> None:
        learned = {name for names in groups.values() for name in names}
        self._theta = {name: tensor for name, tensor in theta.named().items() if name in learned}
        self._shards = shards
        self._held = {name: shards.part(tensor) for name, tensor in self._theta.items()}
        decay = {MEANS: settings.weight_decay, SCALES: 0.0}
        named: list[dict[str, Any]] = [
            {"params": [self._held[n] for n in names], "name": group, "names": [*names], "weight_decay": decay[group]}
            for group, names in groups.items()
            if names
        ]
        self._adam = torch.optim.AdamW(named, lr=settings.lr, fused=theta.mu.device.type in ("cpu", "cuda"))

    def descend(self, grads: Parameters, learning_rates: Mapping[str, float], largest_norm: float) -> dict[str, Tensor]:
        """Take one step along the gradients, each group's clipped at ``largest_norm``; return the norms before.

        A group without a learning rate is left alone, and so are its moments.
        """
        of_theta, norms = grads.named(), dict[str, Tensor]()
        for group in self._adam.param_groups:
            group["lr"] = learning_rates.get(group["name"], 0.0)
            if group["name"] in learning_rates:
                norm = torch.nn.utils.get_total_norm([of_theta[name] for name in group["names"]])
                norms[group["name"]], factor = norm, (largest_norm / (norm + 1e-6)).clamp(max=1.0)
                for name in group["names"]:
                    of_theta[name].mul_(factor)
                    self._held[name].grad = self._shards.part(of_theta[name].contiguous())
        self._adam.step()
        for name, part in self._held.items():
            if part.grad is not None:
                self._shards.join(self._theta[name])
            part.grad = None
        return norms

    def moments(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over the optimiser's own tensors, named after theta's, whole."""
        for name, held in self._held.items():
            for part, value in self._adam.state.get(held, {}).items():
                yield f"{name}/{part}", value if part == STEP else self._shards.whole(value, self._theta[name])

    def restore_moments(self, saved: Mapping[str, Tensor]) -> None:
        """Set the moments to what ``moments`` gave."""
        for key, value in saved.items():
            name, part = key.rsplit("/", 1)
            here = value.to(self._theta[name].device)
            own = here if part == STEP else self._shards.part(here)
            self._adam.state[self._held[name]][part] = own.clone()


class Average:
    r"""Running average of theta's means and plain parameters, for a learning rate that does not fall.

    $$\bar\theta_t = \bar\theta_{t-1} + \frac{\theta_t - \bar\theta_{t-1}}{1 + s\,(t - 1)}$$

    Steps of constant length keep wandering around a minimum, and their mean lies nearer to it than any of them (Polyak
    & Juditsky 1992), at any time. Iterate i of t has a weight of about $(i/t)^{1/s - 1}$ (Shamir & Zhang 2013, "SGD for
    non-smooth optimization"): what lies much further back than the ``share`` s of the steps so far is forgotten. A
    share of 1 is the mean of all, and towards 0 it becomes the last iterate. Rho, which a warm start does not move, is
    theta's.
    """

    def __init__(self, theta: WeightDistribution, share: float) -> None:
        self.share = share
        self.theta = theta.detached().replace(rho=theta.rho.detach())

    def add(self, theta: WeightDistribution, count: int) -> None:
        """Add one more iterate, the ``count``-th."""
        weight, latest = 1 / (1 + self.share * (count - 1)), theta.named()
        for name, value in self.tensors.items():
            value.lerp_(latest[name].detach(), weight)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The averaged tensors, by name."""
        return {name: value for name, value in self.theta.named().items() if name != "rho"}
