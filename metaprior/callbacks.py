"""Callbacks: what is called while ``fit`` works, to show, record, save or stop it.

    method.fit(..., callbacks=[CSVLog("log.csv"), EarlyStopping(patience=20), lambda fit, record: print(record.loss)])

A callback is a ``Callback``, or a function of a ``Fit`` and an ``EpochRecord``, which is called after every epoch. They
are called in the order in which they are given. The progress bars of ``fit`` are one, too: ``Progress``.
"""

import csv
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from metaprior.checks import check_counts, check_not_negative
from metaprior.history import EpochRecord
from metaprior.metagrad.memory import peak_memory
from metaprior.progress import ProgressBar, progress_bar
from metaprior.team import Team, current_team, use_team

__all__ = ["CSVLog", "Callback", "EarlyStopping", "Fit", "Progress", "SaveEvery", "TensorBoardLog"]

REFRESH = 0.1
"""Seconds between two updates of a progress bar."""
WARM_START, WARM_UP = "warm start", "KL warm-up"
NUMBERS = tuple(entry.name for entry in fields(EpochRecord) if entry.type in (int, float, float | None))
"""Fields of ``EpochRecord`` that hold a number."""
COLUMNS = ("phase", *NUMBERS)


class Fit:
    """A fit under way, as callbacks see it.

    Args:
        method: the method that is fitted. What it has learned so far is in ``fitted()``, not here.
        label: what is done, in words.
        epochs: planned number of epochs.
        steps: planned number of steps, of all epochs together.
        fitted: returns ``method`` as it would be if the fit ended now.
        keep: notes what is learned now as that which the fit ends with; None where that is not possible.
        validates: whether the epochs that count are validated.
        unit: the name of steps, in the plural.
        epoch: epochs that are done, where a fit is resumed.
        step: steps that are done, where a fit is resumed.
    """

    def __init__(
        self,
        method: Any,
        label: str,
        *,
        epochs: int,
        steps: int,
        fitted: Callable[[], Any],
        keep: Callable[[], None] | None = None,
        validates: bool = False,
        unit: str = "steps",
        epoch: int = 0,
        step: int = 0,
    ) -> None:
        self.method, self.label, self.unit, self.validates = method, label, unit, validates
        self.epochs, self.steps, self.epoch, self.step = epochs, steps, epoch, step
        self.stopped: str | None = None
        """The reason that ``stop`` was given; None if the fit goes on."""
        self._fitted, self._keep, self._began = fitted, keep, time.monotonic()
        self._keep_now = False

    @property
    def elapsed(self) -> float:
        """Return the seconds since the fit began."""
        return time.monotonic() - self._began

    def stop(self, reason: str) -> None:
        """End the fit after the present epoch, as if it had been the last one; ``stopped`` is the reason."""
        self.stopped = reason

    def fitted(self) -> Any:
        """Return a method that has learned what this fit has learned so far: to predict with, to evaluate, to save.

        It is a copy, which later steps do not change. (Of ``HierarchicalVI``, whose posteriors lie in its store, it is
        the method itself.)
        """
        return self._fitted()

    def keep(self) -> None:
        """Let the fit end with what it has learned after this epoch, until ``keep`` is called in a later one."""
        if self._keep is None:
            raise TypeError(
                f"keep() must not be called for {type(self.method).__name__}, which has one state alone and ends with "
                "the last one. With EarlyStopping, try keep_best=False"
            )
        self._keep_now = True

    def _decided(self) -> tuple[str | None, bool]:
        """Return what callbacks decided in this epoch: the reason to stop, and whether its end is kept."""
        keep, self._keep_now = self._keep_now, False
        return self.stopped, keep

    def _do(self, stopped: str | None, keep: bool) -> None:
        """Do what was decided, on every rank."""
        self.stopped = stopped
        if keep and self._keep is not None:
            self._keep()


