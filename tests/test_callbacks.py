"""The protocol of callbacks with a loop that learns nothing; in real fits: tests/methods/test_callbacks.py."""

import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from metaprior import callbacks
from metaprior.callbacks import Callback, CSVLog, EarlyStopping, Fit, Listeners, Progress, SaveEvery, TensorBoardLog
from metaprior.history import EpochRecord
from metaprior.team import OtherRankFailed, Team
from tests.bars import recorded_bars
from tests.team.fake import outcomes, together


@dataclass
class Loop:
    """Epochs of two steps each whose losses are given; what is learned is the number of epochs done."""

    losses: Sequence[float]
    records: Sequence[EpochRecord] = ()
    network: Any = field(default_factory=lambda: SimpleNamespace(device=torch.device("cpu")))
    computed: int = 0
    kept: int | None = None
    saved: list[str] = field(default_factory=list)
    listeners: Listeners | None = None

    def run(self, given: Any = (), *, progress: bool = False, can_keep: bool = True, validates: bool = True) -> Fit:
        epochs = len(self.losses)
        keep = self.keep if can_keep else None
        fit = Fit(
            self, "counting", epochs=epochs, steps=2 * epochs, fitted=lambda: self, keep=keep, validates=validates
        )
        self.listeners = Listeners(fit, given, progress=progress)
        with self.listeners as listeners:
            for number, loss in enumerate(self.losses):
                for _ in range(2):
                    listeners.after_step(lambda loss=loss: self.terms(loss))  # type: ignore[misc]
                records = self.records or [EpochRecord(i + 1, one, one, 0.0) for i, one in enumerate(self.losses)]
                listeners.after_epoch(records[number])
                if fit.stopped is not None:
                    break
        return fit

    def terms(self, loss: float) -> Mapping[str, float]:
        self.computed += 1
        return {"loss": loss}

    def keep(self) -> None:
        assert self.listeners is not None
        self.kept = self.listeners.fit.epoch

    def save(self, folder: str) -> None:
        self.saved.append(folder)


@dataclass
class Recorder(Callback):
    """Writes down what is called; raises where it is told to."""

    raises_in: str = ""
    calls: list[str] = field(default_factory=list)

    def note(self, call: str, fit: Fit) -> None:
        self.calls.append(f"{call} {fit.epoch} {fit.step}")
        if call == self.raises_in:
            raise RuntimeError(f"broken {call}")

    def begin(self, fit: Fit) -> None:
        self.note("begin", fit)

    def after_epoch(self, fit: Fit, record: EpochRecord) -> None:
        self.note("epoch", fit)

    def end(self, fit: Fit) -> None:
        self.note("end", fit)


class StepRecorder(Recorder):
    def after_step(self, fit: Fit, terms: Mapping[str, float]) -> None:
        self.note("step", fit)


def test_calls_come_in_order_and_with_counts() -> None:
    one, seen = StepRecorder(), list[Any]()
    fit = Loop([3.0, 2.0]).run([one, lambda fit, record: seen.append((fit.epoch, fit.epochs, record.loss))])
    steps = ["step 0 1", "step 0 2", "epoch 1 2", "step 1 3", "step 1 4", "epoch 2 4"]
    assert one.calls == ["begin 0 0", *steps, "end 2 4"]
    assert seen == [(1, 2, 3.0), (2, 2, 2.0)]
    assert fit.stopped is None
    assert 0 <= fit.elapsed < 60


def test_terms_of_steps_are_computed_only_if_somebody_listens() -> None:
    loop = Loop([1.0])
    loop.run([Recorder(), lambda fit, record: None])
    assert loop.computed == 0
    loop.run([StepRecorder(), StepRecorder()])
    assert loop.computed == 2


def test_a_stop_ends_the_fit_after_the_epoch() -> None:
    class Stop(Callback):
        def after_step(self, fit: Fit, terms: Mapping[str, float]) -> None:
            if fit.step == 3:
                fit.stop("three steps are enough")

    one = Recorder()
    fit = Loop([1.0] * 9).run([Stop(), one])
    assert (fit.stopped, fit.epoch, fit.step) == ("three steps are enough", 2, 4)
    assert one.calls[-2:] == ["epoch 2 4", "end 2 4"]


@pytest.mark.parametrize("given", [CSVLog, "log.csv", 3])
def test_what_is_no_callback_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"callbacks must be Callback objects or functions of \(fit, record\), got"):
        Loop([1.0]).run([given])


@pytest.mark.parametrize("place", ["begin", "step", "epoch"])
def test_an_error_of_a_callback_ends_the_fit_and_all_that_began(place: str) -> None:
    first, broken, last = Recorder(), StepRecorder(place), Recorder()
    loop = Loop([1.0, 1.0])
    with pytest.raises(RuntimeError, match=f"broken {place}") as found:
        loop.run([first, broken, last])
    assert loop.listeners is not None
    assert loop.listeners.error is found.value
    assert first.calls[-1].startswith("end ")
    assert ("end" in broken.calls[-1]) == (place != "begin")
    assert bool(last.calls) == (place != "begin")


