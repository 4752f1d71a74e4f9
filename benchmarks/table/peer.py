"""What the methods beside this package share: standardised columns, and settings chosen within a CPU time."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from benchmarks.table.predictive import FloatArray, Forecaster, Predictive, Rescalable

VALIDATION = 0.2
MOST_VALIDATION_ROWS = 1000


class Rows(NamedTuple):
    """Features (N, F) and targets (N,)."""

    x: FloatArray
    y: FloatArray


class Trained(NamedTuple):
    """A trained method, and its setting with what was read off the held-out rows, such as a number of trees."""

    forecaster: Forecaster
    setting: Any


class Unit(NamedTuple):
    """Mean and standard deviation of columns; a constant column has the standard deviation 1."""

    loc: Any
    scale: Any

    @classmethod
    def of(cls, values: FloatArray, plain: Sequence[int] = ()) -> Self:
        """Return the unit of an array's columns; ``plain`` columns are left as they are."""
        loc, scale = np.array(values.mean(0)), np.array(values.std(0))
        scale[scale == 0] = 1.0
        if plain:
            loc[list(plain)], scale[list(plain)] = 0.0, 1.0
        return cls(loc, scale)

    def apply(self, values: FloatArray) -> FloatArray:
        """Return values in this unit."""
        found: FloatArray = (values - self.loc) / self.scale
        return found


class Peer(ABC):
    """A method that a user would pick instead, with ``fit(X, y)`` and ``predictive(X)``.

    ``fit`` tries the candidates, the most trusted first, on 80 % of the rows (at most 1,000 are held out). One is left
    out if it and the final training are not expected to fit into ``seconds`` of CPU time. The best by ``loss`` on the
    held-out rows is trained again on all rows. A method with one candidate has nothing to choose.

    Args:
        seed: Of everything that is drawn.
        seconds: CPU seconds for the choice and the final training together.
        plain: Columns that are not standardised, such as categories.
    """

    candidates: ClassVar[tuple[Any, ...]] = (None,)

    def __init__(self, seed: int, seconds: float, plain: Sequence[int] = ()) -> None:
        self.seed, self.seconds, self.plain = seed, seconds, tuple(plain)

    def fit(self, x: FloatArray, y: FloatArray) -> Self:
        """Choose settings, train, and note ``setting``, ``fit_seconds`` (of the final training), ``total_seconds``."""
        started = time.process_time()
        self._x, self._y = Unit.of(x, self.plain), Unit.of(y)
        rows = Rows(self._x.apply(x), self._y.apply(y))
        self.setting = self.candidates[0] if len(self.candidates) == 1 else self._chosen(rows, started)
        chosen = time.process_time()
        self._forecaster = self.train(self.setting, rows, None).forecaster
        self.fit_seconds, self.total_seconds = time.process_time() - chosen, time.process_time() - started
        return self

    def predictive(self, x: FloatArray) -> Predictive:
        """Return the predictive distributions of rows."""
        return self._forecaster(self._x.apply(x)).rescaled(float(self._y.loc), float(self._y.scale))

    @abstractmethod
    def train(self, setting: Any, rows: Rows, held_out: Rows | None) -> Trained:
        """Return the method trained on rows, which are standardised.

        With held-out rows, parts of the setting can be read off them; without, the setting says everything.
        """

    def loss(self, predictive: Rescalable, targets: FloatArray) -> float:
        """Return what the choice minimises: the mean negative log density."""
        return -float(predictive.log_prob(targets).mean())

    def cost(self, setting: Any) -> float:
        """Return the CPU time of a training relative to those of other candidates."""
        return 1.0

    def _chosen(self, rows: Rows, started: float) -> Any:
        order = np.random.default_rng(self.seed).permutation(len(rows.y))
        count = min(MOST_VALIDATION_ROWS, max(1, round(VALIDATION * len(rows.y))))
        held_out, rest = (Rows(rows.x[index], rows.y[index]) for index in (order[:count], order[count:]))
        found: list[tuple[float, Any]] = []
        most = tried = 0.0
        for setting in self.candidates:
            spent, cost = time.process_time() - started, self.cost(setting)
            final = (1 + VALIDATION) * max(most, cost)  # the one to come might be chosen, and is trained on all rows
            if found and spent * (1 + (cost + final) / tried) > self.seconds:
                continue
            trained = self.train(setting, rest, held_out)
            found.append((self.loss(trained.forecaster(held_out.x), held_out.y), trained.setting))
            tried, most = tried + cost, max(most, cost)
        losses = [loss if np.isfinite(loss) else np.inf for loss, _ in found]
        return found[int(np.argmin(losses))][1]
