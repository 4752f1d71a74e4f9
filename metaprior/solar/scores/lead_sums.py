r"""Sums over the pixels of forecasts, and the measures that are functions of them.

Sums are vectors whose entries ``columns`` names. They are added over frames, tasks and processes, and each measure is a
function of them: $\mathrm{RMSE} = \sqrt{\texttt{squared}/\texttt{values}}$, and so on. So a measure of many tasks is
that of all their pixels together, and only sums are kept.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

PIT_BINS = 40
"""Equal bins of the probability integral transform: 0.025 wide, so that the ends of all LEVELS are edges."""

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Central intervals whose coverage the counts of the bins give exactly."""

POINT_COLUMNS = ("values", "error", "absolute", "squared", "crps", "frames", "ssim")
SPREAD_COLUMNS = ("nll", "width_50", "width_90", "variance", *(f"pit_{number}" for number in range(PIT_BINS)))
REFERENCE = "squared of "


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
    return found | (_spread_measures(column, rmse) if "nll" in column else {})


def _spread_measures(column: dict[str, Tensor], rmse: Tensor) -> dict[str, Tensor]:
    values = column["values"]
    counts = torch.stack([column[f"pit_{number}"] for number in range(PIT_BINS)], -1)
    spread = (column["variance"] / values).sqrt()
    return {
        "nll": column["nll"] / values,
        "coverage_50": inside(counts, 0.5) / values,
        "width_50": column["width_50"] / values,
        "coverage_90": inside(counts, 0.9) / values,
        "width_90": column["width_90"] / values,
        "spread": spread,
        "spread_error": spread / rmse,
    }


def inside(counts: Tensor, level: float) -> Tensor:
    """Return how many of the counts in bins (..., PIT_BINS) lie in the central interval of one of the LEVELS."""
    outside = round((1 - level) / 2 * PIT_BINS)
    if not math.isclose(outside, (1 - level) / 2 * PIT_BINS, abs_tol=1e-9):
        raise ValueError(f"level must be one of {LEVELS}, at whose ends bins have edges, got {level}")
    return counts[..., outside : PIT_BINS - outside].sum(-1)
