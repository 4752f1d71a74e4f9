"""The time step of an archive: found from its times, which are rounded to its grid, and thinned to it where finer.

times of scans      12:00:21  12:15:22  12:30:20  12:35  12:40  12:45
on the grid         12:00     12:15     12:30                   12:45     every 15 min
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.maps.archives.archive import Positions, Times
from metaprior.solar.maps.archives.frame_times import NIGHT, cadence_text
from metaprior.text_table import counted

SECOND, MINUTE, DAY = np.timedelta64(1, "s"), np.timedelta64(1, "m"), np.timedelta64(1, "D")
MOST_JITTER = 60.0
"""Seconds by which a time may be off its grid, as satellites' scans are; the limit is a tenth of the step if less."""
USUAL_STEPS = (
    10,
    15,
    20,
    30,
    *(60 * minutes for minutes in (1, 2, 3, 5, 6, 10, 12, 15, 20, 30, 60, 90, 120, 180, 360)),
)
"""Seconds between frames that products have: the step of jittering times is one of them."""
SAME_STEP = 5.0
"""Seconds within which a step is always the usual one."""
LEAST_SHARE, LEAST_COUNT = 0.002, 3
"""Share and number of steps from which they are a cadence of a part of the archive, and not of odd frames."""
NOT_MISSING = 0.3
"""Share of the most frequent step from which its multiples are a cadence, and not single frames that are missing."""


class OnGrid(NamedTuple):
    """Times on the grid of a cadence, the positions that are left out because that part is finer, and what to say."""

    step: np.timedelta64
    times: Times
    thinned: Positions
    findings: list[str]


def on_grid(times: Times, step: np.timedelta64 | None) -> OnGrid:
    """Round times that are off the grid by seconds, and find the frames between its steps.

    Times that are off by more stay as they are: ``check_times`` reports them.

    Args:
        times: Increasing times, of which neighbours may be equal.
        step: The cadence, or None to find it.
    """
    findings: list[str] = []
    counts, asked = frequent_steps(times), step
    if step is None:
        step = _best_step(times, counts)
        findings.append(f"cadence {cadence_text(step)} detected")
    coarser = [other for other in counts if asked is None and other > step / SECOND]
    if coarser:
        told = ", ".join(f"{counts[other]} of {cadence_text(np.timedelta64(other, 's'))}" for other in coarser)
        findings.append(f"other steps are longer ({told}) and count as gaps; cadence= chooses another")
    rounded = _rounded(times, step)
    off = np.abs(rounded - times) / SECOND
    if (off > 0).any():
        findings.append(
            f"times of {counted(int((off > 0).sum()), 'frame')} rounded to steps of {cadence_text(step)}, by at most "
            f"{off.max():.0f} s"
        )
    others = [other for other in counts if asked is None or step % np.timedelta64(other, "s") == 0 * SECOND]
    thinned = _between(rounded, step, others)
    if len(thinned):
        told = ", ".join(f"{count} of {cadence_text(np.timedelta64(other, 's'))}" for other, count in counts.items())
        findings.append(
            f"steps differ ({told}): those of {cadence_text(step)} are used, {counted(len(thinned), 'frame')} between "
            "left out; cadence= chooses another"
        )
    return OnGrid(step, rounded, thinned, findings)


def frequent_steps(times: Times) -> dict[int, int]:
    """Return the steps between frames, in seconds, that are not those of gaps or odd frames, most frequent first."""
    steps = np.round(np.diff(times) / SECOND).astype(np.int64)
    exact = Counter(steps[steps > 0].tolist())
    nominal: Counter[int] = Counter()
    for seconds, count in exact.items():
        nominal[_nominal(seconds, regular=2 * count >= exact.total())] += count
    by_day = {step: count for step, count in nominal.items() if step < NIGHT / SECOND}
    found = by_day or dict(nominal.most_common(1))
    most, least = max(found.values(), default=0), max(LEAST_COUNT, LEAST_SHARE * sum(found.values()))
    frequent = {step: count for step, count in found.items() if count == most or count >= least}
    finest = min(frequent, default=1)
    kept = {
        step: count
        for step, count in frequent.items()
        if step == finest or step % finest or count >= NOT_MISSING * most
    }
    return dict(sorted(kept.items(), key=lambda entry: (-entry[1], entry[0])))


