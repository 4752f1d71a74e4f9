"""The values of an archive, looked at once, frame by frame, in blocks that do not grow with it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from metaprior.solar.maps.archives.archive import Archive, Positions, Values, most_frames_at_once
from metaprior.solar.maps.archives.door import Door
from metaprior.solar.maps.archives.value_units import IRRADIANCE
from metaprior.solar.sun import DARK_SHARE, NIGHT_ELEVATION, elevation

BLOCK_BYTES = 2**24
IRRADIANCE_RANGE = (-20.0, 2000.0)
"""W m-2: sensors are off by a few at night, and a cloud's edge can double what a clear sky lets through, not more."""

MISSING_MARKS = tuple(float(np.float32(mark)) for mark in (-9999, -999, -32768, 1e20, 9.969209968386869e36))
"""Numbers that stand for "missing" in many archives; as values of a frame they would ruin every average."""

READ_ERRORS = (OSError, ValueError, RuntimeError, EOFError)


class Range(NamedTuple):
    """Smallest and largest finite value of a frame (of none, inf and -inf), and whether all values are finite."""

    low: float
    high: float
    whole: bool


@dataclass(frozen=True)
class Checked:
    """Positions of the good frames, and the range of their finite values."""

    kept: Positions
    data_min: float
    data_max: float


def check_values(archive: Archive, kept: Positions, door: Door, progress: bool) -> Checked:
    """Read every frame once and leave out the bad ones."""
    good: list[int] = []
    low, high = np.inf, -np.inf
    with tqdm(total=len(kept), desc="checking frames", unit="frame", disable=not progress, delay=1) as bar:
        for position, values in _each(archive, kept, door):
            bar.update()
            finite = _finite_range(values)
            why = _out_of_range(finite, archive.attrs.get("units")) or _holes(values, finite, archive, position)
            if why is not None:
                door.bad(archive.reader.called(position), why)
                continue
            good.append(position)
            low, high = min(low, finite.low), max(high, finite.high)
    return Checked(np.array(good, dtype=np.intp), float(low), float(high))


def check_lit(archive: Archive, source: str, checked: Checked) -> None:
    """Raise if it is night in all frames: by the sun where coordinates are known, else by brightness."""
    if not checked.data_min < checked.data_max:
        raise ValueError(f"{source}: all values are {checked.data_min:g}; it is night in all frames, or they are empty")
    if archive.has_places:
        highest = _highest_sun(archive, checked.kept)
        if highest <= NIGHT_ELEVATION:
            raise ValueError(
                f"{source}: it is night in all frames: the sun is never higher than {highest:.1f} degrees there, and "
                f"day starts at {NIGHT_ELEVATION:g}; times have to be UTC"
            )
    elif archive.reader.dtype == np.uint8 and checked.data_max <= DARK_SHARE * 255:
        raise ValueError(
            f"{source}: it is night in all frames: the brightest value is {checked.data_max:g} of 255, and "
            f"up to {DARK_SHARE * 255:g} counts as dark"
        )


def _each(archive: Archive, kept: Positions, door: Door) -> Iterator[tuple[int, Values]]:
    """Frames one at a time, read in blocks that a file is good at."""
    size = _frames_at_once(archive)
    for start in range(0, len(kept), size):
        block = kept[start : start + size]
        try:
            values = archive.reader.read(block, slice(None), slice(None))
        except READ_ERRORS:
            yield from _one_by_one(archive, block, door)
        else:
            yield from zip(block.tolist(), values, strict=True)


def _one_by_one(archive: Archive, block: Positions, door: Door) -> Iterator[tuple[int, Values]]:
    """A block that cannot be read as a whole, to find the frame that is to blame."""
    for position in block.tolist():
        try:
            values = archive.reader.read(np.array([position]), slice(None), slice(None))[0]
        except READ_ERRORS as error:
            door.bad(archive.reader.called(position), f"cannot be read ({error}); it is truncated or damaged")
        else:
            yield position, values


def _frames_at_once(archive: Archive) -> int:
    """Whole numbers of what the file stores together: a part of it would be unpacked again for the next part.

    Where that is more than memory should hold, equal parts of it: then memory counts, and time is lost.
    """
    _, rows, columns = archive.reader.shape
    together, most = min(archive.reader.together, len(archive.times)), most_frames_at_once(rows, columns)
    if together > most:
        return math.ceil(together / math.ceil(together / most))
    fitting = max(1, BLOCK_BYTES // (4 * rows * columns))
    return max(together, fitting // together * together)


def _finite_range(values: Values) -> Range:
    low, high = values.min(), values.max()  # NaN if there is one: two fast passes are enough for most frames
    whole = bool(np.isfinite(low) and np.isfinite(high))
    if not whole:
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if finite.size else (np.inf, -np.inf)
    return Range(float(low), float(high), whole)


def _out_of_range(finite: Range, units: str | None) -> str | None:
    """What is wrong with a frame's smallest and largest value."""
    marks = [value for value in (finite.low, finite.high) if value in MISSING_MARKS]
    if marks:
        return f"holds {marks[0]:g}, which usually marks missing values; they have to be NaN, or declared (_FillValue)"
    low, high = IRRADIANCE_RANGE
    if units == IRRADIANCE and (finite.low < low or finite.high > high):
        return f"values from {finite.low:g} to {finite.high:g} W m-2; irradiance lies between {low:g} and {high:g}"
    return None


def _holes(values: Values, finite: Range, archive: Archive, position: int) -> str | None:
    """What is infinite or missing in a frame.

    Satellites see nothing at night, so many archives have NaN there; by day it is a hole.
    """
    if finite.whole:
        return None
    infinite, missing = np.isinf(values), np.isnan(values)
    if infinite.any():
        return f"{infinite.sum()} of {values.size} values are infinite, the first {_where(infinite)}"
    if not archive.has_places:
        return f"{missing.sum()} of {values.size} values are missing (NaN), the first {_where(missing)}"
    by_day = missing & (_sun(archive, position) > NIGHT_ELEVATION)
    if not by_day.any():
        return None
    day = f"where the sun is higher than {NIGHT_ELEVATION:g} degrees"
    return f"{by_day.sum()} of {values.size} values are missing (NaN) {day}, the first {_where(by_day)}"


def _where(marked: NDArray[np.bool_]) -> str:
    row, column = np.unravel_index(int(marked.argmax()), marked.shape)
    return f"in row {row}, column {column}"


def _sun(archive: Archive, position: int) -> NDArray[np.float64]:
    """Elevation over the grid at one frame's time."""
    latitude, longitude = archive.coords["latitude"].values, archive.coords["longitude"].values
    height: NDArray[np.float64] = elevation(archive.times[[position]], latitude, longitude)[0]
    return height


def _highest_sun(archive: Archive, kept: Positions) -> float:
    """Highest elevation over frames and a coarse grid, looking no further than the first frame that is lit."""
    latitude, longitude = (_coarse(archive.coords[name].values) for name in ("latitude", "longitude"))
    highest = -90.0
    for start in range(0, len(kept), 1000):
        heights = elevation(archive.times[kept[start : start + 1000]], latitude, longitude)
        highest = max(highest, float(heights.max()))
        if highest > NIGHT_ELEVATION:
            break
    return highest


def _coarse(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """At most 16 of the values, with the first and the last."""
    chosen: NDArray[np.float64] = values[np.unique(np.linspace(0, len(values) - 1, 16).astype(int))]
    return chosen
