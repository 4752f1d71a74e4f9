"""The times of an archive: increasing, on one grid of steps of the cadence, with gaps."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from metaprior.solar.maps.archives.archive import Positions, Times, time_text
from metaprior.solar.maps.archives.notes import Notes
from metaprior.text_table import counted

NIGHT, LONGEST_NIGHT = np.timedelta64(6, "h"), np.timedelta64(20, "h")
"""Lengths between which a gap may be a night."""


def cadence_of(text: str) -> np.timedelta64:
    """Return the time step that a text such as "30min" names."""
    try:
        step = pd.Timedelta(text)
    except ValueError:
        step = pd.NaT
    if not step > pd.Timedelta(0):
        raise ValueError(f'cadence must be a positive length of time such as "30min" or "1h", got {text!r}')
    return np.timedelta64(step.value, "ns")


def cadence_text(step: np.timedelta64) -> str:
    """Return a time step as ``cadence_of`` and ``tasks.cadence`` take it, such as 15min."""
    return _length(step).replace(" ", "")


def check_order(times: Times, source: str, notes: Notes) -> None:
    """Raise ValueError if times are missing or decrease."""
    if np.isnat(times).any():
        number = int(np.isnat(times).argmax())
        notes.stop(source, f"{source}: time number {number} is missing (NaT); every frame needs one")
    back = np.flatnonzero(np.diff(times) < np.timedelta64(0))
    if len(back):
        i = int(back[0])
        notes.stop(
            source,
            f"{source}: times must increase, but {time_text(times[i + 1])} (number {i + 1}) follows "
            f"{time_text(times[i])}; sort the archive by time",
        )


def check_times(times: Times, frame_name: Callable[[int], str], cadence: np.timedelta64, notes: Notes) -> Positions:
    """Return the positions of the frames whose times are distinct and lie on one grid of steps of ``cadence``.

    The grid is the one that most frames lie on, so that a single odd frame is found also if it is the first.
    """
    repeated = np.flatnonzero(np.diff(times) == np.timedelta64(0)) + 1
    for position in repeated.tolist():
        first = int(np.searchsorted(times, times[position]))
        beside = Path(frame_name(first)).name
        notes.bad_frame(frame_name(position), f"a second frame of {time_text(times[position])}, beside {beside}")
    distinct: Positions = np.setdiff1d(np.arange(len(times)), repeated)
    if not len(distinct):
        return distinct
    phase = (times[distinct] - np.datetime64(0, "ns")) % cadence
    phases, counts = np.unique(phase, return_counts=True)
    odd = phase != phases[counts.argmax()]
    if odd.any():
        steps = _steps(times[distinct], cadence)
        for position in distinct[odd].tolist():
            notes.bad_frame(frame_name(position), f"{time_text(times[position])} is off the cadence: {steps}")
    on_grid: Positions = distinct[~odd]
    return on_grid


def check_cadence(times: Times, source: str, cadence: np.timedelta64) -> None:
    """Raise unless some consecutive frames are one step apart: otherwise there is no window."""
    if not (np.diff(times) == cadence).any():
        raise ValueError(f"{source}: no two frames are one step apart; {_steps(times, cadence)}")


@dataclass(frozen=True)
class Gaps:
    """Where frames are missing, apart from nights that were never recorded.

    Args:
        lines: One for each gap: between which times, and how many frames are missing.
        missing: Number of frames that are missing in them.
        nights: Number of nights without frames.
    """

    lines: list[str]
    missing: int
    nights: int

    def __str__(self) -> str:
        found = f"{counted(len(self.lines), 'gap')} in time, {counted(self.missing, 'frame')} missing"
        return (found if self.lines else "none") + (f", besides {counted(self.nights, 'night')}" if self.nights else "")


def find_gaps(times: Times, cadence: np.timedelta64) -> Gaps:
    """Return the gaps between increasing times on a grid of steps of ``cadence``."""
    steps, nights = np.diff(times) // cadence, _are_nights(times)
    holes = np.flatnonzero((steps > 1) & ~nights)
    lines = [f"{time_text(times[i])} to {time_text(times[i + 1])}: {steps[i] - 1} missing" for i in holes]
    return Gaps(lines, int((steps[holes] - 1).sum()), int(nights.sum()))


def _are_nights(times: Times) -> NDArray[np.bool_]:
    """Return which steps between times are nights: no frame of any day is of the time of day in their middle."""
    steps, day, hour = np.diff(times), 24 * 3600, 3600
    seconds = times.astype("datetime64[s]").astype(np.int64)
    middle = (seconds[:-1] + np.diff(seconds) // 2) % day
    clock = np.unique(seconds % day)
    around = np.concatenate([clock[-1:] - day, clock, clock[:1] + day])
    after = np.searchsorted(around, middle, side="right")
    nearest = np.minimum(middle - around[after - 1], around[after] - middle)
    dark: NDArray[np.bool_] = (steps >= NIGHT) & (steps <= LONGEST_NIGHT) & (nearest > hour)
    return dark


def _steps(times: Times, cadence: np.timedelta64) -> str:
    """Describe the expected cadence, and the archive's most frequent one if it differs."""
    steps, counts = np.unique(np.diff(times), return_counts=True)
    expected = f"frames are expected every {_length(cadence)}"
    if not len(steps) or steps[counts.argmax()] == cadence:
        return expected
    usual = _length(steps[counts.argmax()])
    return (
        f"{expected}, but most follow the one before after {usual}. If that is right, give "
        f'cadence="{usual.replace(" ", "")}"'
    )


def _length(step: np.timedelta64) -> str:
    seconds = step / np.timedelta64(1, "s")
    return f"{seconds / 60:g} min" if seconds % 60 == 0 else f"{seconds:g} s"
