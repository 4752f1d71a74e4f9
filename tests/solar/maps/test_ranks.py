"""The end of a run, ``evaluate`` and ``predict`` by several ranks, of which only the first writes: files and numbers
are those of one process, to the last bit."""

import json
import shutil
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from metaprior import posterior as posteriors
from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs import finish
from metaprior.runs.config import Config
from metaprior.runs.finish import evaluate_run
from metaprior.runs.folder import RunFolder
from metaprior.runs.learned import learned
from metaprior.runs.sources import LearnedRun
from metaprior.runs.tensorboard import EventFiles
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.forecast_inputs import ForecastRequest
from metaprior.solar.maps.prediction import predict
from metaprior.solar.maps.run_scores import score_run
from metaprior.solar.maps.source import SolarSource
from metaprior.solar.simulator import simulate, write_frames
from metaprior.tasks.task import Examples
from metaprior.team import OtherRankFailed, Team
from metaprior.team.agreement import Disagreement
from tests.solar.maps.conftest import SolarRun
from tests.team.fake import outcomes, together

NOON = "2025-06-02T11:30"


@pytest.fixture(scope="module")
def prior(solar_run: SolarRun) -> tuple[Config, MetaLearner]:
    return learned(RunFolder(solar_run.folder))


@pytest.fixture(scope="module")
def source(prior: tuple[Config, MetaLearner]) -> SolarSource:
    opened: SolarSource = prior[0].task_settings.open(progress=False)
    return opened


def copied(folder: Path, to: Path, **about: Any) -> Path:
    """A copy of a run, with another run.json."""
    shutil.copytree(folder, to)
    told = json.loads((to / "run.json").read_text())
    (to / "run.json").write_text(json.dumps({**told, **about}))
    return to


@pytest.mark.parametrize("size", [2, 3])
def test_scores_by_lead_time_are_those_of_one_process(
    prior: tuple[Config, MetaLearner], source: SolarSource, size: int
) -> None:
    alone = json.dumps(score_run(source, *prior).as_json())
    assert together(size, lambda _: json.dumps(score_run(source, *prior).as_json())) == [alone] * size


