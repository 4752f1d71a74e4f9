"""Plants as the tasks of a run: their division, training that resumes, evaluation, report and forecasts from it."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from metaprior.cli import app
from metaprior.runs.reading import ConfigError, parse, read_config
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from metaprior.solar.sites.simulator.writing import write_power
from metaprior.solar.sites.source import fleet_source, simulated_source
from metaprior.solar.sites.task_settings import SitesTasks
from tests.team.torchrun import torchrun

FEW = [
    "meta.epochs=2",
    "meta.schedule=constant",
    "meta.tasks_per_epoch=32",
    "meta.meta_batch=8",
    "evaluate.tasks=3",
    "tasks.days=40",
]
SECTIONS = {"model": {"kind": "sites"}, "tasks": {"kind": "sites"}, "adaptation": {"kind": "context"}}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = simulate_fleet(6, 40, seed=2)
    path = tmp_path_factory.mktemp("fleet") / "fleet.csv"
    write_power(made.plants, made.parameters, path)
    return path


def train(run: Path, *changes: str, resume: bool = False) -> str:
    options = [part for change in [*FEW, *changes] for part in ("--set", change)]
    result = CliRunner().invoke(app, ["train", "sites", "--run", str(run), "--quiet", *options, *["--resume"] * resume])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.output


def test_plants_are_divided_and_tasks_are_functions_of_seed_and_number(fleet: Path) -> None:
    for source in (fleet_source(SitesTasks(path=str(fleet))), simulated_source(SitesTasks(plants=20, days=40))):
        facts = source.describe()
        names = [set(facts[purpose]) for purpose in ("train", "val", "test")]
        assert all(names)
        assert len(facts["train"]) > len(facts["test"])
        for purpose in ("train", "val", "test"):
            one, again = source.tasks(purpose)[5], source.tasks(purpose)[5]
            assert torch.equal(one.query.x, again.query.x)
            assert torch.isfinite(one.query.y).any()
        assert torch.isfinite(source.tasks("test")[0].support.y).sum() >= 168
    parts = fleet_source(SitesTasks(path=str(fleet))).describe()
    assert len({*parts["train"], *parts["val"], *parts["test"]}) == 6


def test_a_run_on_a_fleet_resumes_is_evaluated_reported_and_forecasts(fleet: Path, tmp_path: Path) -> None:
    own = (f"tasks.path={fleet}", f"tasks.sites={fleet.with_name('fleet_sites.csv')}")
    assert "4 plants to train" in train(tmp_path / "whole", *own)
    train(tmp_path / "parts", *own, "meta.epochs=1")
    train(tmp_path / "parts", *own, resume=True)
    rows = [json.loads((tmp_path / name / "evaluation.json").read_text())["rows"] for name in ("whole", "parts")]
    assert rows[0] == rows[1]
    assert [row["shots"] for row in rows[0]] == [0, 1, 3, 7, None]
    for command in (["evaluate", "--tasks", "2"], ["report"]):
        result = CliRunner().invoke(app, [command[0], str(tmp_path / "whole"), *command[1:]])
        assert result.exit_code == 0, result.output + str(result.exception)
    assert "learned from 4 plants" in (tmp_path / "whole" / "report.html").read_text()
    forecast = SiteForecaster.pretrained(tmp_path / "whole").adapt(fleet).predict()
    assert len(forecast) == 36


@pytest.mark.slow
def test_two_processes_train_on_a_fleet_as_one(fleet: Path, tmp_path: Path) -> None:
    own = (f"tasks.path={fleet}", f"tasks.sites={fleet.with_name('fleet_sites.csv')}")
    train(tmp_path / "one", *own)
    options = [part for change in [*FEW, *own] for part in ("--set", change)]
    ended = torchrun("metaprior", "train", "sites", "--run-dir", tmp_path / "two", "--quiet", *options)
    assert ended.code == 0, ended.said()
    one, two = (json.loads((tmp_path / name / "evaluation.json").read_text())["rows"] for name in ("one", "two"))
    assert len(one) == len(two) == 5
    for first, second in zip(one, two, strict=True):
        assert second["rmse"] == pytest.approx(first["rmse"], rel=1e-4)
        assert second["crps"] == pytest.approx(first["crps"], rel=1e-4)


def test_what_does_not_fit_is_said(fleet: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.components is 2, likelihood.components is 3"):
        read_config("sites", ["model.components=2"])
    with pytest.raises(ConfigError, match=r"needs model.kind 'sites' and likelihood.kind 'mixture'"):
        parse({**SECTIONS, "likelihood": {"kind": "gaussian"}}, "sites.toml")
    few = simulate_fleet(2, 20, seed=2)
    write_power(few.plants, few.parameters, tmp_path / "few.csv")
    with pytest.raises(ValueError, match="at least three plants with 16 days of power"):
        fleet_source(SitesTasks(path=str(tmp_path / "few.csv")))
