"""What a frame adds to the sums of ``lead_sums``: one frame at a time, in double precision, the night left out."""

from collections.abc import Mapping

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import refuse_non_finite
from metaprior.forecasts import GaussianForecast
from metaprior.solar.scores.lead_sums import PIT_BINS, SPREAD_COLUMNS

MASK = "leave such pixels out with daylight=..., or mend them: nothing is replaced silently"

COMPONENTS_AT_ONCE = 2**15
"""Components of mixtures that are worked on together: four quantiles of each are 1 MiB and stay near the core."""

SMALLEST_SSIM_FRAME = 11
"""Pixels of a side: the width of the window over which structural similarity compares (Wang et al. 2004)."""


class ScoredFrame:
    """One frame of targets (H, W) and which of its pixels are scored; ``where`` says in errors which frame it is."""

    def __init__(self, observed: Tensor, light: Tensor | None, where: str) -> None:
        self.light = None if light is None or bool(light.all()) else light.flatten()
        self.where = where
        self.shape = observed.shape
        self.observed = self._pixels(observed, "targets")

    def _pixels(self, values: Tensor, name: str) -> Tensor:
        """Scored pixels (..., M) of frames (..., H, W), in double precision and finite."""
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
        """All columns of this frame."""
        spread: list[float] = []
        if isinstance(forecast, GaussianForecast):
            means = self._pixels(forecast.means[:, *at], "forecast")
            scales = self._pixels(forecast.scales.expand_as(forecast.means)[:, *at], "forecast's scales")
            if not bool((scales > 0).all()):
                raise ValueError(f"forecast's scales {self.where}: all have to be positive, got {float(scales.min())}")
            predicted = means.mean(0)
            crps, spread = _spread_sums(means, scales, self.observed)
        else:
            predicted = self._pixels(forecast[at], "forecast")
            crps = float((predicted - self.observed).abs().sum())
        against = [self._squared(one[at], f"reference {name!r}") for name, one in references.items()]
        errors = _error_sums(predicted, self.observed)
        return [*errors, crps, *self._similarity(predicted, value_range), *against, *spread]

    def _squared(self, reference: Tensor, name: str) -> float:
        return float((self._pixels(reference, name) - self.observed).square().sum())

    def _similarity(self, predicted: Tensor, value_range: float) -> list[float]:
        """Only of a whole frame: what would stand in the holes would be compared too."""
        if self.light is not None:
            return [0, 0.0]
        return _similarity_sums(predicted.reshape(self.shape), self.observed.reshape(self.shape), value_range)


def _error_sums(predicted: Tensor, observed: Tensor) -> list[float]:
    """``values``, ``error``, ``absolute`` and ``squared`` of pixels (M,)."""
    error = predicted - observed
    return [len(error), float(error.sum()), float(error.abs().sum()), float(error.square().sum())]


def _similarity_sums(predicted: Tensor, observed: Tensor, value_range: float) -> list[float]:
    """``frames`` and ``ssim`` of one whole frame (H, W); a frame smaller than the window does not count."""
    # Here, because importing it takes as long as importing torch, and 100 MiB.
    from torchmetrics.functional.image import structural_similarity_index_measure

    if min(observed.shape) < SMALLEST_SSIM_FRAME:
        return [0, 0.0]
    # In single precision: torch's convolution in double takes 300 MiB for a frame of 256 x 256.
    pair = predicted[None, None].float(), observed[None, None].float()
    similarity = structural_similarity_index_measure(*pair, data_range=value_range)
    assert isinstance(similarity, Tensor)  # a pair only where more is asked for
    return [1, float(similarity)]


def _spread_sums(means: Tensor, scales: Tensor, observed: Tensor) -> tuple[float, list[float]]:
    """``crps``, and the sums of SPREAD_COLUMNS, of mixtures (S, M) at pixels (M,), in parts."""
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
    bins = (pit * PIT_BINS).long().clamp(max=PIT_BINS - 1)  # a transform of exactly 1 belongs to the last
    counts = torch.bincount(bins, minlength=PIT_BINS).double()
    return torch.cat([torch.stack([nll, ends[1] - ends[0], ends[3] - ends[2], variance]), counts])
