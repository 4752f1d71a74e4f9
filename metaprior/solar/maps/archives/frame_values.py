"""The values of an archive: each frame is read and checked once, in blocks whose size does not grow with it."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from metaprior.progress import progress_bar
from metaprior.solar.maps.archives.archive import Archive, Positions, Values, frames_per_block
from metaprior.solar.maps.archives.notes import Notes
from metaprior.solar.sun import DARK_SHARE, NIGHT_ELEVATION, Place, degrees_of, elevation, sine_of_elevation
from metaprior.solar.value_units import IRRADIANCE
from metaprior.text_table import counted

BLOCK_BYTES = 2**24
IRRADIANCE_RANGE = (-20.0, 2000.0)
"""W m-2: sensors are off by a few at night, and a cloud's edge can at most double what a clear sky transmits."""

MISSING_MARKS = tuple(float(np.float32(mark)) for mark in (-9999, -999, -32768, 1e20, 9.969209968386869e36))
"""Numbers that mean "missing" in many archives; taken as values they would ruin every average."""

READ_ERRORS = (OSError, ValueError, RuntimeError, EOFError)


Missing = Literal["bad", "keep"]
"""What becomes of frames in which values are missing by day."""


class Range(NamedTuple):
    """Smallest and largest finite value of a frame (inf and -inf if there is none), and whether all are finite."""

    low: float
    high: float
    all_finite: bool


class Checked(NamedTuple):
    """Positions of the good frames, the range of their finite values, and how many others are out of range."""

    positions: Positions
    data_min: float
    data_max: float
    out_of_range: int = 0


def check_values(
    archive: Archive, positions: Positions, notes: Notes, progress: bool, missing: Missing = "bad"
) -> Checked:
    """Read each frame once, and return the good ones.

    With ``missing="keep"`` frames in which values are missing are good, too, and those without any value are left out.
    """
    good, low, high, units = [], np.inf, -np.inf, archive.attrs.get("units")
    with_holes, empty, outside = 0, 0, 0
    with progress_bar("checking frames", len(positions), unit="frames", show=progress) as bar:
        for position, values in _each_frame(archive, positions, notes, _block_length(archive)):
            bar.update()
            finite = _finite_range(values)
            if missing == "keep" and finite.low > finite.high and np.isnan(values).all():
                empty += 1
                continue
            out_of_range = _out_of_range(finite, units)
            outside += out_of_range is not None
            problem = out_of_range or _holes(values, finite, archive, position, missing)
            if problem is not None:
                notes.bad_frame(archive.frame_name(position), problem)
                continue
            good.append(position)
            with_holes += not finite.all_finite
            low, high = min(low, finite.low), max(high, finite.high)
    if with_holes and missing == "keep":
        share = 100 * with_holes / len(positions)
        notes.finding(f"{counted(with_holes, 'frame')} with missing values kept ({share:.3g} % of all)")
    if empty:
        notes.finding(f"{counted(empty, 'frame')} without any value (night, or empty) left out")
    return Checked(np.array(good, dtype=np.intp), float(low), float(high), outside)


def check_daylight(archive: Archive, source: str, checked: Checked) -> None:
    """Raise if it is night in all frames: by the sun where coordinates are known, otherwise by brightness."""
    if not checked.data_min < checked.data_max:
        raise ValueError(f"{source}: all values are {checked.data_min:g}; it is night in all frames, or they are empty")
    if archive.located:
        highest = _highest_sun(archive, checked.positions)
        if highest <= NIGHT_ELEVATION:
            raise ValueError(
                f"{source}: it is night in all frames: the sun is never higher than {highest:.1f} degrees there, and "
                f"day starts at {NIGHT_ELEVATION:g}; times must be UTC"
            )
    elif archive.variable.dtype == np.uint8 and checked.data_max <= DARK_SHARE * 255:
        raise ValueError(
            f"{source}: it is night in all frames: the brightest value is {checked.data_max:g} of 255, and "
            f"up to {DARK_SHARE * 255:g} counts as dark"
        )


