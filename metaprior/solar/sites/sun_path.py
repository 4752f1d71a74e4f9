r"""The sun's path over a plant from its power alone: latitude and solar time, with their uncertainty.

Light is safer evidence than the height of the power: which way the modules face moves the peak by hours, but power at
all needs the sun. An interval is *lit* if its power exceeds a small share of the plant's own range. With $e$ the
elevation of the sun at the brighter end of the interval and $h$ the elevation at which the plant starts to deliver,

$$P(\text{lit} \mid e) = \epsilon_0 + (1 - \epsilon_0 - \epsilon_1)\,\sigma((e - h) / w),$$

where $h$ is one unknown number for the mornings and another for the evenings (horizon, trees, the inverter's
threshold, the mean over an hour that is dark in part), $\epsilon_0$ is the probability of power at night and
$\epsilon_1$ that of none by day (outages, snow). Latitude, solar offset and both $h$ have a prior on a grid; the sum
over the grid is the exact posterior of that model. The days of a plant share their errors, so the log-likelihood is
multiplied by $1 / (1 + \text{days} / D)$.

The log-likelihood is a matrix product. Intervals are counted, lit and not lit, by declination of the sun and by time of
day (equation of time included), so a year costs little more than a month; these counts, seen from a candidate noon,
multiply a table of log P for every latitude and every $h$.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.sun_position import Floats, Times, declination_and_equation_of_time, hours_of_day

Bools = NDArray[np.bool_]
Single = NDArray[np.float32]

LIT_SHARE = 0.005
"""Power above the night's level, as a share of the plant's range, from which an interval is lit."""
LIT_AT_NIGHT, DARK_BY_DAY, WIDTH = 0.003, 0.03, 0.8
"""The error rates epsilon_0 and epsilon_1, and the width w in degrees."""
SHARED_DAYS = 5.0
"""Days D from which more of them say little new: their errors (shade, clouds in the morning) repeat."""

LATITUDES = np.arange(-65.0, 65.1, 2.5)
STARTS = np.array([0.5, 1.5, 2.5, 3.7, 5.0, 6.5, 8.2, 10.2, 13.0, 17.0, 22.0])
"""Grid of h in degrees."""
START_MEDIAN, START_SPREAD = {900: 4.3, 1800: 5.0, 3600: 6.0}, 0.45
"""Median of the prior of h by the length of an interval, and the standard deviation of log h."""
PLACES = ((0.60, 38.0, 11.0), (0.15, 10.0, 13.0), (0.25, -29.0, 11.0))
"""Prior of the latitude of plants: weight, mean and standard deviation of normal distributions."""

SLOT = 600
"""Seconds of a slot of the day, the grid of the solar offset."""
SLOTS = 86400 // SLOT
NOONS = np.arange(-18, 19)
"""Candidate noons in slots from the middle of the light."""
DECLINATIONS = np.arange(-23.25, 23.3, 1.5)
"""Centres of the bins of the sun's declination in degrees."""

GROUP = 32
"""Plants that are estimated at once; it bounds the memory."""

AMBIGUOUS = 0.1
"""Posterior probability of the less probable hemisphere from which the hemisphere is called undecided."""
WIDE = 8.0
"""Standard deviation of the latitude in degrees from which it is called not identified."""


