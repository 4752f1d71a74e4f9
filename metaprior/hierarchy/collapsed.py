r"""The hierarchy with the local posteriors in closed form: the log evidence of all tasks under a theta, and forecasts.

With Gaussian noise, features f(x) of a trunk and a Gaussian prior over the last layer, the integral over a task's
weights has a closed form (``adaptation/closed_form/conjugate.py``), and the hierarchy's bound collapses to

$$\log p(D_1..D_M) \ge E_{q(\theta)}\Big[\sum_i \log p(D_i|\theta)\Big] - KL(q(\theta)\|p(\theta)),$$

one inequality in place of two. Given draws $\theta_k$ of the posterior, the forecast for a task is the equally weighted
mixture of its exact forecasts under each of them (mixtures themselves, over the task's size). Its variance divides into

$$\underbrace{\mathrm{Var}_k E[f|\theta_k]}_{\text{prior}} + \underbrace{E_k \mathrm{Var}[f|\theta_k]}_{\text{task}}
+ \underbrace{E_k \mathrm{Var}[y|f]}_{\text{data}}.$$

Everything is in float64. Targets are vectors: (N, C).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metaprior.adaptation.closed_form.conjugate import HeadPosterior, condition
from metaprior.adaptation.closed_form.head import Head
from metaprior.checks import InputsLike
from metaprior.errors import NotFinite
from metaprior.forecasts import Forecast, GaussianForecast
from metaprior.hierarchy.hierarchical_posterior import UncertaintySplit
from metaprior.hierarchy.whitened import CollapsedHyperprior, Theta, Whitening, conjugate
from metaprior.inputs import Inputs, split
from metaprior.likelihoods import HeteroscedasticGaussian, Likelihood
from metaprior.missing import present_numbers
from metaprior.network import BayesianNetwork, evaluation_mode
from metaprior.posterior import NUMBERS_AT_ONCE, Predictive
from metaprior.tasks.task import Examples, all_examples


class TaskStack(NamedTuple):
    """The data of M tasks: all rows one after the other, and where each task's rows lie, padded to the longest task."""

    x: Inputs
    """Inputs of all tasks, (N, ...)."""
    rows: Tensor
    """Indices into x, (M, n); 0 where a task has fewer rows."""
    targets: Tensor
    """(M, n, C)."""
    present: Tensor
    """1 for a target, 0 where it is missing or where the row is padding, (M, n, C)."""

    @classmethod
    def of(cls, tasks: Sequence[Examples]) -> "TaskStack":
        """Return the stack of some tasks; targets (n, C) that are NaN are missing."""
        x, y = all_examples(tasks)
        longest, start = max(task.size for task in tasks), 0
        rows = torch.zeros(len(tasks), longest, dtype=torch.long, device=y.device)
        real = torch.zeros_like(rows, dtype=torch.bool)
        for number, task in enumerate(tasks):
            rows[number, : task.size] = torch.arange(start, start + task.size, device=y.device)
            real[number, : task.size] = True
            start += task.size
        targets = y[rows]
        return cls(x, rows, targets, (present_numbers(targets) & real[..., None]).double())


class Features(NamedTuple):
    """What the trunk gives under K thetas."""

    values: Tensor
    """Inputs of the last layer, (K, N, d)."""
    offset: Tensor
    """What the network adds to the last layer's means, (K, N, C)."""
    scales: Tensor
    """Noise scales, (K, N, C)."""


