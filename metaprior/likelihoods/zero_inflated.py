"""Values at or above zero, of which some are exactly zero: rain, sales, power in the dark."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.checks import keep_positive
from metaprior.forecasts.zero_inflated import ZeroInflatedForecast, zero_inflated_log_density
from metaprior.likelihoods.likelihood import Likelihood, refuse_broadcast
from metaprior.likelihoods.location_scale import match_channels


@dataclass(frozen=True)
class ZeroInflatedLogNormal(Likelihood):
    r"""Exactly zero with probability $p_0$; otherwise the logarithm of y is $N(m, s^2)$.

    $$-\log p(y|f) = \begin{cases}-\log p_0 & y = 0\\
      -\log(1 - p_0) + \log y - \log N(\log y; m, s^2) & y > 0\end{cases}$$

    The network gives the logit of $p_0$, m and a raw scale, $s = \mathrm{softplus}(\text{raw}) + s_{\min}$: 3C output
    channels for C target channels (axis 1), in this order. With ``standardize=True`` targets are divided by their root
    mean square and not centred, so that a zero stays a zero.
    """

    min_scale: float = 1e-3

    continuous: ClassVar[bool] = True
    keeps_zero: ClassVar[bool] = True

    def __post_init__(self) -> None:
        keep_positive(self)

    @property
    def outputs_per_target(self) -> int:
        """Three: a logit, a mean and a scale."""
        return 3

    def parts(self, outputs: Tensor, channel_axis: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits of zeros, and means and scales of logarithms."""
        logits, means, raw = outputs.chunk(3, channel_axis)
        return logits, means, F.softplus(raw) + self.min_scale

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log mass of a zero, or the negative log density of a positive value."""
        parts = self.parts(outputs, 1)
        refuse_broadcast(targets, parts[0])
        return -zero_inflated_log_density(*parts, targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> ZeroInflatedForecast:
        """Return the mixture over weight samples."""
        return ZeroInflatedForecast(*self.parts(outputs, 2))

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets of at least zero, with a third of the outputs' channels, or raise."""
        targets = match_channels(self, targets, output_shape, "a logit, a mean and a scale")
        if bool((targets < 0).any()):
            least = float(targets[self.present(targets)].min())
            raise ValueError(f"targets must be at least 0, got {least}. Try CensoredGaussian(lower=...), or y.clip(0).")
        return targets
