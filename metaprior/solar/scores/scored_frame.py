"""The sums of one frame for ``lead_sums``, in double precision and without the night."""

from collections.abc import Mapping

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import refuse_non_finite
from metaprior.forecasts import GaussianForecast
from metaprior.solar.scores.lead_sums import PIT_BINS, SPREAD_COLUMNS

MASK = "leave such pixels out with daylight=..., or repair them: nothing is replaced silently"

COMPONENTS_AT_ONCE = 2**15
"""Components of mixtures that are processed together: four quantiles of each are 1 MiB, which fits a core's cache."""

SMALLEST_SSIM_FRAME = 11
"""Pixels along each side: the width of the window of structural similarity (Wang et al. 2004)."""


class ScoredFrame:
    """A frame of targets (H, W), the mask of the pixels that are scored, and its description for errors."""

    def __init__(self, observed: Tensor, light: Tensor | None, where: str) -> None:
        self.light = None if light is None or bool(light.all()) else light.flatten()
        self.where = where
        self.shape = observed.shape
        self.observed = self._pixels(observed, "targets")

    def _pixels(self, values: Tensor, name: str) -> Tensor:
        """Return the scored pixels (..., M) of frames (..., H, W) in double precision; raises if one is not finite."""
        flat = values.flatten(-2).to("cpu", torch.float64)
        chosen = flat if self.light is None else flat[..., self.light]
        refuse_non_finite(chosen, f"{name} {self.where}", MASK)
        return chosen

    def sums(
        self,
        forecast: GaussianForecast | Tensor,
        references: Mapping[str, Tensor],
        at: tuple[int, int],
        value_range: float,
    ) -> list[float]:
        """Return all columns of this frame, which is ``at`` this window and lead time of forecast and references."""
        spread: list[float] = []
        if isinstance(forecast, GaussianForecast):
            means = self._pixels(forecast.means[:, *at], "forecast")
            scales = self._pixels(forecast.scales.expand_as(forecast.means)[:, *at], "forecast's scales")
            if not bool((scales > 0).all()):
                raise ValueError(f"forecast's scales {self.where} must be positive, got {float(scales.min())}")
            predicted = means.mean(0)
            crps, spread = _spread_sums(means, scales, self.observed)
        else:
            predicted = self._pixels(forecast[at], "forecast")
            crps = float((predicted - self.observed).abs().sum())
        error = predicted - self.observed
        errors = [len(error), float(error.sum()), float(error.abs().sum()), float(error.square().sum())]
        frames = {name: self._pixels(one[at], f"reference {name!r}") for name, one in references.items()}
        against = [float((one - self.observed).square().sum()) for one in frames.values()]
        return [*errors, crps, *self._similarity(predicted, value_range), *against, *spread]

    def _similarity(self, predicted: Tensor, value_range: float) -> list[float]:
        """Return ``frames`` and ``ssim``; both are 0 for a frame with masked pixels or smaller than the window."""
        if self.light is not None or min(self.shape) < SMALLEST_SSIM_FRAME:
            return [0, 0.0]
        # Imported on use, because it takes as long as importing torch, and 100 MiB.
        from torchmetrics.functional.image import structural_similarity_index_measure

        # In single precision: torch's convolution in double precision takes 300 MiB for a frame of 256 x 256.
        one, other = (values.reshape(1, 1, *self.shape).float() for values in (predicted, self.observed))
        similarity = structural_similarity_index_measure(one, other, data_range=value_range)
        assert isinstance(similarity, Tensor)  # a tuple only with return_full_image
        return [1, float(similarity)]


def _spread_sums(means: Tensor, scales: Tensor, observed: Tensor) -> tuple[float, list[float]]:
    """Return ``crps`` and the sums of SPREAD_COLUMNS of mixtures (S, M) at pixels (M,), computed in parts."""
    crps, rest = 0.0, torch.zeros(len(SPREAD_COLUMNS), dtype=torch.float64)
    size = max(1, COMPONENTS_AT_ONCE // len(means))
    for part in zip(means.split(size, 1), scales.split(size, 1), observed.split(size), strict=True):
        crps += float(mixture.crps(*part).sum())
        rest += _spread_of_part(*part)
    return crps, rest.tolist()


def _spread_of_part(means: Tensor, scales: Tensor, observed: Tensor) -> Tensor:
    nll = -mixture.log_density(means, scales, observed).sum()
    ends = mixture.quantiles(means, scales, [0.25, 0.75, 0.05, 0.95]).sum(1)
    variance = mixture.variance(means, scales).sum()
    pit = mixture.cumulative(means, scales, observed)
    bins = (pit * PIT_BINS).long().clamp(max=PIT_BINS - 1)  # a transform of exactly 1 belongs to the last bin
    counts = torch.bincount(bins, minlength=PIT_BINS).double()
    return torch.cat([torch.stack([nll, ends[1] - ends[0], ends[3] - ends[2], variance]), counts])
