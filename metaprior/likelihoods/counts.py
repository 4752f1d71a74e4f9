"""Counts 0, 1, 2, ...: Poisson, and the negative binomial distribution for counts that vary more."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.checks import check_positive
from metaprior.forecasts.counts import CountForecast, negative_binomial_log_mass, poisson_log_mass
from metaprior.likelihoods.likelihood import Likelihood, match_continuous, refuse_broadcast
from metaprior.likelihoods.location_scale import along_channels, filled
from metaprior.missing import mean_of_present
from metaprior.weights import inverse_softplus

DISPERSION_RHO = "likelihood.dispersion_rho"  # plain parameter: dispersion = softplus(rho)
LOG_LEVEL = "likelihood.log_level"  # plain parameter: added to the network's outputs, which are logarithms of rates
LINEAR_FROM = 20.0
"""Output from which on the rate grows linearly: its exponential would soon leave the floating-point numbers."""


def log_rate_of(outputs: Tensor) -> Tensor:
    r"""Return $\log\mu$ of the log link: $\mu = e^f$, continued linearly, with the same slope, above f = 20."""
    return outputs.clamp_max(LINEAR_FROM) + (outputs - LINEAR_FROM).clamp_min(0.0).log1p()


@dataclass(frozen=True)
class _Counts(Likelihood):
    """What likelihoods of counts share: the log link around a learned level of each channel (axis 1)."""

    continuous: ClassVar[bool] = False

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The name of the level."""
        return (LOG_LEVEL,)

    def log_rate(self, outputs: Tensor, parameters: Mapping[str, Tensor], channel_axis: int = 1) -> Tensor:
        """Return the logarithms of the rates; ``channel_axis`` is 1 for outputs (N, C, ...), 2 for (S, N, C, ...)."""
        level = along_channels(parameters[LOG_LEVEL].to(outputs), outputs.ndim - channel_axis + 1)
        return log_rate_of(outputs + level)

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Return the logarithm of each channel's mean (zero where there is none): a network's outputs are near zero."""
        mean = mean_of_present(targets, [axis for axis in range(targets.ndim) if axis != 1])
        return {LOG_LEVEL: torch.where(mean > 0, mean, 1.0).log()}

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return counts in the outputs' shape, or raise."""
        targets = match_continuous(targets, tuple(output_shape[1:]), "").double()
        known = targets[targets.isfinite()]
        wrong = known[(known < 0) | (known != known.floor())]
        if len(wrong):
            raise ValueError(
                f"counts must be integers of at least 0, got {float(wrong[0])}. Try Gaussian(), or "
                "ZeroInflatedLogNormal() for real numbers of at least 0."
            )
        return targets


@dataclass(frozen=True)
class Poisson(_Counts):
    r"""$p(y|f) = \prod_c \mu_c^{y_c} e^{-\mu_c}/y_c!$ with the link $\mu_c = e^{f_c + b_c}$, for counts 0, 1, ...

    Counts are not standardised: the level b is learned, from the logarithm of their mean on. Their variance is their
    mean: counts that vary more need ``NegativeBinomial``.
    """

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log mass of each count."""
        refuse_broadcast(targets, outputs)
        return -poisson_log_mass(self.log_rate(outputs, parameters), targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> CountForecast:
        """Return the mixture over weight samples."""
        return CountForecast(self.log_rate(outputs, parameters, 2), torch.zeros_like(outputs))


@dataclass(frozen=True)
class NegativeBinomial(_Counts):
    r"""Counts with the mean $\mu_c = e^{f_c + b_c}$, as ``Poisson`` has it, and the variance $\mu + \alpha\mu^2$.

    ``dispersion`` fixes $\alpha > 0$; by default one for all outputs is learned. A Poisson distribution whose rate
    varies (gamma, with the squared coefficient of variation $\alpha$) has these counts.
    """

    dispersion: float | None = None

    def __post_init__(self) -> None:
        if self.dispersion is not None:
            check_positive("dispersion", float(self.dispersion))
            object.__setattr__(self, "dispersion", float(self.dispersion))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the level and of the dispersion, unless it is fixed."""
        return (LOG_LEVEL, DISPERSION_RHO) if self.dispersion is None else (LOG_LEVEL,)

    def alpha(self, parameters: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Return the dispersion in the type of ``like``."""
        if self.dispersion is None:
            return F.softplus(parameters[DISPERSION_RHO]).to(like)
        return filled(self.dispersion, like)

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Return the levels, and the dispersion of all counts together, between 0.01 and 10, as if nothing were
        explained yet."""
        levels = super().initial_parameters(targets)
        if self.dispersion is not None:
            return levels
        axes = list(range(targets.ndim))
        mean = mean_of_present(targets, axes)
        variance = mean_of_present(targets.square(), axes) - mean.square()
        found = ((variance - mean) / mean.square().clamp_min(1e-12)).clamp(0.01, 10.0)
        return {**levels, DISPERSION_RHO: inverse_softplus(torch.where(mean > 0, found, 1.0))}

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log mass of each count."""
        refuse_broadcast(targets, outputs)
        return -negative_binomial_log_mass(self.log_rate(outputs, parameters), self.alpha(parameters, outputs), targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> CountForecast:
        """Return the mixture over weight samples."""
        dispersions = self.alpha(parameters, outputs).expand(outputs.shape)
        return CountForecast(self.log_rate(outputs, parameters, 2), dispersions)
