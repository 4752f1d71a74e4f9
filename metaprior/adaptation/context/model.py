r"""Context as a task model: the network reads the summary of the support set, and nothing else is adapted.

$$\mathrm{loss}_i = \frac{1}{N_Q}\sum_{(x, y) \in Q_i} -\log p\big(y \,|\, f(x, c_i)\big),\qquad
c_i = \text{encoder}(S_i)$$

This is a conditional neural process (Garnelo et al. 2018) around any network. All tasks of a meta-batch are computed in
one program: one pass of the encoder over all support sets, and one of the network over all query sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from metaprior.adaptation.autograd import AutogradModel
from metaprior.adaptation.context.conditioning import Conditioning
from metaprior.adaptation.context.settings import Context
from metaprior.adaptation.task_model import Binding
from metaprior.forecasts import Forecast
from metaprior.metagrad.finite import first_non_finite
from metaprior.metagrad.problem import NonFinite
from metaprior.network import NOTHING_RANDOM
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.scaling import TargetScale
from metaprior.tasks.task import UNNAMED, Examples, Task, all_examples
from metaprior.weights import WeightDistribution


def bind(context: Context, binding: Binding) -> "ContextModel":
    """Return the task model of a context."""
    binding.objective_name(("query",))
    return ContextModel(Conditioning(context, binding, NOTHING_RANDOM, noise=True))


class ContextModel(AutogradModel):
    """A conditioned network all of whose parameters are plain."""

    def __init__(self, conditioning: Conditioning) -> None:
        self._conditioning = conditioning
        self.network, self.likelihood = conditioning.network, conditioning.likelihood

    def initial(self, targets: Tensor, relative_sigma: float = 0.1) -> WeightDistribution:
        """Return a first theta: the module's values, an encoder, and a noise scale from the targets."""
        theta = self._conditioning.initial(self.network.initial())
        return theta.replace(plain={**theta.plain, **self.likelihood.initial_parameters(targets.to(theta.mu))})

    def losses(self, theta: WeightDistribution, tasks: Sequence[Task]) -> Tensor:
        """Return the mean negative log-likelihood of every task's query set."""
        contexts = self._conditioning.contexts(theta, [task.support for task in tasks])
        sizes = [task.query.size for task in tasks]
        x, y = all_examples([task.query for task in tasks])
        rows = contexts.repeat_interleave(torch.tensor(sizes, device=contexts.device), 0)
        return torch.stack([own.mean() for own in self._nll(theta, rows, x, y).split(sizes)])

    def pooled_loss(self, theta: WeightDistribution, x: Any, y: Tensor) -> Tensor:
        """Return the summed negative log-likelihood with the context of no examples."""
        return self._nll(theta, self._conditioning.nothing(theta), x, y).sum()

    def _nll(self, theta: WeightDistribution, context: Tensor, x: Any, y: Tensor) -> Tensor:
        given = self._conditioning.given(theta, context)
        outputs = self.network(given.mu, given.plain, x)
        return self.likelihood.masking(y).nll(outputs, y, given.plain)

    def adapt(
        self, theta: WeightDistribution, support: Examples, noise: Noise, steps: int | None = None
    ) -> Posterior | NonFinite:
        """Return the network with the context of a support set."""
        if steps is not None:
            raise ValueError(f"steps must be None with a context, which is computed at once, got {steps}")
        with torch.no_grad():
            context = self._conditioning.contexts(theta, [support])[0]
        if failure := first_non_finite({"context": context}, UNNAMED, "outer"):
            return failure
        return self._posterior(theta, context)

    def prior(self, theta: WeightDistribution) -> Posterior:
        """Return the network with the context of no examples."""
        with torch.no_grad():
            return self._posterior(theta, self._conditioning.nothing(theta))

    def _posterior(self, theta: WeightDistribution, context: Tensor) -> "PointPosterior":
        weights = self._conditioning.given(theta.detached(), context)
        return PointPosterior(self.network, self.likelihood, weights, target_scale=TargetScale.identity(weights.mu))


@dataclass(frozen=True, repr=False)
class PointPosterior(Posterior):
    """A network without random weights: its forecast has the components of one sample, whatever number is asked for."""

    def network_forecast(self, inputs: Any, samples: int, seed: int, batch_size: int | None) -> Forecast:
        """Return the forecast of the one network."""
        two = super().network_forecast(inputs, 2, seed, batch_size)  # the same twice
        half = len(two.samples) // 2
        given = {one.name: getattr(two, one.name) for one in fields(two)}
        first = {name: value[:half] for name, value in given.items() if isinstance(value, Tensor)}
        return replace(two, **({"weights": torch.ones(1, device=two.mean.device)} | first))
