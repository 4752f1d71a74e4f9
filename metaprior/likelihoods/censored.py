"""A Gaussian clipped to limits: power that is zero at night and stops at the inverter's, a sensor that saturates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from metaprior import mixture
from metaprior.forecasts.censored import AT_LIMIT, CensoredForecast, log_normal_cdf
from metaprior.likelihoods.likelihood import refuse_broadcast
from metaprior.likelihoods.location_scale import (
    LocationScale,
    along_channels,
    filled,
    in_other_units,
    number_or_several,
)
from metaprior.scaling import TargetScale

BEYOND = 1e-5
"""Share of the targets' range that a target may lie beyond a limit, for rounding."""
Limit = float | tuple[float, ...] | None


@dataclass(frozen=True)
class CensoredGaussian(LocationScale):
    r"""$y = \min(\max(z, a), b)$ with $z \sim N(f, s^2)$: targets that a lower and an upper limit clip.

    $$-\log p(y|f) = \begin{cases} -\log\Phi\big((a - f)/s\big) & y = a\\ -\log\Phi\big((f - b)/s\big) & y = b\\
      -\log N(y; f, s^2) & \text{between}\end{cases}$$

    ``lower`` and ``upper`` are the limits a and b in the targets' own units, one number or one for each channel (axis
    1); None is no limit. A target beyond a limit raises. ``noise`` is as in ``Gaussian``, or "network".
    """

    lower: Limit = field(default=None, kw_only=True)
    upper: Limit = field(default=None, kw_only=True)

    continuous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lower", "upper"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number_or_several(getattr(self, name)))
        if self.lower is None and self.upper is None:
            raise ValueError("a limit must be given, got lower=None and upper=None. Try Gaussian() if there is none.")
        low, high = (-math.inf if self.lower is None else self.lower), (math.inf if self.upper is None else self.upper)
        if not bool(np.less(low, high).all()):
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}")

    def _limits(self, like: Tensor, ndim: int) -> tuple[Tensor, Tensor]:
        """Return the limits, infinite where there is none, to broadcast against targets of ``ndim`` axes."""
        low = filled(-math.inf if self.lower is None else self.lower, like)
        high = filled(math.inf if self.upper is None else self.upper, like)
        return along_channels(low, ndim), along_channels(high, ndim)

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log density between the limits, and the negative log mass at a limit."""
        location, scale = self.location_and_scale(outputs, parameters)
        refuse_broadcast(targets, location)
        low, high = self._limits(outputs, targets.ndim)
        at_low, at_high = targets - low <= AT_LIMIT * scale, high - targets <= AT_LIMIT * scale
        loss = -mixture.component_log_density(location, scale.expand_as(location), targets)
        if self.lower is not None:
            loss = torch.where(at_low, -log_normal_cdf((low - location) / scale), loss)
        if self.upper is not None:
            loss = torch.where(at_high, -log_normal_cdf((location - high) / scale), loss)
        return loss

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> CensoredForecast:
        """Return the mixture over weight samples."""
        location, scale = self.location_and_scale(outputs, parameters, channel_axis=2)
        limits = (limit.expand(location.shape) for limit in self._limits(outputs, location.ndim - 1))
        return CensoredForecast(location, scale.expand(location.shape), *limits)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets between the limits, in the network's shape, or raise."""
        targets = super().check_targets(targets, output_shape)
        known = targets[targets.isfinite()]
        if not len(known):
            return targets
        low, high = self._limits(torch.empty((), dtype=torch.float64, device=targets.device), targets.ndim)
        slack = BEYOND * (known.max() - known.min())
        beyond = (targets < low - slack) | (targets > high + slack)
        if bool(beyond.any()):
            raise ValueError(
                f"targets must lie between lower={self.lower} and upper={self.upper}, got {float(targets[beyond][0])}. "
                "Try y.clip(lower, upper), or other limits."
            )
        return targets

    def in_units_of(self, units: TargetScale) -> Self:
        """Return the likelihood with noise and limits in the units of standardised targets."""

        def limit(values: Limit) -> Limit:
            if values is None:
                return None
            like = torch.tensor(values, dtype=units.loc.dtype, device=units.loc.device)
            return in_other_units((like - units.loc.flatten()) / units.scale.flatten())

        return replace(super().in_units_of(units), lower=limit(self.lower), upper=limit(self.upper))
