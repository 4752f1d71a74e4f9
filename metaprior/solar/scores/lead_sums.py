r"""Sums over the pixels of forecasts, and the measures that are functions of them.

Sums are vectors whose entries ``columns`` names. They are added over frames, tasks and processes, and each measure is a
function of them: $\mathrm{RMSE} = \sqrt{\texttt{squared}/\texttt{values}}$, and so on. So a measure of many tasks is
that of all their pixels together, and only sums are kept.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import refuse_non_finite
from metaprior.forecasts import GaussianForecast

PIT_BINS = 40
"""Equal bins of the probability integral transform: 0.025 wide, so that the ends of all LEVELS are edges."""

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Central intervals whose coverage the counts of the bins give exactly."""

POINT_COLUMNS = ("values", "error", "absolute", "squared", "crps", "frames", "ssim")
SPREAD_COLUMNS = ("nll", "width_50", "width_90", "variance", *(f"pit_{number}" for number in range(PIT_BINS)))
REFERENCE = "squared of "

MASK = "leave such pixels out with daylight=..., or repair them: nothing is replaced silently"

COMPONENTS_AT_ONCE = 2**15
"""Components of mixtures that are processed together: four quantiles of each are 1 MiB, which fits a core's cache."""

SMALLEST_SSIM_FRAME = 11
"""Pixels along each side: the width of the window of structural similarity (Wang et al. 2004)."""


def columns(references: Sequence[str], *, spread: bool) -> tuple[str, ...]:
    """Return the names of the sums of a forecast, in order; ``spread`` is False for point forecasts."""
    return (*POINT_COLUMNS, *(REFERENCE + name for name in references), *(SPREAD_COLUMNS if spread else ()))


def measures(sums: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """Return all measures, each of shape (...), of sums (..., K) with these columns; NaN where nothing was added."""
    column = dict(zip(names, sums.unbind(-1), strict=True))
    values = column["values"]
    rmse = (column["squared"] / values).sqrt()
    found = {"rmse": rmse, "mae": column["absolute"] / values, "bias": column["error"] / values}
    for name in names:
        if name.startswith(REFERENCE):
            of_reference = (column[name] / values).sqrt()
            found[f"skill_{name.removeprefix(REFERENCE)}"] = 1 - rmse / of_reference
    found |= {"ssim": column["ssim"] / column["frames"], "crps": column["crps"] / values}
    if "nll" in column:
        counts = torch.stack([column[f"pit_{number}"] for number in range(PIT_BINS)], -1)
        found["nll"] = column["nll"] / values
        for level in (50, 90):
            found[f"coverage_{level}"] = inside(counts, level / 100) / values
            found[f"width_{level}"] = column[f"width_{level}"] / values
        spread = (column["variance"] / values).sqrt()
        found |= {"spread": spread, "spread_error": spread / rmse}
    return found


def inside(counts: Tensor, level: float) -> Tensor:
    """Return how many of the counts in bins (..., PIT_BINS) lie in the central interval of one of the LEVELS."""
    outside = round((1 - level) / 2 * PIT_BINS)
    if not math.isclose(outside, (1 - level) / 2 * PIT_BINS, abs_tol=1e-9):
        raise ValueError(f"level must be one of {LEVELS}, at whose ends bins have edges, got {level}")
    return counts[..., outside : PIT_BINS - outside].sum(-1)


def frame_sums(
    forecast: GaussianForecast | Tensor,
    targets: Tensor,
    references: Mapping[str, Tensor],
    light: Tensor | None,
    at: tuple[int, int],
    value_range: float,
    where: str,
) -> list[float]:
    """Return all columns of the frame ``at`` a window and a lead time, in double precision.

    The forecast is (S, N, L, H, W) or a point forecast (N, L, H, W), targets and references are (N, L, H, W). ``light``
    (H, W) selects the pixels that are scored; None is all. ``where`` is the frame in words, for errors.
    """

    def pixels(values: Tensor, name: str) -> Tensor:
        flat = values.flatten(-2).to("cpu", torch.float64)
        chosen = flat if light is None else flat[..., light.flatten()]
        refuse_non_finite(chosen, f"{name} {where}", MASK)
        return chosen

    observed, spread = pixels(targets[at], "targets"), []
    if isinstance(forecast, GaussianForecast):
        means = pixels(forecast.means[:, *at], "forecast")
        scales = pixels(forecast.scales.expand_as(forecast.means)[:, *at], "forecast's scales")
        if not bool((scales > 0).all()):
            raise ValueError(f"forecast's scales {where} must be positive, got {float(scales.min())}")
        weights = forecast.weights
        own = None if weights is None else weights.expand(-1, len(targets), -1, -1, -1)[:, at[0], 0, 0].to(means)
        predicted = mixture.average(means, own)
        crps, *spread = _mixture_sums(means, scales, observed, own)
    else:
        predicted = pixels(forecast[at], "forecast")
        crps = float((predicted - observed).abs().sum())
    error = predicted - observed
    errors = [len(error), float(error.sum()), float(error.abs().sum()), float(error.square().sum())]
    against = [pixels(one[at], f"reference {name!r}") - observed for name, one in references.items()]
    shape, similarity = targets.shape[-2:], [0, 0.0]  # of frames with masked pixels or smaller than the window
    if light is None and min(shape) >= SMALLEST_SSIM_FRAME:
        similarity = [1, _structural_similarity(predicted.reshape(shape), observed.reshape(shape), value_range)]
    return [*errors, crps, *similarity, *(float(one.square().sum()) for one in against), *spread]


def _structural_similarity(predicted: Tensor, observed: Tensor, value_range: float) -> float:
    # Imported on use, because it takes as long as importing torch, and 100 MiB.
    from torchmetrics.functional.image import structural_similarity_index_measure

    # In single precision: torch's convolution in double precision takes 300 MiB for a frame of 256 x 256.
    one, other = (values[None, None].float() for values in (predicted, observed))
    return float(structural_similarity_index_measure(one, other, data_range=value_range))  # type: ignore[arg-type]


def _mixture_sums(means: Tensor, scales: Tensor, observed: Tensor, weights: Tensor | None) -> list[float]:
    """Return the sums of ``crps`` and SPREAD_COLUMNS of mixtures (S, M) at pixels (M,), computed in parts.

    ``weights`` (S, 1) are those of the components, None where they are samples.
    """
    total = torch.zeros(1 + len(SPREAD_COLUMNS), dtype=torch.float64)
    size = max(1, COMPONENTS_AT_ONCE // len(means))
    for part in zip(means.split(size, 1), scales.split(size, 1), observed.split(size), strict=True):
        ends = mixture.quantiles(*part[:2], [0.25, 0.75, 0.05, 0.95], weights).sum(1)
        pit = mixture.cumulative(*part, weights)
        bins = (pit * PIT_BINS).long().clamp(max=PIT_BINS - 1)  # a transform of exactly 1 belongs to the last bin
        scores = [mixture.crps(*part, weights).sum(), -mixture.log_density(*part, weights).sum()]
        sums = [*scores, ends[1] - ends[0], ends[3] - ends[2], mixture.variance(*part[:2], weights).sum()]
        total += torch.cat([torch.stack(sums), torch.bincount(bins, minlength=PIT_BINS).double()])
    return total.tolist()
