"""A run whose scores.json or solar.json is lost or damaged: what the user is told, and that the advice helps."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metaprior.runs import finish
from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.solar.maps.forecast_inputs import ForecastRequest
from metaprior.solar.maps.prediction import predict
from metaprior.solar.maps.report.content import report_run
from metaprior.solar.maps.run_scores import PRIOR
from metaprior.solar.maps.source import described_frames
from tests.solar.maps.conftest import SolarRun
from tests.solar.maps.tiny_run import run

Content = dict[str, Any]


@pytest.fixture
def folder(solar_run: SolarRun, tmp_path: Path) -> Path:
    copy = tmp_path / "run"
    shutil.copytree(solar_run.folder, copy)
    return copy


def without_a_column(content: Content) -> Content:
    content["methods"][PRIOR]["columns"].pop()
    return content


def with_a_text_for_a_number(content: Content) -> Content:
    content["methods"][PRIOR]["sums"] = {"task": [["many"]]}
    return content


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda _: {}, "'units' is missing"),
        (lambda _: [], "list indices"),
        (lambda _: None, "NoneType"),
        (
            lambda content: {**content, "shots": "3"},
            "units and shots must be a text and an integer, got 'W m-2' and '3'",
        ),
        (lambda content: {**content, "methods": {}}, "methods must have scores of adapted and prior (not adapted)"),
        (lambda content: {**content, "methods": list(content["methods"])}, "no attribute 'items'"),
        (lambda content: {**content, "methods": dict.fromkeys(content["methods"], 1)}, "not iterable"),
        (lambda content: {**content, "fewer": {"few": {}}}, "'few'"),
        (without_a_column, "columns of sums must be those of this version"),
        (with_a_text_for_a_number, "str"),
    ],
)
def test_damaged_scores_are_named_with_a_remedy(folder: Path, damage: Callable[[Content], object], found: str) -> None:
    path = folder / "scores.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(RunFolderError) as error:
        report_run(folder)
    message = str(error.value)
    assert message.startswith(f"{path} is damaged: it must hold scores by lead time (")
    assert found in message
    assert "restore it from a copy" in message
    assert not (folder / "report.html").exists()


def test_missing_scores_of_a_finished_run_are_not_taken_for_an_unfinished_run(folder: Path) -> None:
    path, about = folder / "scores.json", json.loads((folder / "run.json").read_text())
    path.unlink()
    with pytest.raises(RunFolderError) as error:
        report_run(folder)
    assert str(error.value) == (
        f"{path} does not exist, although the run has finished; restore it from a copy. Without one: write "
        f'"finished": false into {folder / "run.json"} and give the command of metaprior train again with --resume, '
        "which scores the run again from its checkpoint"
    )
    (folder / "run.json").write_text(json.dumps({**about, "finished": False}))
    with pytest.raises(RunFolderError, match=r"the run has not finished\. Continue it with metaprior train --resume"):
        report_run(folder)


@pytest.mark.parametrize(
    ("damage", "wrong"),
    [
        (lambda _: {}, "units, cadence, value_units, long_name, data_min, data_max, days"),
        (lambda _: [], "units, cadence, value_units, long_name, data_min, data_max, days"),
        (lambda content: {**content, "long_name": None}, "long_name"),
        (lambda content: {**content, "days": {"train": content["days"]["train"]}}, "days"),
        (lambda content: {**content, "days": {**content["days"], "test": ["2025-06-05"]}}, "days"),
    ],
)
def test_a_damaged_description_is_named_with_a_remedy(
    folder: Path, damage: Callable[[Content], object], wrong: str
) -> None:
    path = folder / "solar.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(RunFolderError) as error:
        report_run(folder)
    assert str(error.value) == (
        f"{path} is damaged: it must describe the frames of the run (missing or invalid: {wrong}). Restore "
        f'it from a copy. Without one: remove it, write "finished": false into {folder / "run.json"} and give the '
        "command of metaprior train again with --resume, which writes it"
    )
    assert not (folder / "report.html").exists()


def test_predict_evaluate_and_train_name_a_damaged_description_too(folder: Path, june: Path, tmp_path: Path) -> None:
    (folder / "solar.json").write_text("{}")
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "finished": False}))
    wanted = ForecastRequest(folder, june, june, tmp_path / "now.nc", at="2025-06-02T11:30")
    for use in (
        lambda: predict(wanted, lambda _: None),
        lambda: finish.evaluate_run(folder),
        lambda: run(folder, june, resume=True),
    ):
        with pytest.raises(RunFolderError, match="must describe the frames of the run") as error:
            use()
        assert "remove it, give the command of metaprior train again with --resume" in str(error.value)


def test_following_the_advice_restores_description_and_scores(
    folder: Path, solar_run: SolarRun, june: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "draw", lambda *_: [])
    (folder / "scores.json").write_text("{}")
    with pytest.raises(RunFolderError, match=f'write "finished": false into {folder / "run.json"}') as error:
        report_run(folder)
    assert "metaprior train again with --resume" in str(error.value)
    (folder / "solar.json").unlink()
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "finished": False}))
    run(folder, june, resume=True)
    assert described_frames(RunFolder(folder)) == described_frames(RunFolder(solar_run.folder))
    assert (folder / "scores.json").read_text() == (solar_run.folder / "scores.json").read_text()
    assert report_run(folder).exists()