def _each_frame(archive: Archive, positions: Positions, notes: Notes, size: int) -> Iterator[tuple[int, Values]]:
    """Iterate over positions and values, reading blocks of ``size`` frames.

    A block that cannot be read is read again frame by frame, to find the frame that is damaged.
    """
    for start in range(0, len(positions), size):
        block = positions[start : start + size]
        try:
            values = archive.read(block)
        except READ_ERRORS as error:
            if size > 1:
                yield from _each_frame(archive, block, notes, 1)
            else:
                problem = f"cannot be read ({error}); it is truncated or damaged"
                notes.bad_frame(archive.frame_name(int(block[0])), problem)
        else:
            yield from zip(block.tolist(), values, strict=True)


def _block_length(archive: Archive) -> int:
    """Return a whole multiple of what the file stores together: a part would be decompressed again for the next part.

    Where that is more than a block may hold, the chunk is divided into equal parts: memory is bounded, time is lost.
    """
    _, rows, columns = archive.variable.shape
    chunk, most = min(archive.frames_per_chunk, len(archive.times)), frames_per_block(rows, columns)
    if chunk > most:
        return math.ceil(chunk / math.ceil(chunk / most))
    fitting = max(1, BLOCK_BYTES // (4 * rows * columns))
    return max(chunk, fitting // chunk * chunk)


def _finite_range(values: Values) -> Range:
    low, high = values.min(), values.max()  # NaN if there is one: two fast passes are enough for most frames
    all_finite = bool(np.isfinite(low) and np.isfinite(high))
    if not all_finite:
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if finite.size else (np.inf, -np.inf)
    return Range(float(low), float(high), all_finite)


def _out_of_range(finite: Range, units: str | None) -> str | None:
    """Return what is wrong with a frame's smallest and largest value."""
    marks = [value for value in (finite.low, finite.high) if value in MISSING_MARKS]
    if marks:
        return f"holds {marks[0]:g}, which usually marks missing values; they must be NaN, or declared (_FillValue)"
    low, high = IRRADIANCE_RANGE
    if units == IRRADIANCE and (finite.low < low or finite.high > high):
        found = f"{finite.low:g} to {finite.high:g}"
        return f"irradiance must lie between {low:g} and {high:g} W m-2, got values from {found}"
    return None


def _holes(values: Values, finite: Range, archive: Archive, position: int, missing: Missing) -> str | None:
    """Return which values of a frame are infinite or missing.

    Satellites see nothing at night, so many archives have NaN there, which is accepted; by day it is a hole.
    """
    if finite.all_finite:
        return None
    holes, what = np.isinf(values), "infinite"
    if not holes.any():
        if missing == "keep":
            return None
        holes, what = np.isnan(values), "missing (NaN)"
        if archive.located:
            latitude, longitude = (archive.coords[name].values for name in ("latitude", "longitude"))
            holes &= elevation(archive.times[[position]], latitude, longitude)[0] > NIGHT_ELEVATION
            what += f" where the sun is higher than {NIGHT_ELEVATION:g} degrees"
    if not holes.any():
        return None
    row, column = np.unravel_index(int(holes.argmax()), holes.shape)
    return f"{holes.sum()} of {values.size} values are {what}, the first in row {row}, column {column}"


def _highest_sun(archive: Archive, positions: Positions) -> float:
    """Return the highest elevation over frames and at most 16 x 16 pixels, up to the first lit frames."""
    place = Place.of(*(archive.coords[name].values for name in ("latitude", "longitude")))
    coarse = place.thinned(16)
    highest = -90.0
    for start in range(0, len(positions), 1000):
        if highest <= NIGHT_ELEVATION:
            sine = sine_of_elevation(archive.times[positions[start : start + 1000]], coarse)
            highest = max(highest, float(degrees_of(np.nanmax(sine))))
    return highest
