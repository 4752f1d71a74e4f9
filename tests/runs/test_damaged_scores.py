"""A report of a run whose scores.json is not what was written: what the user is told, and that the advice helps."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metaprior.runs import finish
from metaprior.runs.folder import RunFolderError
from metaprior.runs.reporting import report_run
from metaprior.runs.solar_scores import PRIOR
from tests.runs.conftest import SolarRun
from tests.runs.tiny_solar import NIGHTS, run

pytestmark = NIGHTS

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
        (lambda content: {**content, "shots": "3"}, "units and shots are 'W m-2' and '3', not a text and a number"),
        (lambda content: {**content, "methods": {}}, "methods have no scores of adapted and prior (not adapted)"),
        (lambda content: {**content, "methods": list(content["methods"])}, "no attribute 'items'"),
        (lambda content: {**content, "methods": dict.fromkeys(content["methods"], 1)}, "not iterable"),
        (lambda content: {**content, "fewer": {"few": {}}}, "'few'"),
        (without_a_column, "columns of sums are not those of this version"),
        (with_a_text_for_a_number, "str"),
    ],
)
def test_scores_that_are_none_are_named_and_what_to_do_is_said(
    folder: Path, damage: Callable[[Content], object], found: str
) -> None:
    path = folder / "scores.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(RunFolderError) as error:
        report_run(folder)
    message = str(error.value)
    assert message.startswith(f"{path} is damaged: it does not hold scores by lead time (")
    assert found in message
    assert "restore it from a copy" in message
    assert not (folder / "report.html").exists()


def test_the_advice_brings_the_scores_back(
    folder: Path, solar_run: SolarRun, june: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "draw", lambda *_: [])
    (folder / "scores.json").write_text("{}")
    with pytest.raises(RunFolderError, match=f'write "finished": false into {folder / "run.json"}') as error:
        report_run(folder)
    assert "metaprior train again with --resume" in str(error.value)
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "finished": False}))
    run(folder, june, resume=True)
    assert (folder / "scores.json").read_text() == (solar_run.folder / "scores.json").read_text()
    assert report_run(folder).exists()
