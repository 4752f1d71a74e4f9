"""A likelihood whose missing targets are left out by explicit weights of zero, and data with holes for both ways."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metaprior.forecasts import Forecast
from metaprior.likelihoods import (
    Bernoulli,
    Categorical,
    CRPSGaussian,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
)
from metaprior.tasks.task import Examples, Task

LIKELIHOODS: dict[str, Likelihood] = {
    "gaussian": Gaussian(),
    "fixed": Gaussian(noise=(0.7, 1.3)),
    "heteroscedastic": HeteroscedasticGaussian(),
    "crps": CRPSGaussian(),
    "categorical": Categorical(),
    "bernoulli": Bernoulli(),
}


@dataclass(frozen=True)
class ByHand(Likelihood):
    """Targets are pairs on a new last axis: a number, and 1 where it counts or 0 where it does not."""

    likelihood: Likelihood
    continuous = False

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.likelihood.parameter_names

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        y, counts = targets.unbind(-1)
        return counts * self.likelihood.elementwise_nll(outputs, y, parameters)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> Forecast:
        return self.likelihood.forecast(outputs, parameters)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        return targets

    def check_results(self, targets: Tensor, output_shape: Any) -> None:
        """Raise nothing: targets have one axis more than what ``elementwise_nll`` returns."""

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        y, counts = targets.unbind(-1)
        return self.likelihood.initial_parameters(torch.where(counts > 0, y, torch.nan))

    def present(self, targets: Tensor) -> Tensor:
        return torch.ones_like(targets, dtype=torch.bool)


def with_holes(y: Tensor, gone: Tensor) -> Tensor:
    """Return targets of which some are missing."""
    return y.masked_fill(gone, torch.nan if y.is_floating_point() else -100)


def with_weights(y: Tensor, gone: Tensor) -> Tensor:
    """Return the same targets for ``ByHand``."""
    return torch.stack([y.masked_fill(gone, 1), (~gone).to(y.dtype)], -1)


def some_gone(y: Tensor) -> Tensor:
    """Return about a third of the targets, but never all of an observation's."""
    gone = torch.arange(y.numel()).reshape(y.shape) % 3 == 1
    flat = gone.flatten(1)
    return (flat & ~flat.all(1, keepdim=True)).reshape(y.shape)


def twins(task: Task) -> tuple[Task, Task]:
    """Return a task with missing targets, and the same for ``ByHand``."""
    gone = [some_gone(part.y) for part in (task.support, task.query)]
    return tuple(
        Task(
            Examples(task.support.x, how(task.support.y, gone[0])),
            Examples(task.query.x, how(task.query.y, gone[1])),
            task.name,
        )
        for how in (with_holes, with_weights)
    )  # type: ignore[return-value]