class Callback:
    """What is called while ``fit`` works; each method does nothing unless it is overridden."""

    def begin(self, fit: Fit) -> None:
        """Called before the first step."""

    def after_step(self, fit: Fit, terms: Mapping[str, float]) -> None:
        """Called after every step, with ``"loss"`` and its parts in that step."""

    def after_epoch(self, fit: Fit, record: EpochRecord) -> None:
        """Called after every epoch and its validation, with the record that ``history_`` will have of it."""

    def end(self, fit: Fit) -> None:
        """Called once if ``begin`` did not raise, however the fit ended: to close files."""


class _AfterEpoch(Callback):
    """A function as a callback."""

    def __init__(self, function: Callable[[Fit, EpochRecord], object]) -> None:
        self._function = function

    def after_epoch(self, fit: Fit, record: EpochRecord) -> None:
        self._function(fit, record)


Callbacks = Iterable[Callback | Callable[[Fit, EpochRecord], object]]
"""What the argument ``callbacks`` of ``fit`` takes."""


class Listeners:
    """The callbacks of one fit: ``begin`` on entering the ``with`` block, ``end`` on leaving it.

        with Listeners(fit, callbacks, progress=progress) as listeners:
            for _ in range(fit.epochs):
                ...
                    listeners.after_step(lambda: {"loss": float(loss)})
                listeners.after_epoch(record)
                if fit.stopped:
                    break

    Of several ranks only the first one's callbacks are called; what they decide, and their errors, all ranks share. All
    ranks use this class alike.
    """

    def __init__(self, fit: Fit, callbacks: Callbacks = (), *, progress: bool = False) -> None:
        self.fit, self._all = fit, [*map(_as_callback, several(callbacks)), *([Progress()] if progress else [])]
        self._of_steps = [one for one in self._all if type(one).after_step is not Callback.after_step]
        self._begun: list[Callback] = []
        self._late: Exception | None = None
        self.error: BaseException | None = None
        """What a callback has raised; on other ranks than the first, the error that says so."""

    def __enter__(self) -> Self:
        try:
            self._on_first(self._begin)
        except BaseException as error:
            self._end_after(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._on_first(self._end)
        else:  # the other ranks may not answer any more
            self._end_after(error)

    def after_step(self, terms: Callable[[], Mapping[str, float]]) -> None:
        """Count a step, and call who listens to steps; ``terms`` is called only if somebody does.

        Of several ranks none waits for the others here: an error is raised after the epoch.
        """
        self.fit.step += 1
        team = current_team()
        if not self._of_steps or not team.first or self._late:
            return
        try:
            with use_team(Team()):
                found = terms()
                for one in self._of_steps:
                    one.after_step(self.fit, found)
        except Exception as error:
            self._late = error
            if team.size == 1:
                self.error = error
                raise

    def after_epoch(self, record: EpochRecord) -> None:
        """Count an epoch, call the callbacks, and do what they have decided."""
        self.fit.epoch += 1

        def call() -> tuple[str | None, bool]:
            if self._late:
                raise self._late
            for one in self._all:
                one.after_epoch(self.fit, record)
            return self.fit._decided()

        self.fit._do(*self._on_first(call))

    def _begin(self) -> None:
        for one in self._all:
            one.begin(self.fit)
            self._begun.append(one)

    def _end(self) -> None:
        while self._begun:
            self._begun.pop(0).end(self.fit)

    def _end_after(self, error: BaseException) -> None:
        """Call ``end`` after an error, which stays the one that is raised; others become notes."""
        if self._late not in (None, error):
            error.add_note(f"Before, a callback raised {type(self._late).__name__}: {self._late}")
        while self._begun:
            one = self._begun.pop(0)
            try:
                one.end(self.fit)
            except Exception as other:
                error.add_note(f"Then {type(one).__name__}.end raised {type(other).__name__}: {other}")

    def _on_first(self, work: Callable[[], Any]) -> Any:
        try:
            return current_team().on_first(work)
        except BaseException as error:
            self.error = error
            raise


def several(callbacks: Any) -> list[Any]:
    """Return callbacks as a list; raise TypeError for a single one."""
    if isinstance(callbacks, Iterable):
        return list(callbacks)
    kind = type(callbacks).__name__
    raise TypeError(
        f"callbacks must be a list, got {kind}. Try [{kind}(...)]"
        if isinstance(callbacks, Callback)
        else f"callbacks must be a list, got {callbacks!r}. Try it in a list: [CSVLog('log.csv')]"
    )


def _as_callback(given: Any) -> Callback:
    if isinstance(given, Callback):
        return given
    if callable(given) and not isinstance(given, type):
        return _AfterEpoch(given)
    raise TypeError(
        f"callbacks must be Callback objects or functions of (fit, record), got {given!r}. Try an object such as "
        "CSVLog('log.csv'), or lambda fit, record: print(record.loss)"
    )


class Progress(Callback):
    """A progress bar over all steps: of tqdm on a terminal and in notebooks, a line every half minute elsewhere.

    ``fit(progress=True)``, the default, adds one.
    """

    _bar: ProgressBar

    def begin(self, fit: Fit) -> None:
        """Begin the bar."""
        self._bar = progress_bar(fit.label, fit.steps, unit=fit.unit, show=True, done=fit.step)
        self._shown_at, self._sum, self._steps, self._shown = time.monotonic(), 0.0, 0, dict[str, str]()

    def after_step(self, fit: Fit, terms: Mapping[str, float]) -> None:
        """Count the step, and show the mean loss of the epoch so far."""
        if math.isfinite(terms["loss"]):  # a step without a finite task has no loss
            self._sum, self._steps = self._sum + terms["loss"], self._steps + 1
        now = time.monotonic()
        if now - self._shown_at >= REFRESH:
            self._shown_at = now
            self._show(fit, self._sum / self._steps if self._steps else math.nan)

    def after_epoch(self, fit: Fit, record: EpochRecord) -> None:
        """Show the epoch's loss; validation and number of bad tasks stay beside those of the next epoch."""
        self._sum, self._steps = 0.0, 0
        if record.validation is not None:
            before = "" if record.validation_before is None else f"{record.validation_before:.3g} -> "
            self._shown["validation"] = f"{before}{record.validation:.3g}"
        if record.bad_tasks:
            self._shown["bad"] = str(record.bad_tasks)
        self._show(fit, record.loss)

    def _show(self, fit: Fit, loss: float) -> None:
        shown = {"loss": f"{loss:.3g}", **self._shown}
        shown["peak"] = f"{peak_memory(fit.method.network.device) / 2**30:.2f} GiB"
        self._bar.update(fit.step - self._bar.done, **shown)

    def end(self, fit: Fit) -> None:
        """Leave the bar as it is."""
        self._bar.close()


class CSVLog(Callback):
    """A table with a row for every epoch: what numbers its ``EpochRecord`` has, and the seconds since the beginning.

    Args:
        path: the file; one that is there is replaced. It is complete after every epoch.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def begin(self, fit: Fit) -> None:
        """Begin the file with the names of the columns."""
        self._write("w", [*COLUMNS, "seconds"])

    def after_epoch(self, fit: Fit, record: EpochRecord) -> None:
        """Add a row; what was not computed stays empty."""
        self._write("a", [*(getattr(record, name) for name in COLUMNS), round(fit.elapsed, 3)])

    def _write(self, mode: str, row: list[Any]) -> None:
        with Path(self.path).open(mode, newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(row)


class TensorBoardLog(Callback):
    """Event files for ``tensorboard --logdir FOLDER``: all numbers of every epoch's record, by number of steps.

    Needs ``pip install 'metaprior[tensorboard]'``.

    Args:
        folder: where the files are written, one for each fit.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder

    def begin(self, fit: Fit) -> None:
        """Open an event file."""
        try:
            from torch.utils.tensorboard import SummaryWriter  # takes seconds to import
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "TensorBoardLog needs TensorBoard, which is not installed. Try pip install 'metaprior[tensorboard]'"
            ) from error
        self._writer: Any = SummaryWriter(os.fspath(self.folder))

    def after_epoch(self, fit: Fit, record: EpochRecord) -> None:
        """Write the numbers of the record."""
        write_scalars(self._writer, {**asdict(record), "seconds": fit.elapsed}, fit.step)

    def end(self, fit: Fit) -> None:
        """Close the file."""
        self._writer.close()