def test_a_rank_reads_the_windows_of_its_own_tasks_alone(
    prior: tuple[Config, MetaLearner], source: SolarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = MetaSolarPredictionDataset.windows, defaultdict[int, set[int]](set)

    def windows(self: MetaSolarPredictionDataset, index: int) -> Any:
        asked[threading.get_ident()].add(index)
        return real(self, index)

    monkeypatch.setattr(MetaSolarPredictionDataset, "windows", windows)

    def work(team: Team) -> set[int]:
        score_run(source, *prior)
        return asked[threading.get_ident()]

    assert together(2, work) == [{0}, {1}]


def test_tasks_that_fail_are_listed_in_their_order_and_all_failing_is_an_error_on_all_ranks(
    prior: tuple[Config, MetaLearner], source: SolarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, learner = prior
    real = learner.adapt
    first = {one.sum().item() for one in _supports(source)[:1]}

    def adapt(support: Examples, steps: int | None = None) -> object:
        if support.size == 3 and support.x.sum().item() in first:
            raise FloatingPointError("mu is not finite")
        return real(support, steps)

    monkeypatch.setattr(learner, "adapt", adapt)
    alone = score_run(source, config, learner)
    assert len(alone.failures) == 1
    for found in together(2, lambda _: score_run(source, config, learner)):
        assert json.dumps(found.as_json()) == json.dumps(alone.as_json())
        assert found.table() == alone.table()
    first |= {one.sum().item() for one in _supports(source)}
    for error in outcomes(2, lambda _: score_run(source, config, learner)):
        assert isinstance(error, FloatingPointError)
        assert "no task could be scored" in str(error)


def _supports(source: SolarSource) -> list[torch.Tensor]:
    dataset = source.tasks("test")
    return [dataset[index].support.x for index in range(2)]


class Board(EventFiles):
    """In place of TensorBoard."""

    def __init__(self) -> None:
        self.pictures: list[str] = []

    def add_picture(self, name: str, path: Path, step: int) -> None:
        assert path.exists()
        self.pictures.append(name)


def test_the_first_rank_alone_writes_the_end_of_a_run_and_has_its_folder(
    solar_run: SolarRun,
    prior: tuple[Config, MetaLearner],
    source: SolarSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finish, "draw", lambda *_: [])
    folder = copied(solar_run.folder, tmp_path / "run", finished=False, saved={})
    written = ("prior", "evaluation.json", "scores.json", "examples.nc", "forecast.png")
    for name in written:
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
    boards, said = [Board(), Board()], ([], [])

    def work(team: Team) -> None:
        run = RunFolder(folder if team.first else tmp_path / "elsewhere")
        end = LearnedRun(*prior, run, 5, lambda: None, said[team.rank].append)
        finish.finish(end, source, boards[team.rank], 5)

    together(2, work)
    assert not (tmp_path / "elsewhere").exists()
    assert [board.pictures for board in boards] == [["forecast"], []]
    assert RunFolder(folder).finished
    assert json.loads((folder / "run.json").read_text())["saved"] == {"prior": 5, "scores": 5}
    for name in ("evaluation.json", "scores.json"):
        assert (folder / name).read_bytes() == (solar_run.folder / name).read_bytes()
    with xr.open_dataset(folder / "examples.nc") as one, xr.open_dataset(solar_run.folder / "examples.nc") as other:
        xr.testing.assert_identical(one, other)
    assert [text for text in solar_run.said if "persistence" in text or "shots" in text] == said[0]
    assert said[1] == []


def test_a_full_disk_of_the_first_rank_stops_all(
    prior: tuple[Config, MetaLearner], source: SolarSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_json", full)
    monkeypatch.setattr(RunFolder, "note_saved", lambda *_: None)

    def work(team: Team) -> None:
        end = LearnedRun(*prior, RunFolder(tmp_path), 5, lambda: None, lambda _: None)
        finish.finish(end, source, EventFiles(), 5)

    first, second = outcomes(2, work)
    assert isinstance(first, OSError)
    assert isinstance(second, OtherRankFailed)
    assert "No space left" in str(second)


@pytest.mark.parametrize("size", [2, 4])
def test_a_run_is_evaluated_as_by_one_process(solar_run: SolarRun, size: int) -> None:
    alone = json.dumps(evaluate_run(solar_run.folder, tasks=3).as_json())
    found = together(size, lambda _: json.dumps(evaluate_run(solar_run.folder, tasks=3).as_json()))
    assert found == [alone] * size
    assert json.loads(alone)["rows"][0]["tasks"] == 3


def test_ranks_with_another_prior_or_none_stop_at_once(solar_run: SolarRun, tmp_path: Path) -> None:
    _, learner = learned(RunFolder(solar_run.folder))
    other = copied(solar_run.folder, tmp_path / "other")
    learner.theta_ = learner.theta_.replace(mu=learner.theta_.mu + 1e-3)
    learner.save(other / "prior")

    def different(team: Team) -> object:
        return evaluate_run(solar_run.folder if team.first else other)

    first, second = outcomes(2, different)
    assert isinstance(first, Disagreement)
    assert "prior: rank 0 has" in str(first)
    assert isinstance(second, OtherRankFailed)
    first, second = outcomes(2, lambda team: evaluate_run(solar_run.folder if team.first else tmp_path))
    assert isinstance(first, OtherRankFailed)
    assert isinstance(second, ValueError)


def wanted(folder: Path, archive: Path, out: Path, **changes: Any) -> ForecastRequest:
    return ForecastRequest(folder, archive, archive, out, **{"samples": 5, "at": NOON, **changes})


@pytest.mark.parametrize("size", [2, 3])
def test_a_forecast_by_several_ranks_is_that_of_one(
    solar_run: SolarRun, june: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(posteriors, "NUMBERS_AT_ONCE", 1)  # every sample by itself, so that all ranks have some
    alone, said = tmp_path / "alone.nc", list[str]()
    predict(wanted(solar_run.folder, june, alone), said.append)
    drawn: list[int] = []
    real = posteriors.Posterior._draw

    def draw(self: posteriors.Posterior, noise: Any, group: range) -> torch.Tensor:
        drawn.extend(group)
        return real(self, noise, group)

    monkeypatch.setattr(posteriors.Posterior, "_draw", draw)

    def work(team: Team) -> list[str]:
        heard: list[str] = []
        out = tmp_path / ("divided.nc" if team.first else "nowhere/divided.nc")  # a folder that others do not have
        predict(wanted(solar_run.folder, june, out), heard.append)
        return heard

    heard = together(size, work)
    assert heard[0][:3] == said[:3]
    assert sorted(drawn) == [0, 1, 2, 3, 4]
    assert not (tmp_path / "nowhere").exists()
    with xr.open_dataset(alone) as one, xr.open_dataset(tmp_path / "divided.nc") as other:
        xr.testing.assert_equal(one, other)
        assert np.isfinite(one["mean"].values).all()


def test_ranks_that_are_given_other_frames_stop_at_once(solar_run: SolarRun, june: Path, tmp_path: Path) -> None:
    other, out = tmp_path / "other.nc", tmp_path / "now.nc"
    write_frames(simulate(days=2, size=16, seed=1, start="2025-06-01", progress=False), other)

    def different(team: Team) -> None:
        predict(wanted(solar_run.folder, june if team.first else other, out), lambda _: None)

    first, second = outcomes(2, different)
    assert isinstance(first, Disagreement)
    assert "frames of --inputs: rank 0 has" in str(first)
    assert isinstance(second, OtherRankFailed)

    def missing(team: Team) -> None:
        predict(wanted(solar_run.folder, june if team.first else tmp_path / "no.nc", out), lambda _: None)

    first, second = outcomes(2, missing)
    assert isinstance(first, OtherRankFailed)
    assert isinstance(second, FileNotFoundError)
    assert not out.exists()


def test_what_the_first_rank_refuses_is_refused_by_all(solar_run: SolarRun, june: Path, tmp_path: Path) -> None:
    def work(team: Team) -> None:
        predict(wanted(solar_run.folder, june, tmp_path / "now.txt"), lambda _: None)

    first, second = outcomes(2, work)
    assert isinstance(first, ValueError)
    assert isinstance(second, OtherRankFailed)
