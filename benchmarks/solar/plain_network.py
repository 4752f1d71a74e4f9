"""The baseline without meta-learning: one network trained on all tasks, fine-tuned on the windows of each task.

The network and its likelihood are those of the learned prior; fine-tuning is Adam on all weights. Several such networks
are a deep ensemble (Lakshminarayanan, Pritzel & Blundell 2017), whose forecast is their mixture.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from metaprior.forecasts import GaussianForecast
from metaprior.likelihoods import Likelihood
from metaprior.methods.meta_learner import MetaLearner
from metaprior.network import evaluation_mode
from metaprior.solar.maps.comparison import Forecaster, gaussian
from metaprior.tasks.task import Examples, Task


class Tuning(NamedTuple):
    """Number of Adam steps of fine-tuning, and their learning rate."""

    steps: int
    lr: float

    def __str__(self) -> str:
        return f"{self.steps} steps of Adam, lr {self.lr:g}" if self.steps else "as it is"


@dataclass(frozen=True)
class PlainNetwork:
    """A trained network, its likelihood, and the likelihood's plain parameters (a noise scale)."""

    module: nn.Module
    likelihood: Likelihood
    noise: dict[str, Tensor]

    def fine_tuned(self, support: Examples, tuning: Tuning) -> "PlainNetwork":
        """Return a copy that is fine-tuned on a support set."""
        module = copy.deepcopy(self.module)
        noise = {name: value.detach().clone().requires_grad_() for name, value in self.noise.items()}
        optimizer = torch.optim.Adam([*module.parameters(), *noise.values()], lr=tuning.lr)
        for _ in range(tuning.steps):
            optimizer.zero_grad()
            self.likelihood.nll(module(support.x), support.y, noise).mean().backward()
            optimizer.step()
        return PlainNetwork(module, self.likelihood, {name: value.detach() for name, value in noise.items()})

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of the network, (N, ...)."""
        with torch.no_grad(), evaluation_mode(self.module):
            outputs: Tensor = self.module(x)
        return outputs


def plain_network(learner: MetaLearner) -> PlainNetwork:
    """Return the network whose weights are the means of a learner's prior."""
    theta = learner.theta_
    weights = {**learner.network.constants, **learner.network.layout.split(theta.mu), **theta.plain}
    module = copy.deepcopy(learner.network.module)
    own = dict([*module.named_parameters(), *module.named_buffers()])
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])
    noise = {name: value for name, value in theta.plain.items() if name not in own}
    return PlainNetwork(module, learner.likelihood, noise)


def forecast(networks: Sequence[PlainNetwork], x: Tensor) -> GaussianForecast:
    """Return the mixture of the networks' forecasts; each is two equal components, as ``GaussianForecast`` needs."""
    parts = [gaussian(one.likelihood.forecast(one.outputs(x).expand(2, *[-1] * x.ndim), one.noise)) for one in networks]
    means = torch.cat([part.means for part in parts])
    return GaussianForecast(means, torch.cat([part.scales.expand_as(part.means) for part in parts]))


def of_networks(networks: Sequence[PlainNetwork], tuning: Tuning) -> Forecaster:
    """Return the forecaster of one network, or of an ensemble, each fine-tuned on the support set."""

    def fine_tuned_forecast(task: Task, index: int) -> GaussianForecast:
        tuned = [one.fine_tuned(task.support, tuning) if tuning.steps else one for one in networks]
        return forecast(tuned, task.query.x)

    return fine_tuned_forecast
