"""Student's t: for errors with heavier tails than a Gaussian's, such as those of a sensor with glitches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.forecasts.student import StudentTForecast, student_log_density
from metaprior.likelihoods.likelihood import refuse_broadcast
from metaprior.likelihoods.location_scale import LocationScale, filled
from metaprior.weights import inverse_softplus

FREEDOM_RHO = "likelihood.freedom_rho"  # plain parameter: freedom = LEAST_FREEDOM + softplus(rho)
LEAST_FREEDOM, FIRST_FREEDOM = 2.1, 5.0
"""Bound and first value of learned degrees of freedom: at two and below there is no variance."""


@dataclass(frozen=True)
class StudentT(LocationScale):
    r"""$p(y|f) = \prod_c t_\nu(y_c; f_c, s_c)$: a single far target moves the fit less than with a Gaussian.

    The scale s is ``noise``, as in ``Gaussian``: learned by default, fixed, or with ``noise="network"`` the second half
    of the outputs' channels. It is not the standard deviation, which is $s\sqrt{\nu/(\nu - 2)}$. ``freedom`` fixes the
    degrees of freedom $\nu > 2$; by default they are learned, from 5 and never below 2.1; large ones are a Gaussian's.
    """

    freedom: float | None = field(default=None, kw_only=True)

    continuous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.freedom is None:
            return
        if not 2 < float(self.freedom) < float("inf"):
            raise ValueError(
                f"freedom must be above 2, so that forecasts have a standard deviation, got {self.freedom}. "
                "Try freedom=3, or None to learn it."
            )
        object.__setattr__(self, "freedom", float(self.freedom))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the scale and of the degrees of freedom, unless they are fixed."""
        return (*super().parameter_names, *((FREEDOM_RHO,) if self.freedom is None else ()))

    def degrees(self, parameters: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Return the degrees of freedom in the type of ``like``."""
        if self.freedom is None:
            return LEAST_FREEDOM + F.softplus(parameters[FREEDOM_RHO]).to(like)
        return filled(self.freedom, like)

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Return the first scale, and five degrees of freedom."""
        found = super().initial_parameters(targets)
        if self.freedom is None:
            found[FREEDOM_RHO] = inverse_softplus(torch.full_like(targets.flatten()[0], FIRST_FREEDOM - LEAST_FREEDOM))
        return found

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log density of each target."""
        location, scale = self.location_and_scale(outputs, parameters)
        refuse_broadcast(targets, location)
        return -student_log_density((targets - location) / scale, scale, self.degrees(parameters, outputs))

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> StudentTForecast:
        """Return the mixture over weight samples."""
        location, scale = self.location_and_scale(outputs, parameters, channel_axis=2)
        degrees = self.degrees(parameters, outputs).reshape([1] * location.ndim)
        return StudentTForecast(location, scale.expand(location.shape), degrees.expand(location.shape))
