"""A small way of adapting, to test the contract: the mean residual of the support set is added to the outputs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior import adaptation
from metaprior.adaptation import Binding, Way
from metaprior.adaptation.autograd import AutogradModel
from metaprior.forecasts import Forecast
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.problem import NonFinite
from metaprior.noise import Noise
from metaprior.posterior import Predictive
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

STRENGTH = "head.strength"


@dataclass(frozen=True)
class Offset:
    """Add a learned share of the mean residual; ``floor`` is added to the number of examples."""

    floor: float = 1.0


@dataclass(frozen=True)
class OffsetPosterior(Predictive):
    likelihood: Likelihood
    theta: WeightDistribution
    offset: Tensor

    def network_forecast(self, inputs: Tensor, samples: int, seed: int, batch_size: int | None) -> Forecast:
        with torch.no_grad():
            outputs = self.network(self.theta.mu, self.theta.plain, inputs) + self.offset
        return self.likelihood.forecast(outputs.expand(samples, *outputs.shape), self.theta.plain)


class OffsetModel(AutogradModel):
    def __init__(self, settings: Offset, binding: Binding) -> None:
        self.network, self.likelihood, self.settings = binding.network, binding.likelihood, settings
        binding.objective_name(("query",))

    def initial(self, targets: Tensor, relative_sigma: float = 0.1) -> WeightDistribution:
        weights = self.network.initial()
        own = {STRENGTH: weights.mu.new_full((1,), 0.5), **self.likelihood.initial_parameters(targets.to(weights.mu))}
        return weights.replace(plain={**weights.plain, **own})

    def losses(self, theta: WeightDistribution, tasks: Sequence[Task]) -> Tensor:
        return torch.stack([self._query_loss(theta, task) for task in tasks])

    def _query_loss(self, theta: WeightDistribution, task: Task) -> Tensor:
        outputs = self.network(theta.mu, theta.plain, task.query.x) + self._offset(theta, task.support)
        return self.likelihood.nll(outputs, task.query.y, theta.plain).mean()

    def _offset(self, theta: WeightDistribution, support: Examples) -> Tensor:
        residual = support.y - self.network(theta.mu, theta.plain, support.x)
        return theta.plain[STRENGTH] * residual.sum(0) / (self.settings.floor + support.size)

    def pooled_loss(self, theta: WeightDistribution, x: Tensor, y: Tensor) -> Tensor:
        return self.likelihood.nll(self.network(theta.mu, theta.plain, x), y, theta.plain).sum()

    def adapt(
        self, theta: WeightDistribution, support: Examples, noise: Noise, steps: int | None = None
    ) -> Predictive | NonFinite:
        with torch.no_grad():
            return self._posterior(theta, self._offset(theta, support))

    def prior(self, theta: WeightDistribution) -> Predictive:
        return self._posterior(theta, theta.mu.new_zeros(1))

    def _posterior(self, theta: WeightDistribution, offset: Tensor) -> Predictive:
        scale = TargetScale.identity(theta.mu)
        return OffsetPosterior(self.network, self.likelihood, theta.detached(), offset, target_scale=scale)


@contextmanager
def registered() -> Iterator[None]:
    """Register the way of adapting while the ``with`` block runs."""
    adaptation.WAYS["offset"] = Way(Offset, OffsetModel, random_weights=False)
    try:
        yield
    finally:
        del adaptation.WAYS["offset"]
