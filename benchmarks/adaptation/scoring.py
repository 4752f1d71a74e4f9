"""Scores of one training by number of shots, and their means and limits over trainings."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

import metaprior as mp
from benchmarks.common.result import Row
from metaprior.calibration import CalibrationByShots, fit_calibration
from metaprior.evaluation import Adapt, Evaluation, evaluate
from metaprior.forecasts import Forecast

MEASURES = ("mse", "nll", "crps", "coverage_90")
RAW = "_raw"
"""Ending of measures of forecasts whose spread is not fitted to validation tasks."""


@dataclass
class Remembered:
    """An adaptation whose forecasts are made once for each task and support set, and scored more than once."""

    adapt: Adapt
    calibration: CalibrationByShots | None = None
    known: dict[tuple[int, int], Forecast] = field(default_factory=dict)
    seconds: dict[int, list[float]] = field(default_factory=dict)
    """CPU seconds of an adaptation and its forecast, by number of examples."""

    def __call__(self, support: mp.Examples | None, steps: int = 0) -> "Later":
        """Return what predicts when it is asked to; ``steps`` is ignored."""
        return Later(self, support)

    def forecast(self, support: mp.Examples | None, x: Tensor, samples: int, index: int) -> Forecast:
        """Return the forecast for the task with this index."""
        size = 0 if support is None else support.size
        if (index, size) not in self.known:
            began = time.process_time()
            self.known[index, size] = self.adapt(support, 0).predict(x, samples=samples, seed=index)
            self.seconds.setdefault(size, []).append(time.process_time() - began)
        found = self.known[index, size]
        return found if self.calibration is None else found.widened(self.calibration.factor(size))


@dataclass(frozen=True)
class Later:
    """A posterior whose forecast is remembered; ``evaluate`` gives the index of a task as the seed."""

    remembered: Remembered
    support: mp.Examples | None

    def predict(self, x: Tensor, *, samples: int, seed: int, **_: Any) -> Forecast:
        """Return the forecast for inputs x."""
        return self.remembered.forecast(self.support, x, samples, seed)


def rows_of_training(
    adapt: Adapt,
    validation: Sequence[mp.Task],
    test: Sequence[mp.Task],
    shots: Sequence[int],
    samples: int,
    *,
    calibrate: bool = True,
) -> list[Row]:
    """Return a row for each number of shots: scores with the spread fitted on validation tasks, and without."""
    remembered = Remembered(adapt)
    raw = _evaluated(remembered, test, shots, samples)
    found = raw
    if calibrate:
        factors = fit_calibration(Remembered(adapt), validation, shots=shots, samples=samples)  # type: ignore[arg-type]
        remembered.calibration = factors
        found = _evaluated(remembered, test, shots, samples)
    rows = []
    for count in shots:
        own, without = found.row(shots=count), raw.row(shots=count)
        row: Row = {"shots": count, **{name: own[name] for name in MEASURES}}
        row |= {name + RAW: without[name] for name in ("nll", "coverage_90")}
        row["adapt_ms"] = 1000 * statistics.median(remembered.seconds[count])
        rows.append({**row, "failed": own["failed"]})
    return rows


def _evaluated(adapt: Remembered, tasks: Sequence[mp.Task], shots: Sequence[int], samples: int) -> Evaluation:
    return evaluate(adapt, tasks, shots=shots, steps=(0,), samples=samples)  # type: ignore[arg-type]


def over_trainings(part: str, method: str, trainings: Sequence[Sequence[Row]]) -> list[Row]:
    """Return a row for each number of shots: means over trainings; of NLL and coverage also lowest and highest."""
    rows = []
    for same in zip(*trainings, strict=True):
        row: Row = {"part": part, "method": method, "shots": same[0]["shots"], "trainings": len(same)}
        for name in same[0]:
            if name == "failed":
                row[name] = sum(one[name] for one in same)
            elif name != "shots":
                row[name] = statistics.fmean(one[name] for one in same)
            if name in ("nll", "coverage_90") and len(same) > 1:
                row |= {f"{name}_low": min(one[name] for one in same), f"{name}_high": max(one[name] for one in same)}
        rows.append(row)
    return rows
