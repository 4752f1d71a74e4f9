"""What one would do without meta-learning: one network trained on everything, fine-tuned on the task's few windows.

The network and its likelihood are those that the prior is learned for; fine-tuning is Adam on all weights. Several such
networks are a deep ensemble (Lakshminarayanan, Pritzel & Blundell 2017), whose forecast is their mixture.
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
from metaprior.tasks.task import Examples


class Tuning(NamedTuple):
    """How a network is fine-tuned: steps of Adam, and their learning rate."""

    steps: int
    lr: float

    def __str__(self) -> str:
        return f"{self.steps} steps of Adam, lr {self.lr:g}" if self.steps else "as it is"


@dataclass(frozen=True)
class PlainNetwork:
    """A trained network, and the plain parameters (a noise scale) of its likelihood."""

    module: nn.Module
    likelihood: Likelihood
    noise: dict[str, Tensor]

    def fine_tuned(self, support: Examples, tuning: Tuning) -> "PlainNetwork":
        """A copy that has learned from a support set."""
        module = copy.deepcopy(self.module)
        noise = {name: value.detach().clone().requires_grad_() for name, value in self.noise.items()}
        optimizer = torch.optim.Adam([*module.parameters(), *noise.values()], lr=tuning.lr)
        for _ in range(tuning.steps):
            optimizer.zero_grad()
            self.likelihood.nll(module(support.x), support.y, noise).mean().backward()
            optimizer.step()
        return PlainNetwork(module, self.likelihood, {name: value.detach() for name, value in noise.items()})

    def outputs(self, x: Tensor) -> Tensor:
        """Of the network, (N, ...)."""
        with torch.no_grad(), evaluation_mode(self.module):
            outputs: Tensor = self.module(x)
        return outputs


def plain_network(learner: MetaLearner) -> PlainNetwork:
    """The means that a learner has learned, as a network that knows nothing of distributions."""
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
    """The mixture of the networks' forecasts; of a single one it is that one, twice."""
    parts = [one.likelihood.forecast(one.outputs(x).expand(2, *[-1] * x.ndim), one.noise) for one in networks]
    gaussians = [part for part in parts if isinstance(part, GaussianForecast)]
    if len(gaussians) < len(parts):
        raise TypeError(
            "maps are forecast with a Gaussian likelihood (Gaussian, HeteroscedasticGaussian, CRPSGaussian)"
        )
    means = torch.cat([part.means for part in gaussians])
    scales = torch.cat([part.scales.expand_as(part.means) for part in gaussians])
    return GaussianForecast(means, scales)