def _nominal(seconds: int, *, regular: bool) -> int:
    """Return the usual step that a step of jittering times stands for; ``regular`` ones of other lengths stay."""
    near = min(USUAL_STEPS, key=lambda usual: abs(usual - seconds))
    off = abs(near - seconds)
    return near if off <= min(MOST_JITTER, near / 10) and (off <= SAME_STEP or not regular) else seconds


def _best_step(times: Times, counts: dict[int, int]) -> np.timedelta64:
    """Return the step of the latest frames, unless another one gives more than twice as many consecutive frames."""
    if not counts:
        return 30 * MINUTE  # there are too few frames, which is said elsewhere
    pairs = {step: _pairs(times, np.timedelta64(step, "s")) for step in counts}
    best = max(pairs, key=lambda step: pairs[step])
    last_day = times[times > times[-1] - DAY]
    latest = list(frequent_steps(last_day)) if len(last_day) > LEAST_COUNT else []
    final = frequent_steps(times[-LEAST_COUNT - 1 :])
    latest = [step for step, count in final.items() if count == LEAST_COUNT and step in latest] + latest
    chosen = next((step for step in latest if step in pairs and 2 * pairs[step] >= pairs[best]), best)
    return np.timedelta64(chosen, "s")


def _pairs(times: Times, step: np.timedelta64) -> int:
    """Return how many frames follow another after one step, on the grid that most frames lie on."""
    rounded = np.unique(_rounded(times, step))
    phase = phases(rounded, step)
    return int((np.diff(rounded[phase == usual_phase(phase)]) == step).sum())


def _rounded(times: Times, step: np.timedelta64) -> Times:
    """Return times with those near the grid of this step moved onto it.

    If most times lie on one grid exactly it is that one. A grid of whole minutes has its first step at a whole minute:
    at the full hour if that is as near to all frames as the others, otherwise where the deviations are smallest.
    """
    phase, length = phases(times, step) / SECOND, float(step / SECOND)
    usual = float(usual_phase(phase))
    unit = 60.0 if length % 60 == 0 else 1.0
    if usual % unit or 2 * (phase == usual).sum() < len(phase):
        candidates = np.unique(np.append(np.round(phase / unit) * unit % length, 0.0))
        off = np.abs(_around(phase[:, None] - candidates, length))
        near = (off <= _allowed(length)).sum(0)
        best = candidates[near == near.max()]
        usual = 0.0 if 0.0 in best else float(best[off.sum(0)[near == near.max()].argmin()])
    away = _around(phase - usual, length)
    move = np.round(np.where(np.abs(away) <= _allowed(length), away, 0.0) * 1e9).astype(np.int64)
    rounded: Times = times - move.astype("timedelta64[ns]")
    return rounded


def phases(times: Times, step: np.timedelta64) -> NDArray[np.timedelta64]:
    """Return how far times lie behind the last step of a grid from 1970 on."""
    behind: NDArray[np.timedelta64] = (times - np.datetime64(0, "ns")) % step
    return behind


def usual_phase(phase: NDArray[Any]) -> Any:
    """Return the most frequent phase."""
    values, counts = np.unique(phase, return_counts=True)
    return values[counts.argmax()]


def _allowed(length: float) -> float:
    return min(MOST_JITTER, length / 10)


def _around(off: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    """Return deviations from the nearest step of a grid."""
    return (off + length / 2) % length - length / 2


def _between(times: Times, step: np.timedelta64, others: list[int]) -> Positions:
    """Return the positions of the frames off the grid that belong to a part of another cadence, in seconds."""
    phase = phases(times, step)
    off = phase != usual_phase(phase)
    steps = np.diff(times) / SECOND
    alike = np.zeros(len(steps), bool)
    for other in others:
        alike |= (np.abs(steps - other) <= _allowed(other)) & (other != step / SECOND)
    beside = np.append(alike, False) | np.insert(alike, 0, False)
    return np.flatnonzero(off & beside)
