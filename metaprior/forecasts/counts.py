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
        known, above = values.clamp_min(-0.5) + 1, (self.dispersions * self.samples).expand(self.samples.shape)
        dispersed = above > LEAST_DISPERSION * self.samples
        found = torch.special.gammaincc(known.expand(above.shape), self.samples)
        if bool(dispersed.any()):
            start = 1 / self.dispersions.clamp_min(LEAST_DISPERSION)
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
        observed = self._values(targets).double()
        wide = self._doubled()
        least = float(observed.nan_to_num(0.0).max())
        if max(least, float((wide.mean + 3 * wide.std).max())) > LATTICE:
            return super().crps(targets)
        most = int(max(least, float(wide._quantile(COVERED, 0.0).max())))
        score, reached = torch.zeros_like(observed), torch.zeros_like(observed)
        for count in range(most + 1):
            mass = wide.component_log_prob(torch.full_like(observed, count)).exp()
            reached = reached + mixture.average(mass, wide.weights)
            score += torch.where(observed <= count, reached - 1, reached).square()
        return self._of_present(score, observed).to(self.mean)

    def _quantile(self, level: float, tolerance: float) -> Tensor:
        """Return the smallest count whose cdf reaches the level: next to where the continued cdf does."""
        low, high = self._bracket(level)
        found = invert_cdf(
            lambda values: mixture.average(self._between_counts(values), self.weights),
            low.clamp_min(-1.0),
            high,
            level,
            COUNT_TOLERANCE,
        )
        counts = (found - COUNT_TOLERANCE).ceil().clamp_min(0.0)
        return torch.where(mixture.average(self.component_cdf(counts), self.weights) < level, counts + 1, counts)

    def widened(self, factor: float | Tensor) -> Self:
        r"""Return the forecast with the same rates, and dispersions that make its standard deviation ``factor`` times
        as large; a factor below one never makes it narrower than with Poisson's."""
        noise = (factor * self.std).square() - self.epistemic.square()
        times = (noise / self.aleatoric.square()).clamp_min(0.0)
        rates = self.samples.clamp_min(torch.finfo(self.samples.dtype).tiny)
        return replace(self, dispersions=((times - 1) / rates + times * self.dispersions).clamp_min(0.0))
