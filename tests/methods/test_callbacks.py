"""Callbacks in the fits of methods that learn from tasks; the protocol itself: tests/test_callbacks.py."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior import callbacks
from metaprior.callbacks import Callback, CSVLog, EarlyStopping, Fit, SaveEvery
from metaprior.team import OtherRankFailed
from tests.bars import recorded_bars
from tests.methods.small_hierarchy import FAST, inference, waves
from tests.methods.small_learner import assert_same_theta, small_learner
from tests.methods.test_collapsed_hierarchical_vi import inference as collapsed
from tests.methods.test_collapsed_hierarchical_vi import same_forecast
from tests.methods.test_collapsed_hierarchical_vi import waves as collapsed_waves
from tests.team.fake import outcomes, together
from tests.training.lines import line, lines

UNSEEN = [line(i, spread=1.0) for i in range(500, 504)]
FOUR: dict[str, Any] = {"epochs": 4, "tasks_per_epoch": 8, "progress": False, "search_step_size": False, "lr": 0.05}


@dataclass
class Snapshots(Callback):
    """What was learned after each epoch, and the terms of every step."""

    stop_after: int = 10**6
    learned: list[Any] = field(default_factory=list)
    terms: list[Mapping[str, float]] = field(default_factory=list)
    records: list[mp.EpochRecord] = field(default_factory=list)
    fit: Fit | None = None

    def begin(self, fit: Fit) -> None:
        self.fit = fit

    def after_step(self, fit: Fit, terms: Mapping[str, float]) -> None:
        self.terms.append(terms)

    def after_epoch(self, fit: Fit, record: mp.EpochRecord) -> None:
        self.records.append(record)
        self.learned.append(fit.fitted())
        if fit.epoch == self.stop_after:
            fit.stop("enough")


def broken(fit: Fit, record: mp.EpochRecord) -> None:
    if fit.epoch == 2:
        raise RuntimeError("broken callback")


def test_a_learner_that_is_stopped_is_what_it_was_after_that_epoch_of_the_whole_fit() -> None:
    whole, stopped = Snapshots(), Snapshots(stop_after=3)
    settings = {**FOUR, "warm_start": 2, "validation": UNSEEN, "calibrate": False}
    plain = small_learner().fit(lines(8), **settings)
    expected = small_learner().fit(lines(8), **settings, callbacks=[whole])
    found = small_learner().fit(lines(8), **settings, callbacks=[stopped])
    assert_same_theta(expected.theta_, plain.theta_)
    assert plain.history_ == expected.history_ == whole.records
    assert_same_theta(found.theta_, whole.learned[2].theta_)
    assert found.history_ == expected.history_[:3] == whole.learned[2].history_
    assert whole.fit is not None
    assert (whole.fit.epochs, whole.fit.epoch, whole.fit.steps, whole.fit.step) == (5, 5, 10, 10)
    assert [record.phase for record in whole.records][:1] == ["warm start"]
    for record, own in zip(whole.records, (whole.terms[:2], whole.terms[2:4]), strict=False):
        assert record.loss == pytest.approx(sum(one["loss"] for one in own) / len(own))
        assert record.terms["kl"] == pytest.approx(sum(one["kl"] for one in own) / len(own))


def test_what_is_learned_so_far_predicts_and_is_saved(tmp_path: Path) -> None:
    seen = Snapshots()
    save = SaveEvery(tmp_path / "{epoch}", epochs=2)
    learner = small_learner().fit(lines(8), **FOUR, callbacks=[seen, save])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "4"]
    for epochs in (2, 4):
        loaded = mp.load(tmp_path / str(epochs))
        assert isinstance(loaded, mp.MetaLearner)
        assert_same_theta(loaded.theta_, seen.learned[epochs - 1].theta_)
        assert len(loaded.history_) == epochs
    x = UNSEEN[0].query.x
    assert torch.equal(seen.learned[-1].predict(x).mean, learner.predict(x).mean)
    assert not torch.equal(seen.learned[0].predict(x).mean, learner.predict(x).mean)


def test_early_stopping_ends_with_the_best_epoch(tmp_path: Path) -> None:
    """The large learning rate ruins theta sooner or later."""
    seen = Snapshots()
    settings = {**FOUR, "epochs": 12, "schedule": "constant", "lr": 0.8, "validation": UNSEEN, "calibrate": False}
    given = [EarlyStopping(patience=2), seen, CSVLog(tmp_path / "log.csv")]
    learner = small_learner().fit(lines(8), **settings, callbacks=given)
    scores = [record.validation or 0.0 for record in learner.history_]
    best = min(range(len(scores)), key=scores.__getitem__)
    assert len(scores) == best + 3 < 12
    assert_same_theta(learner.theta_, seen.learned[best].theta_)
    with (tmp_path / "log.csv").open(newline="") as file:
        assert [float(row["validation"]) for row in csv.DictReader(file)] == scores


def test_an_error_of_a_callback_keeps_what_was_learned() -> None:
    seen, learner = Snapshots(), small_learner()
    with pytest.raises(RuntimeError, match="broken callback"):
        learner.fit(lines(8), **FOUR, callbacks=[seen, broken])
    assert_same_theta(learner.theta_, seen.learned[1].theta_)
    assert len(learner.history_) == 2
    with pytest.raises(TypeError, match="callbacks must be"):
        learner.fit(lines(8), **FOUR, callbacks=["progress"])
    assert len(learner.history_) == 2, "the earlier fit stays"


def test_a_choice_of_adaptation_hands_callbacks_on_to_the_full_training() -> None:
    seen = Snapshots(stop_after=1)
    learner = small_learner(adaptation="auto", examples_per_shot=1)
    with pytest.warns(UserWarning, match="auto_share"):
        learner.fit(lines(10), **{**FOUR, "epochs": 2}, validation=UNSEEN, calibrate=False, callbacks=[seen])
    assert len(learner.history_) == 1
    assert_same_theta(learner.theta_, seen.learned[0].theta_)


def test_bars_of_fits_count_steps_and_rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bars = recorded_bars(monkeypatch, callbacks)
    small_learner().fit(lines(8), **{**FOUR, "progress": True}, warm_start=3)
    inference(tmp_path).fit(waves(3), **{**FAST, "progress": True}, task_batch=2)
    counted = [(bar.label, bar.total, bar.counts[-1]) for bar in bars if bar.label != "checking tasks"]
    assert counted == [("Meta-Training", 11, 11), ("hierarchy", 4, 4)]


def test_all_ranks_stop_and_keep_alike() -> None:
    settings = {**FOUR, "epochs": 12, "schedule": "constant", "lr": 0.8, "meta_batch": 2, "calibrate": False}

    def work(team: Any) -> tuple[Any, int]:
        seen = Snapshots()
        given = [EarlyStopping(patience=2), seen]
        learner = small_learner().fit(lines(8), **settings, validation=UNSEEN, callbacks=given)
        return learner, len(seen.learned)

    (first, called), (second, never_called) = together(2, work)
    assert (called, never_called) == (len(first.history_), 0)
    assert first.history_ == second.history_
    assert len(first.history_) < 12
    assert_same_theta(second.theta_, first.theta_)
    found = outcomes(2, lambda team: small_learner().fit(lines(8), **FOUR, meta_batch=2, callbacks=[broken]))
    assert [type(one) for one in found] == [RuntimeError, OtherRankFailed]


def test_a_hierarchy_that_is_stopped_is_finished_and_goes_on_later(tmp_path: Path) -> None:
    seen, rows = Snapshots(stop_after=2), tmp_path / "log.csv"
    hvi = inference(tmp_path / "store")
    settings = {**FAST, "epochs": 5, "task_batch": 2}
    hvi.fit(waves(3), **settings, callbacks=[seen, CSVLog(rows), SaveEvery(tmp_path / "{epoch}")])
    assert len(hvi.history_) == 2
    assert hvi.history_ == seen.records
    assert len(rows.read_text().splitlines()) == 3
    assert len(seen.terms) == 4
    record = seen.records[0]
    assert record.nll != seen.terms[1]["nll"], "of the tasks of the round alone"
    whole = inference(tmp_path / "whole").fit(waves(3), **settings)
    assert whole.history_[:2] == hvi.history_
    first = mp.load(tmp_path / "1")
    assert isinstance(first, mp.HierarchicalVI)
    assert len(first.history_) == 1
    x = torch.zeros(2, 1, dtype=torch.float64)
    assert first.predict(x).mean.isfinite().all()
    hvi.fit(waves(3), **settings)
    assert len(hvi.history_) == 7, "another fit, from where the stopped one ended"


def test_a_hierarchy_returns_to_its_last_commit_after_an_error(tmp_path: Path) -> None:
    hvi = inference(tmp_path)
    with pytest.raises(RuntimeError, match="broken callback"):
        hvi.fit(waves(3), **{**FAST, "epochs": 5}, callbacks=[broken])
    assert len(hvi.history_) == 1
    hvi.fit(waves(3), **{**FAST, "epochs": 5}, resume=True)
    assert len(hvi.history_) == 5


def test_a_hierarchy_cannot_keep_an_earlier_epoch(tmp_path: Path) -> None:
    hvi = inference(tmp_path)
    with pytest.raises(TypeError, match=r"keep\(\) must not be called for HierarchicalVI.*try keep_best=False"):
        hvi.fit(waves(3), **FAST, callbacks=[EarlyStopping("loss")])


def test_collapsed_inference_that_is_stopped_has_the_draws_of_that_round(tmp_path: Path) -> None:
    whole, stopped = Snapshots(), Snapshots(stop_after=4)

    def fit(callback: Callback) -> Any:
        return collapsed().fit(collapsed_waves(), progress=False, callbacks=[callback])

    expected, found = fit(whole), fit(stopped)
    assert same_forecast(expected.prior_predictive(), whole.learned[-1].prior_predictive())
    assert same_forecast(found.prior_predictive(), whole.learned[3].prior_predictive())
    assert not same_forecast(found.prior_predictive(), expected.prior_predictive())
    assert found.history_ == expected.history_[:4] == whole.learned[3].history_
    assert [one["loss"] for one in whole.terms] == [record.loss for record in whole.records]
    whole.learned[3].save(tmp_path)
    loaded = mp.load(tmp_path)
    assert isinstance(loaded, mp.HierarchicalVI)
    assert same_forecast(loaded.prior_predictive(), found.prior_predictive())
