"""Runs on frames whose files state no units: with those of the configuration, and without any."""

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import xarray as xr

from metaprior.runs import finish
from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.solar.maps.forecast_file import read_forecast
from metaprior.solar.maps.forecast_inputs import ForecastRequest
from metaprior.solar.maps.prediction import predict
from metaprior.solar.maps.report import figures
from metaprior.solar.maps.report.content import report_run
from metaprior.solar.maps.report.example import ExampleForecast, read_examples
from metaprior.solar.maps.run_scores import read_scores
from metaprior.solar.simulator import simulate, write_frames
from tests.solar.maps.tiny_run import run

SCALED = ("tasks.units=scaled", "model.known=0")
STATED = ("tasks.value_units=counts", "tasks.long_name=brightness of the sky")


class FinishedRun(NamedTuple):
    """A run, its table of scores by lead time, and its page."""

    folder: Path
    said: list[str]
    page: str

    @property
    def example(self) -> ExampleForecast:
        return read_examples(self.folder / "examples.nc")[0]


@pytest.fixture(scope="module")
def npy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames") / "npy"
    write_frames(simulate(days=5, size=16, start="2025-06-01", progress=False), folder)
    return folder


@pytest.fixture(scope="module")
def stated(npy: Path, tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    folder = tmp_path_factory.mktemp("stated") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "draw", lambda *_: [])
        said = run(folder, npy, *SCALED, *STATED)
    return FinishedRun(folder, said, report_run(folder).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def silent(stated: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """The files that the run would have written if neither file nor configuration stated units."""
    folder = tmp_path_factory.mktemp("silent") / "run"
    shutil.copytree(stated.folder, folder)
    changes = {"scores.json": {"units": "1"}, "solar.json": {"value_units": "1", "long_name": "frames"}}
    for name, change in changes.items():
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | change))
    config = json.loads((folder / "config.json").read_text())
    config["tasks"] |= {"value_units": None, "long_name": None}
    (folder / "config.json").write_text(json.dumps(config))
    with xr.open_dataset(folder / "examples.nc", decode_timedelta=False) as examples:
        nameless = examples.load().assign_attrs(units="")  # as version 0.1.0 wrote it
    nameless.to_netcdf(folder / "examples.nc")
    table = read_scores(RunFolder(folder)).table()
    return FinishedRun(folder, [table], report_run(folder).read_text(encoding="utf-8"))


def labels(maps: ExampleForecast) -> set[str]:
    """Of the colour bars of the picture."""
    return {axes.get_ylabel() for axes in figures._forecast(maps).axes[4 * len(maps.target) :]}


def caption(page: str) -> str:
    found = re.search(r"<figcaption>([^<]*all lead times, in [^<]*)</figcaption>", page)
    assert found
    return found[1]


def test_units_of_the_configuration_are_in_the_files(stated: FinishedRun) -> None:
    described = json.loads((stated.folder / "solar.json").read_text())
    assert (described["value_units"], described["long_name"]) == ("counts", "brightness of the sky")
    assert json.loads((stated.folder / "scores.json").read_text())["units"] == "counts"
    assert "forecasts of brightness of the sky" in stated.page


@pytest.mark.parametrize(("which", "units"), [("stated", "counts"), ("silent", "units of the frames")])
def test_every_text_names_units(which: str, units: str, request: pytest.FixtureRequest) -> None:
    finished: FinishedRun = request.getfixturevalue(which)
    assert any(text.startswith(f"lead times in minutes, values in {units}\n") for text in finished.said)
    assert caption(finished.page).endswith(f"at all lead times, in {units}.")
    assert f"RMSE ({units}) by lead time" in finished.page
    assert f'CRPS <span class="unit">{units}</span>' in finished.page
    assert labels(finished.example) == {units}


def test_the_heading_of_an_evaluation_has_the_range_of_scaled_values(stated: FinishedRun) -> None:
    units = json.loads((stated.folder / "solar.json").read_text())["units"]
    (table,) = [text for text in stated.said if "network's units" in text]
    heading, columns, *_ = table.splitlines()
    low, high = (f"{units[name]:.6g}" for name in ("data_min", "data_max"))
    assert heading == f"unseen tasks, in the network's units (values from {low} to {high} as -1 to 1)"
    assert columns.split()[:2] == ["shots", "steps"]


def test_units_cannot_change_within_a_run(stated: FinishedRun, npy: Path) -> None:
    with pytest.raises(RunFolderError, match=r"tasks.value_units: the run has 'counts', now 'K'"):
        run(stated.folder, npy, *SCALED, "tasks.value_units=K", STATED[1], resume=True)


def test_a_forecast_has_the_units_of_the_run(
    stated: FinishedRun, silent: FinishedRun, npy: Path, tmp_path: Path
) -> None:
    for run_, units, words in ((stated, "counts", "counts"), (silent, "1", "units of the frames")):
        out, said = tmp_path / f"{units}.nc", list[str]()
        predict(ForecastRequest(run_.folder, npy, npy, out, samples=2, at="2025-06-05T11:30"), said.append)
        with read_forecast(out) as forecast:
            assert forecast["mean"].attrs["units"] == units
        assert any(f"quantiles in {words})" in line for line in said)


def test_the_story_of_a_page_ends_with_the_notes_of_the_run(stated: FinishedRun, tmp_path: Path) -> None:
    folder = shutil.copytree(stated.folder, tmp_path / "run")
    RunFolder(folder).write_notes(["adaptation gains nothing."])
    assert "Adaptation gains nothing." in report_run(folder).read_text(encoding="utf-8")
