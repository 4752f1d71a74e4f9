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
from metaprior.likelihoods.location_scale import filled
from metaprior.missing import mean_of_present
from metaprior.weights import inverse_softplus

DISPERSION_RHO = "likelihood.dispersion_rho"  # plain parameter: dispersion = softplus(rho)
LINEAR_FROM = 20.0
"""Output from which on the rate grows linearly: its exponential would soon leave the floating-point numbers."""


def log_rate_of(outputs: Tensor) -> Tensor:
    r"""Return $\log\mu$ of the log link: $\mu = e^f$, continued linearly, with the same slope, above f = 20."""
    return outputs.clamp_max(LINEAR_FROM) + (outputs - LINEAR_FROM).clamp_min(0.0).log1p()


def _check_counts(targets: Tensor, output_shape: torch.Size) -> Tensor:
    targets = match_continuous(targets, tuple(output_shape[1:]), "").double()
    known = targets[targets.isfinite()]
    wrong = known[(known < 0) | (known != known.floor())]
    if len(wrong):
        raise ValueError(
            f"counts must be integers of at least 0, got {float(wrong[0])}. Try Gaussian(), or ZeroInflatedLogNormal() "
            "for real numbers of at least 0."
        )
    return targets


@dataclass(frozen=True)
class Poisson(Likelihood):
    r"""$p(y|f) = \prod_c \mu_c^{y_c} e^{-\mu_c}/y_c!$ with the log link $\mu = e^f$, for counts y = 0, 1, 2, ...

    Counts are not standardised. Their variance is their mean: counts that vary more need ``NegativeBinomial``.
    """

    continuous: ClassVar[bool] = False

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log mass of each count."""
        refuse_broadcast(targets, outputs)
        return -poisson_log_mass(log_rate_of(outputs), targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> CountForecast:
        """Return the mixture over weight samples."""
        return CountForecast(log_rate_of(outputs), torch.zeros_like(outputs))

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return counts in the outputs' shape, or raise."""
        return _check_counts(targets, output_shape)


@dataclass(frozen=True)
class NegativeBinomial(Likelihood):
    r"""Counts with the mean $\mu = e^f$ and the variance $\mu + \alpha\mu^2$.

    ``dispersion`` fixes $\alpha > 0$; by default one for all outputs is learned. A Poisson distribution whose rate
    varies (gamma, with the squared coefficient of variation $\alpha$) has these counts.
    """

    dispersion: float | None = None

    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.dispersion is not None:
            check_positive("dispersion", float(self.dispersion))
            object.__setattr__(self, "dispersion", float(self.dispersion))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The name of the dispersion, unless it is fixed."""
        return (DISPERSION_RHO,) if self.dispersion is None else ()

    def alpha(self, parameters: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Return the dispersion in the type of ``like``."""
        if self.dispersion is None:
            return F.softplus(parameters[DISPERSION_RHO]).to(like)
        return filled(self.dispersion, like)

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Return the dispersion of all counts together, between 0.01 and 10, as if nothing were explained yet."""
        if self.dispersion is not None:
            return {}
        axes = list(range(targets.ndim))
        mean = mean_of_present(targets, axes)
        variance = mean_of_present(targets.square(), axes) - mean.square()
        found = ((variance - mean) / mean.square().clamp_min(1e-12)).clamp(0.01, 10.0)
        return {DISPERSION_RHO: inverse_softplus(torch.where(mean > 0, found, 1.0))}

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log mass of each count."""
        refuse_broadcast(targets, outputs)
        return -negative_binomial_log_mass(log_rate_of(outputs), self.alpha(parameters, outputs), targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> CountForecast:
        """Return the mixture over weight samples."""
        return CountForecast(log_rate_of(outputs), self.alpha(parameters, outputs).expand(outputs.shape))

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return counts in the outputs' shape, or raise."""
        return _check_counts(targets, output_shape)
