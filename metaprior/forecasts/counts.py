r"""Forecasts of counts 0, 1, 2, ...: mixtures of Poisson and of negative binomial distributions.

A component has the rate $\mu$ and the dispersion $\alpha$, with the variance $\mu + \alpha\mu^2$:

$$p(y) = \frac{\Gamma(y + r)}{\Gamma(r)\,y!}\,\frac{(\alpha\mu)^y}{(1 + \alpha\mu)^{r + y}},\qquad r = 1/\alpha$$

For $\alpha = 0$ it is the Poisson distribution.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import ArrayLike
from metaprior.forecasts.families import MixtureForecast
from metaprior.forecasts.inversion import invert_cdf
from metaprior.forecasts.special import incomplete_beta, log_rising

LEAST_DISPERSION = 1e-12
"""Below, the negative binomial distribution is that of Poisson to all digits."""
LEAST_EXCESS = 1e-6
"""Share by which a variance must exceed Poisson's for a distribution function of its own."""
LATTICE = 1024
"""Largest count up to which the CRPS is summed over all counts; beyond, steps are narrow enough to be integrated."""
COVERED = 0.9999
COUNT_TOLERANCE = 1e-6
"""Largest error of a count's quantile before it is rounded up."""


def poisson_log_mass(log_rate: Tensor, counts: Tensor) -> Tensor:
    r"""Return $y\log\mu - \mu - \log y!$."""
    return counts * log_rate - log_rate.exp() - torch.lgamma(counts + 1)


def negative_binomial_log_mass(log_rate: Tensor, dispersion: Tensor, counts: Tensor) -> Tensor:
    """Return the log mass of counts, exact also for a dispersion close to zero."""
    dispersion = dispersion.clamp_min(LEAST_DISPERSION)
    start = 1 / dispersion
    without_rate = log_rising(counts, start) - torch.lgamma(counts + 1)
    return without_rate + counts * log_rate - (start + counts) * torch.log1p(dispersion * log_rate.exp())


@dataclass(frozen=True, repr=False)
class CountForecast(MixtureForecast):
    """A mixture of S Poisson or negative binomial distributions per target.

    Args:
        log_rates: logarithm of the expected count in each component, shape (S, N, ...).
        dispersions: their dispersions, in a shape that broadcasts; 0 for Poisson.
        weights: the components' weights; None for weight samples.
    """

    log_rates: Tensor
    dispersions: Tensor

    @property
    def samples(self) -> Tensor:
        """The rates."""
        return self.log_rates.exp()

    @property
    def variances(self) -> Tensor:
        r"""$\mu + \alpha\mu^2$."""
        return self.samples + self.dispersions * self.samples.square()

    def component_cdf(self, values: Tensor) -> Tensor:
        """Return each component's probability at or below the values; between counts it is constant."""
        return self._between_counts(values.floor())

    def _between_counts(self, values: Tensor) -> Tensor:
        """Return the cdf continued to real numbers: a smooth function that is the cdf at counts, zero below."""
        known, rates, dispersions = torch.broadcast_tensors(values.clamp_min(-0.5) + 1, self.samples, self.dispersions)
        found = torch.special.gammaincc(known, rates)
        above = dispersions * rates
        dispersed = above > LEAST_EXCESS
        if bool(dispersed.any()):
            start = 1 / torch.where(dispersed, dispersions, 1.0)
            other = incomplete_beta(start, known, 1 / (1 + above), above / (1 + above)).to(found)
            found = torch.where(dispersed, other, found)
        return torch.where(values < -0.5, 0.0, found)

    def component_below(self, values: Tensor) -> Tensor:
        """Return each component's probability of a smaller count."""
        return self.component_cdf(values.ceil() - 1)

    def component_log_prob(self, values: Tensor) -> Tensor:
        """Return each component's log mass of counts; -inf for what is no count."""
        counts = (values >= 0) & (values == values.floor())
        safe = torch.where(counts, values, 0.0)
        poisson = poisson_log_mass(self.log_rates, safe)
        dispersed = negative_binomial_log_mass(self.log_rates, self.dispersions, safe)
        found = torch.where(self.dispersions > LEAST_DISPERSION, dispersed, poisson)
        return torch.where(counts, found, -torch.inf)

    def crps(self, targets: ArrayLike) -> Tensor:
        r"""Return $\sum_k (F(k) - 1[k \ge y])^2$ of each target, NaN for a missing one.

        Where counts above 1024 are likely, it is an integral over the steps, right to about 1e-3 of itself.
        """
        observed, wide = self._values(targets).double(), self._doubled()
        small = torch.maximum(observed.nan_to_num(0.0), wide.mean + 5 * wide.std) <= LATTICE
        found = torch.zeros_like(observed) if bool(small.all()) else super().crps(targets).double()
        if bool(small.any()):
            score, reached = torch.zeros_like(observed), torch.zeros_like(observed)
            most = torch.maximum(observed.nan_to_num(0.0), wide._quantiles(self._as_column([COVERED]), 0.0)[0])
            for count in range(int(most[small].max()) + 1):
                mass = wide.component_log_prob(torch.full_like(observed, count)).exp()
                reached = reached + mixture.average(mass, wide.weights)
                score += torch.where(observed <= count, reached - 1, reached).square()
            found = torch.where(small, score, found)
        return self._of_present(found, observed).to(self.mean)

    def _quantiles(self, levels: Tensor, tolerance: float) -> Tensor:
        """Return the smallest counts whose cdf reaches the levels: next to where the continued cdf does."""
        low, high = self._bracket(levels)
        found = invert_cdf(
            lambda values: mixture.average(self._between_counts(values.unsqueeze(1)), self.weights, 1),
            low.clamp_min(-1.0),
            high,
            levels,
            COUNT_TOLERANCE,
        )
        counts = (found - COUNT_TOLERANCE).ceil().clamp_min(0.0)
        return torch.where(self._cdf(counts) < levels, counts + 1, counts)

    def widened(self, factor: float | Tensor) -> Self:
        r"""Return the forecast with the same rates, and dispersions that make its standard deviation ``factor`` times
        as large; a factor below one never makes it narrower than with Poisson's."""
        noise = (factor * self.std).square() - self.epistemic.square()
        times = (noise / self.aleatoric.square()).clamp_min(0.0)
        rates = self.samples.clamp_min(torch.finfo(self.samples.dtype).tiny)
        return replace(self, dispersions=((times - 1) / rates + times * self.dispersions).clamp_min(0.0))
