"""From an archive of frames to its next frames: check on earlier moments, adapt if asked, forecast, and say how sure.

found = nowcast_archive(open_frames("archive.nc", missing="keep"))
found.forecast.mean[0]  # (4, H, W), in the units of the frames
print(summary(found))
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.nowcast.adapting import STEPS, adapted
from metaprior.solar.maps.nowcast.backtest import Backtest, backtest
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.blocks import LARGEST, blocks_of
from metaprior.solar.maps.nowcast.earlier import earlier_moments, spread_moments
from metaprior.solar.maps.nowcast.forecaster import Nowcaster
from metaprior.solar.maps.nowcast.inputs import INPUTS, LEADS, filled
from metaprior.solar.maps.nowcast.moments import Moments, Rows
from metaprior.solar.maps.windows import utc
from metaprior.text_table import counted

CHECKED, LEARNED = 8, 10
"""Earlier moments on which a forecast is checked, and from which it learns if asked."""
LEAST_LEARNED = 3
"""Earlier moments without which nothing is learned."""
FEW_DAYS = 3
"""With moments of fewer days, at least half of a forecast is that of the networks as they were."""
FEW_SHARE = 0.5
LATEST = 300
"""Frames from the end of an archive among which the last with anything to see is looked for."""
LOW_SUN, LOW_SHARE = 10.0, 0.05
"""Degrees below which the sun is called low, and the share of the forecast in which this is said."""
FIRST_LIGHT = 0.25
"""Brightness of the earlier frames in shares of the last one's below which it is first light."""
TRAINED_MINUTES = (5.0, 60.0)
"""Cadences of the simulated worlds."""


@dataclass(frozen=True, eq=False)
class Nowcast:
    """A forecast of an archive, and what is known about it.

    Args:
        forecast: Distribution of the next frames, (1, L, H, W).
        forecaster: The networks that made it, with the factors of their spread.
        window: What was seen.
        issued: Time of the last frame seen.
        moments: The archive.
        checked: Scores of earlier moments, or None without any.
        assumed: What was assumed, in sentences.
        trusted: How far to trust it, in sentences.
    """

    forecast: GaussianForecast
    forecaster: Nowcaster
    window: Batch
    issued: np.datetime64
    moments: Moments
    checked: Backtest | None
    assumed: Sequence[str]
    trusted: Sequence[str]

    @property
    def valid(self) -> list[np.datetime64]:
        """Times that the maps are for."""
        return [self.issued + (lead + 1) * self.moments.step for lead in range(LEADS)]


def nowcast_archive(
    frames: xr.DataArray,
    *,
    at: np.datetime64 | str | None = None,
    adapt: bool = False,
    forecaster: Nowcaster | None = None,
    checked: int = CHECKED,
    progress: bool = False,
) -> Nowcast:
    """Return the forecast that follows a frame of an archive.

    Args:
        frames: Frames of ``open_frames``.
        at: Time of the last frame seen (UTC); the default is the archive's last at which a forecast can be issued.
        adapt: Whether the networks learn from earlier moments first, which takes about a minute.
        forecaster: The default is the prior of the package.
        checked: Most earlier moments on which the forecast is checked and its spread is fitted.
        progress: Whether to show progress bars.
    """
    prior = forecaster or Nowcaster.pretrained()
    moments = Moments(frames)
    position = _position(moments, at)
    issued, window = moments.times[position], moments.batch(position)
    later = "" if at is not None or issued == moments.times[-1] else utc(moments.times[-1])
    made = adapted_to(prior, moments, issued, progress=progress) if adapt else None
    told = [] if made or not adapt else [f"fewer than {LEAST_LEARNED} earlier moments to learn from: nothing was"]
    made = made or checked_on(prior, moments, issued, checked)
    if later:
        told.append(
            f"the archive goes on until {later}, after the last frame that shows something and follows others without "
            "a gap; at chooses another"
        )
    own, assumed = calibrated(made), [made.told, *told, *_assumed(moments, window)]
    trusted = _trusted(window, made.checked)
    if not moments.has_structure(position):
        trusted.insert(0, "the last frame seen shows almost nothing (night, or one value), so there is nothing to move")
    return Nowcast(own.predict(window), own, window, issued, moments, made.checked, assumed, trusted)