@dataclass(frozen=True)
class SunPath:
    """Latitude and solar offset of plants with standard deviations; arrays (plants,) or numbers for one plant.

    Args:
        latitude: Posterior mean in degrees north.
        latitude_sd: Its standard deviation.
        solar_offset: Posterior mean of the mean solar time minus the time of the stamps, in hours, -12 to 12. For
            stamps in UTC it is the longitude divided by 15; the mean solar noon is at 12 minus it on their clock.
        solar_offset_sd: Its standard deviation.
        south: Posterior probability of the southern hemisphere.
        lit_days: Number of days with light on which the estimate rests.

    A standard deviation of zero says that the value was given, not estimated.
    """

    latitude: Floats
    latitude_sd: Floats
    solar_offset: Floats
    solar_offset_sd: Floats
    south: Floats
    lit_days: Floats

    def __getitem__(self, plant: int) -> "SunPath":
        """Return the path over one plant of several."""
        return SunPath(*(np.asarray(value)[plant] for value in vars(self).values()))

    def __str__(self) -> str:
        """Describe for one plant what was found, from how much, and what remains undecided."""
        if self.lit_days == 0 and self.solar_offset_sd > 0:
            return "the power has no light: the sun's path is not known"
        minutes = round((12.0 - float(self.solar_offset)) % 24.0 * 60.0) % 1440
        noon = f"solar noon at {minutes // 60:02d}:{minutes % 60:02d} of the stamps"
        text = f"{noon} {_spread(60.0 * float(self.solar_offset_sd), 'minutes')}, latitude {float(self.latitude):.0f} "
        text += _spread(float(self.latitude_sd), "degrees")
        if min(float(self.south), 1.0 - float(self.south)) > AMBIGUOUS:
            return f"{text}; the hemisphere is undecided (south with probability {float(self.south):.2f})"
        return f"{text}; the latitude is hardly identified" if self.latitude_sd > WIDE else text


def _spread(sd: float, unit: str) -> str:
    return f"(+- {sd:.0f} {unit})" if sd else "(given)"


