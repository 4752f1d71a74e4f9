r"""Forecasts with both uncertainties: that of the task's weights, and that of the prior they were learned under.

A task's posterior $q(\phi;\lambda)$ is fitted under the *expected* prior, with precision $T$ and mean $m$. The
information of its data alone about a weight is what the posterior holds beyond that prior: the precision
$\Lambda = \sigma_q^{-2} - T$ and a linear term that explains the posterior's mean. Under one theta of
$q(\theta;\psi)$ the posterior is therefore

$$q(\phi|\theta) = N\Big(
\frac{\mu_q\,(\Lambda + T) - T m + \mu_\theta\,\sigma_\theta^{-2}}{\Lambda + \sigma_\theta^{-2}},\
(\Lambda + \sigma_\theta^{-2})^{-1}\Big)$$

This is exact where the likelihood is Gaussian in the weights. Without data ($\Lambda = 0$, $\mu_q = m$) it is the prior
$p(\phi|\theta)$ itself. A forecast draws theta first, then phi.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Self

import torch
from torch import Tensor

from metaprior.checks import InputsLike
from metaprior.forecasts import Forecast, GaussianForecast
from metaprior.forecasts.numpy_forecast import as_numpy
from metaprior.hierarchy.hyper_posterior import HyperPosterior
from metaprior.inputs import Inputs, holds_tensors
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.weights import WeightDistribution, inverse_softplus


class UncertaintySplit(NamedTuple):
    """A forecast's standard deviation by its sources: ``std**2 == prior**2 + task**2 + data**2``."""

    prior: Tensor
    """The part due to the uncertain prior, which more tasks would shrink."""
    task: Tensor
    """The part due to the task's uncertain weights, which more of its data would shrink."""
    data: Tensor
    """The part due to noisy data, which nothing shrinks."""

    @property
    def std(self) -> Tensor:
        """Return the total standard deviation of the target."""
        return (self.prior**2 + self.task**2 + self.data**2).sqrt()


@dataclass(frozen=True, repr=False)
class HierarchicalForecast(GaussianForecast):
    """A forecast from draws of theta and phi in pairs, which alone do not show what is due to which of the two."""

    split: Callable[[], UncertaintySplit] = field(kw_only=True)
    """Draws several phi for each theta, on demand."""

    @classmethod
    def _joined(cls, members: Sequence[Self], weights: Tensor) -> Self:
        """Return the forecast of all components; its split is the mean of the members' variances."""
        plain = [GaussianForecast(one.means, one.scales, weights=one.weights) for one in members]
        joined = GaussianForecast._joined(plain, weights)
        own = weights.reshape(len(weights), -1)[:, 0].split([len(one.means) for one in members])
        splits = [one.split for one in members]
        shares = [float(part.sum()) for part in own]
        return cls(joined.means, joined.scales, weights=weights, split=partial(_mean_split, splits, shares))

    @property
    def parts(self) -> dict[str, Tensor]:
        """Standard deviations by what is uncertain, whose squares add up to the variance.

        The epistemic variance is divided in the ratio that ``HierarchicalPosterior.split`` estimates.
        """
        prior, task, _ = (part.square() for part in self.split())
        share = prior / (prior + task).clamp_min(torch.finfo(prior.dtype).tiny)
        return {
            "prior": share.sqrt() * self.epistemic,
            "task": (1 - share).sqrt() * self.epistemic,
            "data": self.aleatoric,
        }


def _mean_split(splits: Sequence[Callable[[], UncertaintySplit]], shares: Sequence[float]) -> UncertaintySplit:
    found = [split() for split in splits]
    squares = [[share * part.square() for part in own] for own, share in zip(found, shares, strict=True)]
    return UncertaintySplit(*(torch.stack(parts).sum(0).sqrt() for parts in zip(*squares, strict=True)))


def given_theta(q: WeightDistribution, psi: HyperPosterior, theta: WeightDistribution) -> WeightDistribution:
    """Return the posterior under one theta (or a stack of them), given the posterior under the expected prior."""
    held, given = psi.precision, theta.sigma.pow(-2)
    data = (q.sigma.pow(-2) - held).clamp_min(0.0)  # negative where q is not at its optimum: no information
    precision = data + given
    mu = (q.mu * (data + held) - held * psi.mean + theta.mu * given) / precision
    return WeightDistribution(mu, inverse_softplus(precision.rsqrt()), q.plain)


@dataclass(frozen=True, repr=False)
class HierarchicalPosterior(Posterior):
    """A task's posterior whose forecasts include the uncertainty of the prior; ``split`` separates the two."""

    hyper: HyperPosterior = field(kw_only=True)
    phis_per_theta: int = field(default=1, kw_only=True)

    def split(self, x: InputsLike, *, thetas: int = 32, phis: int = 16, seed: int = 0) -> UncertaintySplit:
        r"""Return the forecast's standard deviation by its sources, from ``thetas`` x ``phis`` weight samples:

        $$\mathrm{Var}[y] = \mathrm{Var}_\theta E[f|\theta] + E_\theta \mathrm{Var}[f|\theta] + E\,\mathrm{Var}[y|f]$$

        For labels f are the probabilities. The first part is an unbiased estimate, clipped at zero; with few samples
        small parts are noisy.
        """
        if thetas < 2 or phis < 2:
            raise ValueError(f"thetas and phis must be at least 2 to have a spread, got {thetas} and {phis}")
        nested = replace(self, phis_per_theta=phis)
        forecast = nested._forecast(x, thetas * phis, seed)
        groups = forecast.samples.unflatten(0, (thetas, phis))
        within = groups.var(1).mean(0)
        between = (groups.mean(1).var(0) - within / phis).clamp_min(0.0)
        parts = UncertaintySplit(between.sqrt(), within.sqrt(), forecast.aleatoric)
        return parts if holds_tensors(x) else as_numpy(parts)

    def network_forecast(self, inputs: Inputs, samples: int, seed: int, batch_size: int | None) -> Forecast:
        """Return the forecast from ``samples`` pairs of theta and phi."""
        forecast = super().network_forecast(inputs, samples, seed, batch_size)
        if not isinstance(forecast, GaussianForecast):
            return forecast
        return HierarchicalForecast(forecast.means, forecast.scales, split=partial(self.split, inputs, seed=seed))

    def _draw(self, noise: Noise, group: range) -> Tensor:
        return torch.stack([self._draw_one(noise, sample) for sample in group])

    def _draw_one(self, noise: Noise, sample: int) -> Tensor:
        like, number = self.weights.mu, sample // self.phis_per_theta
        for_means, for_scales = (noise.fork(part).at(sample=number).normal(like) for part in ("mean", "scale"))
        theta = self.hyper.sample(for_means, for_scales)
        return given_theta(self.weights, self.hyper, theta).sample(noise.at(sample=sample).normal(like))