class Made(NamedTuple):
    """A forecaster with its trained spread, its scores at earlier moments, and how it was made."""

    forecaster: Nowcaster
    checked: Backtest | None
    told: str


def calibrated(made: Made) -> Nowcaster:
    """Return the forecaster with the spread that holds at the earlier moments.

    Moments of few days cannot make it narrower: the weather of an afternoon need not go on.
    """
    if made.checked is None:
        return made.forecaster
    least = 0.0 if days_of(made.checked) >= FEW_DAYS else 1.0
    factors = zip(made.forecaster.factors, made.checked.factors, strict=True)
    return made.forecaster.with_factors([trained * max(found, least) for trained, found in factors])


def days_of(checked: Backtest) -> int:
    """Return the number of days of the earlier moments."""
    return len(np.unique(checked.times.astype("datetime64[D]")))


def checked_on(prior: Nowcaster, moments: Moments, issued: np.datetime64, most: int = CHECKED) -> Made:
    """Return the prior as it is, with its scores at moments like the present one."""
    earlier = earlier_moments(moments, issued, most)
    known = ", ".join(prior.told) or "data that they do not tell"
    told = f"the networks were trained on {known}; nothing was learned from this archive now"
    if not len(earlier):
        return Made(prior, None, told)
    past = windows_of(moments, earlier)
    result = backtest([prior.predict(one) for one in past], past, moments.times[earlier])
    return Made(prior, result, told)


def windows_of(moments: Moments, positions: NDArray[np.int64]) -> list[Batch]:
    """Return the windows at some moments: of large frames one block each, in turn, so that they fit in memory."""
    blocks = [Moments(moments.frames, Rows(*block)) for block in blocks_of(*moments.shape)]
    if len(blocks) == 1:
        return [moments.batch(int(one)) for one in positions]
    shown = [block for block in blocks if block.has_structure(int(positions[-1]))] or blocks
    return [shown[number % len(shown)].batch(int(one)) for number, one in enumerate(positions)]


def adapted_to(
    prior: Nowcaster,
    moments: Moments,
    issued: np.datetime64,
    *,
    most: int = LEARNED,
    steps: int = STEPS,
    progress: bool = False,
) -> Made | None:
    """Return networks that have learned from earlier moments, or None if there are too few."""
    earlier = spread_moments(moments, issued, most)
    if len(earlier) < LEAST_LEARNED:
        return None
    past = windows_of(moments, earlier)
    days = len(np.unique(moments.times[earlier].astype("datetime64[D]")))
    found = adapted(prior, past, most=1.0 if days >= FEW_DAYS else FEW_SHARE, steps=steps, progress=progress)
    first, last = utc(moments.times[earlier[0]]), utc(moments.times[earlier[-1]])
    told = f"the networks have learned from {counted(len(past), 'window')} of {first} to {last}"
    if found.share == 0:
        told += ", but that did not help on windows held back, so the forecast is that of the networks as they were"
    elif found.share < 1:
        told += f"; their share in the forecast is {100 * found.share:.0f} %, the rest is of the networks as they were"
    return Made(found.forecaster, backtest(found.held_out, past, moments.times[earlier]), told)


