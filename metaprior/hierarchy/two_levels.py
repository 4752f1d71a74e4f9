r"""Forecasts that know both uncertainties: of the task's weights, and of the prior they were learned under.

A task's posterior $q(\phi;\lambda)$ was found under the *expected* prior, with precision $T$ and mean $m$. What its
data alone say about a weight is what it holds beyond that prior: precision $\Lambda = \sigma_q^{-2} - T$, and a pull
that puts the posterior's mean where it is. Under a theta of $q(\theta;\psi)$ the posterior is therefore

$$q(\phi|\theta) = N\Big(
\frac{\mu_q\,(\Lambda + T) - T m + \mu_\theta\,\sigma_\theta^{-2}}{\Lambda + \sigma_\theta^{-2}},\
(\Lambda + \sigma_\theta^{-2})^{-1}\Big)$$

which is the exact posterior given theta where the likelihood is Gaussian in the weights. Without data ($\Lambda = 0$,
$\mu_q = m$) it is the prior $p(\phi|\theta)$ itself. A forecast draws theta, then phi.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.checks import ArrayLike
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast
from metaprior.hierarchy.hyper_posterior import HyperPosterior
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.weights import WeightDistribution, inverse_softplus


class UncertaintySplit(NamedTuple):
    """Standard deviations of a forecast by where they come from: ``std**2 == prior**2 + task**2 + data**2``."""

    prior: Tensor
    """Because the prior is not known: more tasks would shrink it."""
    task: Tensor
    """Because the task is not known: more of its data would shrink it."""
    data: Tensor
    """Because data are noisy: nothing shrinks it."""

    @property
    def std(self) -> Tensor:
        """Of the target."""
        return (self.prior**2 + self.task**2 + self.data**2).sqrt()


def given_theta(q: WeightDistribution, psi: HyperPosterior, theta: WeightDistribution) -> WeightDistribution:
    """The posterior under one theta (or a stack of them), from the posterior under the expected prior."""
    held, given = psi.precision, theta.sigma.pow(-2)
    data = (q.sigma.pow(-2) - held).clamp_min(0.0)  # below zero: not at its optimum, or data that widen; no knowledge
    precision = data + given
    mu = (q.mu * (data + held) - held * psi.mean + theta.mu * given) / precision
    return WeightDistribution(mu, inverse_softplus(precision.rsqrt()), q.plain)


@dataclass(frozen=True)
class HierarchicalPosterior(Posterior):
    """A task's posterior with the uncertainty of the prior in its forecasts, and a way to tell the two apart."""

    hyper: HyperPosterior = field(kw_only=True)
    phis_per_theta: int = field(default=1, kw_only=True)

    def split(self, x: ArrayLike, *, thetas: int = 32, phis: int = 16, seed: int = 0) -> UncertaintySplit:
        r"""The forecast's standard deviation by its sources, from ``thetas`` x ``phis`` weight samples:

        $$\mathrm{Var}[y] = \mathrm{Var}_\theta E[f|\theta] + E_\theta \mathrm{Var}[f|\theta] + E\,\mathrm{Var}[y|f]$$

        For labels f are the probabilities. The first part is an unbiased estimate, cut off at zero: with few samples
        small parts are noisy.
        """
        if thetas < 2 or phis < 2:
            raise ValueError(f"at least 2 thetas and 2 phis are needed to tell their spread, got {thetas} and {phis}")
        nested = replace(self, phis_per_theta=phis)
        forecast = nested.predict(x, samples=thetas * phis, seed=seed)
        drawn = _drawn(forecast)
        groups = drawn.reshape(thetas, phis, *drawn.shape[1:])
        within = groups.var(1).mean(0)
        between = (groups.mean(1).var(0) - within / phis).clamp_min(0.0)
        return UncertaintySplit(between.sqrt(), within.sqrt(), forecast.aleatoric)

    def _draw(self, noise: Noise, group: range) -> Tensor:
        return torch.stack([self._draw_one(noise, sample) for sample in group])

    def _draw_one(self, noise: Noise, sample: int) -> Tensor:
        like, number = self.weights.mu, sample // self.phis_per_theta
        for_means, for_scales = (noise.fork(part).at(sample=number).normal(like) for part in ("mean", "scale"))
        theta = self.hyper.sample(for_means, for_scales)
        return given_theta(self.weights, self.hyper, theta).sample(noise.at(sample=sample).normal(like))


def _drawn(forecast: Forecast) -> Tensor:
    """What each weight sample expects of the target, (S, N, ...)."""
    if isinstance(forecast, GaussianForecast):
        return forecast.means
    if isinstance(forecast, CategoricalForecast | BernoulliForecast):
        return forecast.samples
    raise TypeError(f"a {type(forecast).__name__} cannot be split")
