"""The door of an archive of frames: bad ones are refused, or left out and counted; times are looked at together."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.solar.maps.archives.archive import Positions, Times, at_time

OnBad = Literal["raise", "skip"]


class BadFramesSkipped(UserWarning):
    """Frames were left out because they are bad; the DataArray's attribute ``skipped`` lists all of them."""


class GapsInTime(UserWarning):
    """Times are missing between the first frame and the last; the DataArray's attribute ``gaps`` lists all of them."""


class Door:
    """Where bad frames stop: with ``on_bad="raise"`` by an error, with ``"skip"`` by a line in ``skipped``."""

    def __init__(self, on_bad: OnBad) -> None:
        if on_bad not in ("raise", "skip"):
            raise ValueError(f'on_bad has to be "raise" or "skip", got {on_bad!r}')
        self.on_bad = on_bad
        self.skipped: list[str] = []

    def bad(self, name: str, why: str) -> None:
        """Refuse or note a frame."""
        if self.on_bad == "raise":
            raise ValueError(
                f'{name}: {why}. Mend or remove it; on_bad="skip" leaves such frames out and lists '
                "them (metaprior train: --set tasks.on_bad=skip, metaprior predict: --on-bad skip)"
            )
        self.skipped.append(f"{name}: {why}")


def first_few(lines: list[str], count: int = 5) -> str:
    """The first lines of a list, and how many more there are."""
    more = f"\n  ... and {len(lines) - count} more" if len(lines) > count else ""
    return "".join(f"\n  {line}" for line in lines[:count]) + more


def cadence_of(text: str) -> np.timedelta64:
    """The time step that a text such as "30min" says."""
    try:
        step = pd.Timedelta(text)
    except ValueError:
        step = pd.NaT
    if not step > pd.Timedelta(0):
        raise ValueError(f'cadence has to be a positive length of time such as "30min" or "1h", got {text!r}')
    return np.timedelta64(step.value, "ns")


def check_times(
    times: Times, source: str, called: Callable[[int], str], cadence: np.timedelta64, door: Door
) -> Positions:
    """Positions of the frames whose times increase and lie on one grid of steps of ``cadence``.

    The grid is the one that most frames lie on, so that one odd frame is odd also when it is the first.
    """
    _check_order(times, source)
    again = np.flatnonzero(np.diff(times) == np.timedelta64(0)) + 1
    for position in again.tolist():
        door.bad(called(position), f"a second frame of {at_time(times[position])}")
    kept: Positions = np.setdiff1d(np.arange(len(times)), again)
    phase = (times[kept] - np.datetime64(0, "ns")) % cadence
    phases, counts = np.unique(phase, return_counts=True)
    odd = phase != phases[counts.argmax()]
    for position in kept[odd].tolist():
        door.bad(called(position), f"{at_time(times[position])} is off the cadence: {_steps(times[kept], cadence)}")
    even: Positions = kept[~odd]
    return even


def check_cadence(times: Times, source: str, cadence: np.timedelta64) -> None:
    """Raise unless some frames follow one another by exactly one step: there would be no window."""
    if not (np.diff(times) == cadence).any():
        raise ValueError(f"{source}: no two frames are one step apart; {_steps(times, cadence)}")


def gaps(times: Times, cadence: np.timedelta64) -> list[str]:
    """One line for every place where frames are missing."""
    steps = np.diff(times) // cadence
    return [
        f"{at_time(times[i])} to {at_time(times[i + 1])}: {steps[i] - 1} missing" for i in np.flatnonzero(steps > 1)
    ]


def missing_count(times: Times, cadence: np.timedelta64) -> int:
    """Frames that are missing between the first and the last."""
    return int((times[-1] - times[0]) // cadence) + 1 - len(times)


def _check_order(times: Times, source: str) -> None:
    if np.isnat(times).any():
        raise ValueError(
            f"{source}: time number {int(np.isnat(times).argmax())} is missing (NaT); every frame needs one"
        )
    back = np.flatnonzero(np.diff(times) < np.timedelta64(0))
    if len(back):
        i = int(back[0])
        raise ValueError(
            f"{source}: times have to increase, but {at_time(times[i + 1])} (number {i + 1}) follows "
            f"{at_time(times[i])}; sort the archive by time"
        )


def _steps(times: Times, cadence: np.timedelta64) -> str:
    """What the archive's own cadence seems to be, beside the one asked for."""
    steps, counts = np.unique(np.diff(times), return_counts=True)
    asked = f"frames are expected every {_length(cadence)}"
    if not len(steps) or steps[counts.argmax()] == cadence:
        return asked
    usual = _length(steps[counts.argmax()])
    return f'{asked}, but they most often come every {usual}; if that is right, give cadence="{usual.replace(" ", "")}"'


def _length(step: np.timedelta64) -> str:
    seconds = step / np.timedelta64(1, "s")
    return f"{seconds / 60:g} min" if seconds % 60 == 0 else f"{seconds:g} s"