@dataclass(frozen=True, eq=False)
class CollapsedModel:
    """A network in float64 whose last layer is integrated out, a likelihood, and the map from z to theta."""

    head: Head
    whitening: Whitening

    @classmethod
    def of(cls, network: BayesianNetwork, likelihood: Likelihood, hyperprior: CollapsedHyperprior) -> "CollapsedModel":
        """Return the model with the network's last layer as head; ``likelihood`` is in the network's units."""
        head, likelihood = Head.of(network), conjugate(likelihood)
        own = network.initial().plain
        trunk = {name: own[name].shape for name in network.plain_names if name not in head.own_names}
        outputs = head.outputs // 2 if isinstance(likelihood, HeteroscedasticGaussian) else head.outputs
        features = head.size - (head.layer.bias is None)
        return cls(head, Whitening(hyperprior, likelihood, trunk, features, outputs))

    def check(self, data: Examples) -> None:
        """Raise unless outputs are linear in the last layer and targets are vectors."""
        network = self.head.network
        self.head.check(network.initial().plain, data.first(2).x)
        if data.y.ndim != 2:
            raise ValueError(
                'targets must have shape (N,) or (N, C) with local="closed_form", got '
                f'{tuple(data.y.shape)}. Try local="explicit", or MetaLearner with ClosedForm() for images'
            )

    def features(self, theta: Theta, x: Inputs) -> Features:
        """Return features, offsets and noise scales at inputs x under every theta."""
        names, count = list(theta.trunk), self.whitening.features

        def of(*values: Tensor) -> Tensor:
            rows, offset = self.head.split(dict(zip(names, values, strict=True)), x)
            return torch.cat([rows[:, 0, :count], offset.reshape(len(offset), -1)], 1)

        network = self.head.network
        with evaluation_mode(network.module):  # a module that is its last layer has nothing that differs between thetas
            found = network.map_samples(of, *theta.trunk.values()) if names else of().expand(len(theta.mean), -1, -1)
        values, offset = found[..., :count], found[..., count : count + self.whitening.outputs]
        return Features(values, offset, self.whitening.scales(theta, values).expand_as(offset))

    def posterior(self, theta: Theta, tasks: TaskStack, *, sizes: bool = True) -> HeadPosterior:
        """Return the posteriors of all tasks' last layers under every theta; leading axes are (K, M).

        ``sizes=False`` leaves the tasks' sizes out: all are 1.
        """
        values, offset, scales = (part[:, tasks.rows] for part in self.features(theta, tasks.x))  # (K, M, n, ...)
        return condition(theta.head(sizes=sizes), values, tasks.targets - offset, scales.unsqueeze(2), tasks.present)

    def prior(self, theta: Theta) -> HeadPosterior:
        """Return the posterior of one task without data under every theta."""
        none = theta.mean.new_zeros(len(theta.mean), 1, 0, self.whitening.features)
        return condition(theta.head(), none, none[..., : self.whitening.outputs], none.new_ones(()))

    def log_evidence(self, z: Tensor, tasks: TaskStack) -> Tensor:
        r"""Return $\sum_i \log p(D_i | \theta(z_k))$ for every row of z, (K,)."""
        return self.posterior(self.whitening.theta(z), tasks, sizes=False).log_evidence.sum((1, 2))


@dataclass(frozen=True, repr=False)
class CollapsedPosterior(Predictive):
    """Equally weighted exact posteriors of a task under K draws of theta; without data, the prior."""

    model: CollapsedModel = field(kw_only=True)
    theta: Theta = field(kw_only=True)
    head: HeadPosterior = field(kw_only=True)
    """Posterior of the task's last layer; leading axes (K, 1)."""

    def _facts(self) -> list[str]:
        return [f"{len(self.theta.mean)} draws of theta"]

    @torch.no_grad()
    def network_forecast(self, inputs: Inputs, samples: int, seed: int, batch_size: int | None) -> Forecast:
        """Return the mixture over thetas. It is exact, so ``samples`` and ``seed`` change nothing."""
        draws, width = len(self.theta.mean), self.theta.factor.shape[-1]
        weights = self.head.log_weights.exp().flatten()  # (K components), those of a draw one after the other
        size = batch_size or max(1, NUMBERS_AT_ONCE // (len(weights) * width * self.model.whitening.outputs))
        parts = [self._moments(own) for own in split(inputs, size)]
        means, task, data = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        if not bool((means + task + data).isfinite().all()):
            raise NotFinite("the forecast has NaN or infinite values; look for inputs far outside of the training data")
        scales = {"scales": (task + data).sqrt(), "task_scales": task.sqrt()}
        return GaussianForecast(means, weights=weights, thetas=draws, **scales)

    def split(self, x: InputsLike) -> UncertaintySplit:
        """Return the forecast's standard deviation by its sources, the same as ``predict(x).parts``."""
        forecast: Any = self.predict(x)
        return UncertaintySplit(**forecast.parts)

    def _moments(self, x: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, and variances because of the task's weights and of the noise, of all components, (., N, C)."""
        values, offset, scales = self.model.features(self.theta, x)
        mean, variance = (moment[:, 0] for moment in self.head.predict(values.unsqueeze(1)))  # (K, components, N, C)
        mean, noise = mean + offset.unsqueeze(1), scales.square().unsqueeze(1).expand_as(mean)
        return mean.flatten(0, 1), variance.flatten(0, 1), noise.flatten(0, 1)
