"""Quantiles at given levels, learned with the pinball loss: no assumption about the shape of the distribution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from metaprior.checks import check_positive
from metaprior.forecasts.quantiles import QuantileForecast, ordered_points
from metaprior.likelihoods.likelihood import Likelihood, refuse_broadcast
from metaprior.likelihoods.location_scale import match_channels


@dataclass(frozen=True)
class Quantiles(Likelihood):
    r"""Quantiles $q_1 < \dots < q_K$ at the levels $p_k$, with the pinball loss in place of $-\log p$:

    $$w\,\frac2K \sum_k \max\big(p_k (y - q_k),\ (p_k - 1)(y - q_k)\big)$$

    (Koenker & Bassett 1978). Twice the mean of the pinball loss over all levels is the CRPS, and as with
    ``CRPSGaussian`` a loss in place of a log-likelihood gives a generalised posterior (Bissiri, Holmes & Walker 2016):
    ``weight`` is w, the nats that a unit of loss counts.

    The network gives the middle quantile and K - 1 raw gaps between neighbours, $\mathrm{softplus}(\text{raw}) +
    g_{\min}$, so that quantiles cannot cross: K C output channels for C target channels (axis 1). The forecast is
    linear between the levels with exponential tails beyond them; its ``log_prob`` is the density of this
    interpolation, which is scored but was not trained.
    """

    levels: Sequence[float] = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
    weight: float = 10.0
    min_gap: float = 1e-3

    continuous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        levels = tuple(float(level) for level in self.levels)
        if len(levels) < 2 or not all(low < high for low, high in pairwise((0.0, *levels, 1.0))):
            raise ValueError(f"levels must be at least two, ascending and between 0 and 1, got {levels}")
        object.__setattr__(self, "levels", levels)
        for name in ("weight", "min_gap"):
            check_positive(name, float(getattr(self, name)))
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def outputs_per_target(self) -> int:
        """One for each level."""
        return len(self.levels)

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted pinball loss of each target, the mean over levels."""
        lowest, gaps = ordered_points(outputs.chunk(len(self.levels), 1), self.min_gap)
        refuse_broadcast(targets, lowest)
        quantile, loss = lowest, torch.zeros_like(lowest)
        for number, level in enumerate(self.levels):
            error = targets - quantile
            loss = loss + torch.maximum(level * error, (level - 1) * error)
            if number < len(self.levels) - 1:
                quantile = quantile + gaps[..., number]
        return self.weight * 2 / len(self.levels) * loss

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> QuantileForecast:
        """Return the mixture over weight samples."""
        lowest, gaps = ordered_points(outputs.chunk(len(self.levels), 2), self.min_gap)
        return QuantileForecast(lowest, gaps, tuple(self.levels))

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets for outputs with one channel for each level, or raise."""
        return match_channels(self, targets, output_shape, f"{len(self.levels)} quantiles")