class EarlyStopping(Callback):
    """Stop when a number has not improved for some epochs, and keep the best epoch.

    Learning rates that fall over the planned length of the fit have not come to their end when it stops: the result is
    that of the first epochs of a long fit, not that of a short one.

    Args:
        metric: the name of a number in ``EpochRecord``, lower is better. "validation" needs validation data in ``fit``.
        patience: epochs without an improvement after which the fit stops.
        min_delta: what is less than this below the best value is no improvement.
        keep_best: let the fit end with what was learned in the best epoch, also if it is not stopped.
    """

    def __init__(
        self, metric: str = "validation", *, patience: int = 20, min_delta: float = 0.0, keep_best: bool = True
    ) -> None:
        self.metric, self.patience, self.min_delta, self.keep_best = metric, patience, min_delta, keep_best

    def begin(self, fit: Fit) -> None:
        """Check the settings, and forget an earlier fit."""
        if self.metric not in NUMBERS:
            raise ValueError(f"metric must be one of {', '.join(NUMBERS)}, got {self.metric!r}")
        if self.metric == "validation" and not fit.validates:
            raise ValueError(
                "validation must be given to fit for EarlyStopping, got a fit without it. Try fit(..., "
                "validation=...), or EarlyStopping(metric='loss')"
            )
        check_counts(patience=self.patience)
        check_not_negative("min_delta", self.min_delta)
        self.best, self.best_epoch = math.inf, fit.epoch

    def after_epoch(self, fit: Fit, record: EpochRecord) -> None:
        """Compare the epoch with the best one; warm start and KL warm-up do not count, and NaN is no improvement."""
        value = getattr(record, self.metric)
        if record.phase in (WARM_START, WARM_UP):
            self.best_epoch = fit.epoch
            return
        if value is None:
            raise ValueError(
                f"{self.metric} must be a number for EarlyStopping, got None in epoch {record.epoch}. Try "
                "fit(..., validation=...), or EarlyStopping(metric='loss')"
            )
        if value < self.best - self.min_delta:
            self.best, self.best_epoch = value, fit.epoch
            if self.keep_best:
                fit.keep()
        elif fit.epoch - self.best_epoch >= self.patience:
            fit.stop(f"{self.metric} has not improved on {self.best:.6g} for {self.patience} epochs")


class SaveEvery(Callback):
    """Save what is learned every so many epochs, as ``method.save`` does, for ``metaprior.load``.

    Args:
        folder: where to save. ``{epoch}`` in it becomes the number of epochs done ("priors/{epoch:03}"); without it
            the last one replaces the one before.
        epochs: epochs from one to the next.
    """

    def __init__(self, folder: str | os.PathLike[str], *, epochs: int = 1) -> None:
        self.folder, self.epochs = folder, epochs

    def begin(self, fit: Fit) -> None:
        """Check the setting."""
        check_counts(epochs=self.epochs)

    def after_epoch(self, fit: Fit, record: EpochRecord) -> None:
        """Save if it is time to."""
        if fit.epoch % self.epochs == 0:
            fit.fitted().save(os.fspath(self.folder).format(epoch=fit.epoch))


def write_scalars(writer: Any, values: Mapping[str, Any], step: int) -> None:
    """Write all finite numbers in ``values``, at any depth and by their path, to a ``SummaryWriter``."""
    for name, value in _numbers(values):
        if math.isfinite(value):
            writer.add_scalar(name, value, step)
    writer.flush()


def _numbers(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key not in ("epoch", "step"):
            found.append((prefix + key, float(value)))
    return found