def test_an_error_while_closing_is_raised_and_hides_no_other(tmp_path: Path) -> None:
    loop = Loop([1.0])
    with pytest.raises(RuntimeError, match="broken end") as found:
        loop.run([Recorder("end")])
    assert loop.listeners is not None
    assert loop.listeners.error is found.value
    closed = Recorder()
    with pytest.raises(RuntimeError, match="broken epoch") as found:
        loop.run([Recorder("epoch"), Recorder("end"), closed])
    assert found.value.__notes__ == ["Then Recorder.end raised RuntimeError: broken end"]
    assert closed.calls[-1] == "end 1 2"


def test_csv_has_a_row_for_every_epoch(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("an earlier fit")
    lengths = list[int]()
    records = [EpochRecord(1, 3.0, 2.5, 0.5, phase="warm start"), EpochRecord(2, math.nan, 1.0, 0.5, validation=0.25)]
    Loop([0, 0], records).run([CSVLog(path), lambda fit, record: lengths.append(len(path.read_text().splitlines()))])
    assert lengths == [2, 3], "complete after every epoch"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert [row["phase"] for row in rows] == ["warm start", ""]
    assert [row["loss"] for row in rows] == ["3.0", "nan"]
    assert [row["validation"] for row in rows] == ["", "0.25"]
    assert float(rows[1]["seconds"]) >= float(rows[0]["seconds"]) >= 0
    assert set(rows[0]) == {*callbacks.COLUMNS, "seconds"}


def test_tensorboard_can_read_the_events(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    record = EpochRecord(1, 3.0, 2.5, 0.5, grad_norms={"means": 0.1})
    Loop([0, 0], [record, replace(record, epoch=2, loss=math.nan)]).run([TensorBoardLog(tmp_path)])
    found = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert {"loss", "nll", "kl", "grad_norms/means", "seconds"} <= set(found.Tags()["scalars"])
    assert [(event.step, event.value) for event in found.Scalars("nll")] == [(2, 2.5), (4, 2.5)]
    assert [event.step for event in found.Scalars("loss")] == [2], "what is not finite is left out"


def test_without_tensorboard_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.utils.tensorboard", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=r"Try pip install 'metaprior\[tensorboard\]'"):
        Loop([1.0]).run([TensorBoardLog(tmp_path)])


@pytest.mark.parametrize(
    ("losses", "settings", "epochs", "best"),
    [
        ([3.0, 2.0, 2.0, 2.5, 1.0], {"patience": 2}, 4, 2),
        ([3.0, 2.0, 2.0, 2.5, 1.0], {"patience": 3}, 5, 5),
        ([3.0, 2.9, 2.4, 2.3, 1.0], {"patience": 2, "min_delta": 0.5}, 5, 5),
        ([3.0, 2.9, 2.8, 1.0], {"patience": 2, "min_delta": 0.5}, 3, 1),
        ([math.nan, 3.0, math.nan, math.nan, 1.0], {"patience": 2}, 4, 2),
        ([math.nan] * 5, {"patience": 2}, 2, None),
        ([3.0, 2.0, 2.5, 1.5], {"patience": 2, "keep_best": False}, 4, None),
    ],
)
def test_early_stopping(losses: list[float], settings: dict[str, Any], epochs: int, best: int | None) -> None:
    stopping, loop = EarlyStopping("loss", **settings), Loop(losses)
    for _ in range(2):  # an earlier fit is forgotten
        fit = loop.run([stopping], can_keep=settings.get("keep_best", True))
        assert (fit.epoch, loop.kept) == (epochs, best)
        assert (fit.stopped is None) == (epochs == len(losses))
    if fit.stopped is not None:
        assert fit.stopped.startswith("loss has not improved on ")


def test_early_stopping_does_not_compare_a_warm_start() -> None:
    warm = EpochRecord(1, 0.1, 0.1, 0.0, phase="warm start")
    later = [EpochRecord(2 + i, 9.0, 9.0, 0.0, validation=one) for i, one in enumerate((5.0, 4.0, 6.0, 6.0))]
    loop = Loop([0.0] * 5, [warm, *later])
    fit = loop.run([EarlyStopping(patience=2)])
    assert (fit.epoch, loop.kept) == (5, 3)


@pytest.mark.parametrize(
    ("stopping", "message"),
    [
        (EarlyStopping(), r"validation must be a number for EarlyStopping, got None in epoch 1. Try fit\(..., valid"),
        (EarlyStopping("accuracy"), "metric must be one of .*loss, .*validation, .*got 'accuracy'"),
        (EarlyStopping("phase"), "metric must be one of "),
        (EarlyStopping("loss", patience=0), "patience must be an integer of at least 1, got 0"),
        (EarlyStopping("loss", patience="3"), "patience must be an integer of at least 1, got '3'"),  # type: ignore[arg-type]
        (EarlyStopping("loss", min_delta=-1.0), "min_delta must be a number of at least 0, got -1.0"),
        (SaveEvery("prior", epochs=0), "epochs must be an integer of at least 1, got 0"),
    ],
)
def test_wrong_settings_are_refused(stopping: Callback, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Loop([1.0]).run([stopping])


def test_early_stopping_without_validation_is_refused_before_the_first_step() -> None:
    loop = Loop([1.0])
    with pytest.raises(ValueError, match=r"validation must be given to fit for EarlyStopping.*metric='loss'"):
        loop.run([EarlyStopping()], validates=False)
    assert loop.computed == 0
    assert loop.run([EarlyStopping("loss")], validates=False).epoch == 1


def test_callbacks_are_a_list() -> None:
    with pytest.raises(TypeError, match=r"callbacks must be a list, got EarlyStopping. Try \[EarlyStopping\(...\)\]"):
        Loop([1.0]).run(EarlyStopping("loss"))
    with pytest.raises(TypeError, match=r"callbacks must be a list, got <built-in function print>. Try it in a list"):
        Loop([1.0]).run(print)


def test_what_has_no_copy_of_its_state_keeps_no_best_epoch() -> None:
    with pytest.raises(TypeError, match=r"keep\(\) must not be called for Loop, .*try keep_best=False"):
        Loop([1.0]).run([EarlyStopping("loss")], can_keep=False)


def test_saving_every_so_many_epochs(tmp_path: Path) -> None:
    loop = Loop([1.0] * 5)
    loop.run([SaveEvery(tmp_path / "{epoch:03}", epochs=2), SaveEvery("last", epochs=4)])
    assert loop.saved == [str(tmp_path / "002"), str(tmp_path / "004"), "last"]


def test_the_bar_counts_all_steps_and_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    (bars, shown) = recorded_bars(monkeypatch, callbacks), list[Mapping[str, str]]()
    monkeypatch.setattr(callbacks, "REFRESH", 0.0)
    show = Progress._show
    monkeypatch.setattr(
        Progress, "_show", lambda self, fit, loss: (shown.append({"loss": loss}), show(self, fit, loss))
    )
    Loop([4.0, math.nan]).run(progress=True)
    Loop([4.0]).run()
    (bar,) = bars
    assert (bar.label, bar.total, bar.show) == ("counting", 4, True)
    assert bar.counts == [1, 2, 2, 3, 4, 4]
    assert [one["loss"] for one in shown[:3]] == [4.0, 4.0, 4.0]
    assert all(math.isnan(float(one["loss"])) for one in shown[3:])


class Deciding(Recorder):
    """Stops in the second epoch, and keeps the first."""

    def after_epoch(self, fit: Fit, record: EpochRecord) -> None:
        super().after_epoch(fit, record)
        if fit.epoch == 1:
            fit.keep()
        else:
            fit.stop("enough")


def test_the_first_rank_is_called_and_decides_for_all() -> None:
    def work(team: Team) -> tuple[Any, ...]:
        loop, callback = Loop([1.0] * 4), Deciding()
        fit = loop.run([callback])
        return fit.stopped, fit.epoch, fit.step, loop.kept, callback.calls

    first, second = together(2, work)
    assert first[:4] == second[:4] == ("enough", 2, 4, 1)
    assert first[4] == ["begin 0 0", "epoch 1 2", "epoch 2 4", "end 2 4"]
    assert second[4] == []


@pytest.mark.parametrize("place", ["begin", "step", "epoch", "end"])
def test_an_error_on_the_first_rank_is_raised_on_all(place: str) -> None:
    loops = [Loop([1.0] * 3), Loop([1.0] * 3)]
    first, second = outcomes(2, lambda team: loops[team.rank].run([StepRecorder(place)]))
    assert isinstance(first, RuntimeError)
    assert str(first) == f"broken {place}"
    assert isinstance(second, OtherRankFailed)
    for loop, error in zip(loops, (first, second), strict=True):
        assert loop.listeners is not None
        assert loop.listeners.error is error
        assert loop.listeners.fit.step == (2 if place in ("step", "epoch") else 0 if place == "begin" else 6)


def test_an_error_of_a_step_is_told_if_another_one_comes_first() -> None:
    class Diverging(Loop):
        def run(self, given: Any = (), **options: Any) -> Fit:
            fit = Fit(self, "counting", epochs=1, steps=2, fitted=lambda: self)
            with Listeners(fit, given) as listeners:
                listeners.after_step(lambda: {"loss": 1.0})
                raise FloatingPointError("diverged")

    first, second = outcomes(2, lambda team: Diverging([1.0]).run([StepRecorder("step")]))
    assert isinstance(first, FloatingPointError)
    assert first.__notes__ == ["Before, a callback raised RuntimeError: broken step"]
    assert isinstance(second, FloatingPointError)