def _position(moments: Moments, at: np.datetime64 | str | None) -> int:
    """Return the position of issue; raise ValueError if none is possible there."""
    possible = moments.possible()
    if not len(possible):
        raise ValueError(
            f"{moments.source}: there must be {INPUTS} frames in a row, {moments.step_text} apart, got none; a "
            "forecast sees the last frames. Try another cadence=, or look at the archive with: metaprior inspect"
        )
    if at is None:
        lit = (int(one) for one in possible[::-1][:LATEST] if moments.has_structure(int(one)))
        return next(lit, int(possible[-1]))
    wanted = np.asarray(at, "datetime64[ns]")
    found = possible[moments.times[possible] == wanted]
    if not len(found):
        nearest = possible[np.abs(moments.times[possible] - wanted).argmin()]
        raise ValueError(
            f"at must be the time of a frame with {INPUTS - 1} frames directly before it, got {at}. The nearest is "
            f"{utc(moments.times[nearest])}"
        )
    return int(found[0])


def _assumed(moments: Moments, window: Batch) -> list[str]:
    """Return what was assumed about the archive."""
    told = [f"frames are {moments.step_text} apart"]
    if not TRAINED_MINUTES[0] <= moments.minutes <= TRAINED_MINUTES[1]:
        told.append("the simulated worlds had frames 5 to 60 minutes apart, so this is outside of what was learned")
    sun, days = bool(window.known.sine.isfinite().any()), bool(window.known.typical.isfinite().any())
    told.append("the sun's elevation follows from coordinates" if sun else "coordinates are not known, nor is the sun")
    told.append(
        "frames at this time of earlier days show the ground" if days else "there are no earlier days to compare"
    )
    if max(moments.shape) > LARGEST:
        told.append(f"frames are forecast in blocks of at most {LARGEST} pixels a side, earlier moments one block each")
    present = window.frames.isfinite()
    whole = int((~present.flatten(2).any(2)).sum())
    if whole:
        told.append(f"the archive lacks {whole} of the {INPUTS} frames to be seen")
    absent = float((~present).float().mean())
    if absent:
        told.append(f"{100 * absent:.2g} % of the values seen are missing; they count as the last known ones")
    return told


def _trusted(window: Batch, result: Backtest | None) -> list[str]:
    """Return how far the forecast can be trusted."""
    told = []
    if result is None:
        told.append(
            "nothing in the archive is early enough to check the forecast on, so its bands are those of the "
            "training: on products not seen, 90 % bands held 77 to 94 %"
        )
    else:
        days, inside = days_of(result), result.coverage()
        told.append(
            f"at {counted(len(result.times), 'earlier moment')} of {counted(days, 'day')}, 90 % bands held "
            f"{_percent(inside)} of the values"
        )
        if days < FEW_DAYS:
            told.append("that is little to go by: expect bands to hold 80 to 97 %, less if the weather changes")
    if is_first_light(window):
        told.append("most of what was seen is dark: at first light a forecast knows little, and its bands may not hold")
    low = window.known.sine[:, INPUTS:]
    if bool(low.isfinite().any()):
        share = float((low < math.sin(math.radians(LOW_SUN))).float().mean())
        if share > LOW_SHARE:
            told.append(
                f"the sun is lower than {LOW_SUN:g} degrees in {100 * share:.0f} % of the forecast: trust it less there"
            )
    return told


def _percent(shares: NDArray[np.float64]) -> str:
    """Return the lowest and highest share of the lead times in per cent."""
    low, high = (f"{100 * share:.0f}" for share in (shares.min(), shares.max()))
    return f"{low} %" if low == high else f"{low} (worst lead time) to {high} %"


def is_first_light(window: Batch) -> bool:
    """Return whether the frames before the last are dark beside it, or all of them are."""
    values, _ = filled(window.frames)
    seen = (values - values.amin().clamp_max(0.0)).mean((0, 2, 3))
    return float(seen[:-1].mean()) <= FIRST_LIGHT * float(seen[-1])


def summary(found: Nowcast) -> str:
    """Return what was assumed, and how far to trust a forecast, as text."""
    return "\n".join([*(f"- {one}" for one in found.assumed), *(f"- {one}" for one in found.trusted)])