def estimate_sun_path(power: Floats, times: Times, step: int) -> SunPath:
    """Return the sun's path over plants from their power.

    Args:
        power: Mean power of intervals in any unit, (T,) for one plant or (plants, T); NaN where it is not known or
            doubtful. An outage that is not masked looks like a short day.
        times: Begins of the intervals on the clock of the stamps, (T,) or (plants, T).
        step: Length of an interval in seconds. Intervals below 15 minutes are averaged to 15 minutes.

    Returns:
        Numbers for (T,), else arrays (plants,). Without any light they are those of the prior.
    """
    values = np.atleast_2d(np.asarray(power, np.float64))
    begins = np.broadcast_to(times.astype("datetime64[s]"), values.shape)
    if step < 900:
        values, begins, step = _quarters(values, begins, step)
    lit, known, days = _lit(values, begins)
    groups = [slice(first, first + GROUP) for first in range(0, len(values), GROUP)]
    parts = [_posterior(lit[group], known[group], begins[group], days[group], step) for group in groups]
    path = SunPath(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return path[0] if np.ndim(power) == 1 else path


def plant_sun_path(plant: Plant) -> SunPath:
    """Return the sun's path over a plant: what is known of its place, and an estimate of what is not."""
    path = estimate_sun_path(plant.usable, plant.times, plant.step)
    exact = np.asarray(0.0)
    if plant.latitude is not None:
        latitude = np.asarray(plant.latitude)
        path = replace(path, latitude=latitude, latitude_sd=exact, south=(latitude < 0) * np.ones(()))
    if plant.longitude is not None and plant.zone_known:
        path = replace(path, solar_offset=np.asarray(plant.longitude / 15.0), solar_offset_sd=exact)
    return path


def _quarters(values: Floats, begins: Times, step: int) -> tuple[Floats, Times, int]:
    """Return means of 15 minutes; the last incomplete one is left out."""
    per = 900 // step
    count = values.shape[1] // per
    cut = values[:, : count * per].reshape(len(values), count, per)
    known = np.isfinite(cut)
    total = np.where(known, cut, 0.0).sum(2)
    enough = known.sum(2)
    return (
        np.where(2 * enough >= per, total / np.maximum(enough, 1), np.nan),
        begins[:, : count * per : per],
        per * step,
    )


def _lit(values: Floats, begins: Times) -> tuple[Bools, Bools, Floats]:
    """Return which intervals are lit and which are known, (plants, T), and the number of days with light, (plants,).

    The night's level is the 5 % quantile and the range reaches to the 98 % quantile. Days without light tell of an
    outage or of snow, not of the sun; they are not known.
    """
    known = np.isfinite(values)
    ordered, last = np.sort(values, axis=1), np.maximum(known.sum(1) - 1, 0)
    plants = np.arange(len(values))
    night, high = (ordered[plants, (share * last).astype(int)][:, None] for share in (0.05, 0.98))
    lit = known & (values > np.maximum(night + LIT_SHARE * (high - night), 0.0))
    day = (begins - begins[:, :1]).astype(np.int64) // 86400
    count = np.zeros((len(values), int(day.max(initial=0)) + 1))
    rows = np.broadcast_to(plants[:, None], day.shape)
    np.add.at(count, (rows[lit], day[lit]), 1.0)
    return lit, known & (count[rows, day] > 0), (count > 0).sum(1).astype(np.float64)


def _posterior(lit: Bools, known: Bools, begins: Times, days: Floats, step: int) -> tuple[Floats, ...]:
    """Return the columns of a ``SunPath`` for plants whose intervals are lit or not."""
    declination, equation = declination_and_equation_of_time(begins)
    clock = (hours_of_day(begins) + equation) * (3600.0 / SLOT)  # slots since midnight of the apparent time, plants x T
    middle = _middle_of_light(lit & known, clock + 0.5 * step / SLOT)
    noons = middle[:, None] + NOONS
    counts = _counts(lit, known, np.degrees(declination), clock)
    likelihood = np.zeros((2, len(lit), len(NOONS), LATITUDES.size * STARTS.size), np.float32)
    table = _log_probability(step)
    for bin_ in np.flatnonzero(counts.any(axis=(0, 2, 3))):
        some = np.flatnonzero(counts[:, bin_].any(axis=(1, 2)))
        seen = (noons[some, :, None] + np.arange(-SLOTS // 2, SLOTS // 2)) % SLOTS
        windows = counts[some[:, None, None], bin_, :, seen]  # plants, noons, slots from noon - 12 h on, lit or not
        for side in (0, 1):
            half = windows[:, :, side * (SLOTS // 2) : (side + 1) * (SLOTS // 2)]
            likelihood[side, some] += half.reshape(*half.shape[:2], -1) @ table[bin_, side]
    tempered = likelihood.astype(np.float64) / (1.0 + days / SHARED_DAYS)[:, None, None]
    per_start = tempered.reshape(2, len(lit), len(NOONS), LATITUDES.size, STARTS.size) + _start_log_prior(step)
    joint = np.logaddexp.reduce(per_start, axis=-1).sum(0) + _latitude_log_prior()  # plants, noons, latitudes
    joint = np.exp(joint - joint.max(axis=(1, 2), keepdims=True))
    joint /= joint.sum(axis=(1, 2), keepdims=True)
    return _moments(joint, noons, days)


def _moments(joint: Floats, noons: NDArray[np.int64], days: Floats) -> tuple[Floats, ...]:
    """Return means and standard deviations from probabilities (plants, noons, latitudes)."""
    of_latitude, of_noon = joint.sum(1), joint.sum(2)
    latitude, latitude_sd = _mean_and_sd(of_latitude, LATITUDES)
    shift, shift_sd = _mean_and_sd(of_noon, NOONS * SLOT / 3600.0)
    noon = (noons[:, 0] - NOONS[0]) * SLOT / 3600.0 + shift
    offset = (24.0 - noon) % 24.0 - 12.0
    south = of_latitude[:, LATITUDES < 0].sum(1) + 0.5 * of_latitude[:, LATITUDES == 0].sum(1)
    dark = days == 0
    return (
        latitude,
        latitude_sd,
        np.where(dark, 0.0, offset),
        np.where(dark, np.sqrt(48.0), shift_sd),
        south,
        days,
    )


def _mean_and_sd(probability: Floats, grid: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of probabilities (plants, grid), the width of the grid's cells included."""
    mean = probability @ grid
    variance = (probability * (grid - mean[:, None]) ** 2).sum(1) + (grid[1] - grid[0]) ** 2 / 12.0
    return mean, np.sqrt(variance)


def _middle_of_light(lit: Bools, clock: Floats) -> NDArray[np.int64]:
    """Return the circular mean of lit times as a slot of the day, (plants,)."""
    turn = np.exp(2j * np.pi / SLOTS * clock)
    slot = np.rint(np.angle((lit * turn).sum(1)) * SLOTS / (2.0 * np.pi))
    return np.asarray(slot.astype(np.int64))


def _counts(lit: Bools, known: Bools, declination: Floats, clock: Floats) -> Single:
    """Return known intervals by declination, lit or not, and slot of the day, (plants, declinations, 2, slots).

    An interval between two slots counts in both, in proportion.
    """
    shape = (len(lit), DECLINATIONS.size, 2, SLOTS)
    width = DECLINATIONS[1] - DECLINATIONS[0]
    bins = np.clip(np.rint((declination - DECLINATIONS[0]) / width).astype(int), 0, DECLINATIONS.size - 1)
    low = np.floor(clock).astype(np.int64)
    cell = (np.arange(len(lit))[:, None] * DECLINATIONS.size + bins) * 2 + lit
    total = np.zeros(int(np.prod(shape)))
    for slot, weight in ((low, low + 1.0 - clock), (low + 1, clock - low)):
        index = (cell * SLOTS + slot % SLOTS)[known]
        total += np.bincount(index, weights=weight[known], minlength=total.size)
    return total.reshape(shape).astype(np.float32)


@lru_cache(maxsize=8)
def _log_probability(step: int) -> Single:
    """Return log P of dark and of lit intervals, (declinations, sides, slots of a half-day x 2, latitudes x starts).

    Slots are begins of intervals from 12 hours before noon on; mornings and evenings are the two sides.
    """
    begin = np.arange(-SLOTS // 2, SLOTS // 2) * SLOT / 3600.0
    nearest = np.clip(0.0, begin, begin + step / 3600.0)  # hours from noon of the brighter end
    delta = np.radians(DECLINATIONS)[:, None, None, None]
    phi = np.radians(LATITUDES)[:, None]
    omega = np.radians(15.0 * nearest)[:, None, None]
    sine = np.sin(phi) * np.sin(delta) + np.cos(phi) * np.cos(delta) * np.cos(omega)
    elevation = np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0)))  # declinations, slots, latitudes, 1
    up = 1.0 / (1.0 + np.exp(np.clip((STARTS - elevation) / WIDTH, -50.0, 50.0)))
    lit = LIT_AT_NIGHT + (1.0 - LIT_AT_NIGHT - DARK_BY_DAY) * up
    both = np.log(np.stack([1.0 - lit, lit], axis=2)).astype(np.float32)
    return np.asarray(both.reshape(DECLINATIONS.size, 2, SLOTS, LATITUDES.size * STARTS.size))


def _start_log_prior(step: int) -> Floats:
    """Return the log-prior of the elevation at which a plant starts to deliver, on the grid ``STARTS``."""
    median = np.interp(step, list(START_MEDIAN), list(START_MEDIAN.values()))
    density = np.exp(-0.5 * (np.log(STARTS / median) / START_SPREAD) ** 2) / STARTS * np.gradient(STARTS)
    return np.asarray(np.log(density / density.sum()))


def _latitude_log_prior() -> Floats:
    """Return the log-prior of the latitude on the grid ``LATITUDES``."""
    density = sum(weight / sd * np.exp(-0.5 * ((LATITUDES - mean) / sd) ** 2) for weight, mean, sd in PLACES)
    return np.asarray(np.log(density / np.sum(density)))
