"""Runs on frames whose files say no units: with those of the configuration, and without any."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import xarray as xr

from metaprior.runs import finish
from metaprior.runs.folder import RunFolderError
from metaprior.solar.maps.examples_file import read_examples
from metaprior.solar.maps.forecast_file import read_forecast
from metaprior.solar.maps.forecast_inputs import ForecastRequest
from metaprior.solar.maps.prediction import predict
from metaprior.solar.maps.report import figures
from metaprior.solar.maps.report.example import ExampleForecast
from metaprior.solar.maps.reporting import report_run
from metaprior.solar.simulator import simulate, write_frames
from tests.solar.maps.tiny_run import NIGHTS, run

pytestmark = NIGHTS

SCALED = ("tasks.units=scaled", "model.known=0")
STATED = ("tasks.value_units=counts", "tasks.long_name=brightness of the sky")


class Told(NamedTuple):
    """What a run says of itself, and where it is."""

    folder: Path
    said: list[str]
    page: str

    @property
    def maps(self) -> ExampleForecast:
        return read_examples(self.folder / "examples.nc")[0]


@pytest.fixture(scope="module")
def npy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames") / "npy"
    write_frames(simulate(days=5, size=16, start="2025-06-01", progress=False), folder)
    return folder


def told(folder: Path, npy: Path, *changes: str) -> Told:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "draw", lambda *_: [])
        said = run(folder, npy, *SCALED, *changes)
    return Told(folder, said, report_run(folder).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def stated(npy: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return told(tmp_path_factory.mktemp("stated") / "run", npy, *STATED)


@pytest.fixture(scope="module")
def silent(npy: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return told(tmp_path_factory.mktemp("silent") / "run", npy)


def labels(maps: ExampleForecast) -> set[str]:
    """Of the colour bars of the picture."""
    return {axes.get_ylabel() for axes in figures._forecast(maps).axes[4 * len(maps.target) :]}


def caption(page: str) -> str:
    found = re.search(r"<figcaption>([^<]*all lead times, in [^<]*)</figcaption>", page)
    assert found
    return found[1]


def test_units_of_the_configuration_are_in_every_text(stated: Told) -> None:
    described = json.loads((stated.folder / "solar.json").read_text())
    assert (described["value_units"], described["long_name"]) == ("counts", "brightness of the sky")
    assert json.loads((stated.folder / "scores.json").read_text())["units"] == "counts"
    assert any(text.startswith("lead times in minutes, values in counts\n") for text in stated.said)
    assert caption(stated.page).endswith("at all lead times, in counts.")
    assert "forecasts of brightness of the sky" in stated.page
    assert "RMSE (counts) by lead time" in stated.page
    assert 'CRPS <span class="unit">counts</span>' in stated.page
    assert labels(stated.maps) == {"counts"}


def test_without_any_units_every_text_says_that_they_are_those_of_the_frames(silent: Told) -> None:
    assert any(text.startswith("lead times in minutes, values in units of the frames\n") for text in silent.said)
    assert caption(silent.page).endswith("at all lead times, in units of the frames.")
    assert "RMSE (units of the frames) by lead time" in silent.page
    assert labels(silent.maps) == {"units of the frames"}


def test_examples_of_earlier_versions_without_a_word_get_the_same(silent: Told, tmp_path: Path) -> None:
    with xr.open_dataset(silent.folder / "examples.nc", decode_timedelta=False) as examples:
        examples.load().assign_attrs(units="").to_netcdf(tmp_path / "examples.nc")
    assert read_examples(tmp_path / "examples.nc")[0].units == "units of the frames"


def test_the_numbers_of_a_scaled_network_are_said_with_their_range(stated: Told) -> None:
    units = json.loads((stated.folder / "solar.json").read_text())["units"]
    (table,) = [text for text in stated.said if "network's units" in text]
    heading, columns, *_ = table.splitlines()
    low, high = (f"{units[name]:.6g}" for name in ("data_min", "data_max"))
    assert heading == f"unseen tasks, in the network's units (values from {low} to {high} as -1 to 1)"
    assert columns.split()[:2] == ["shots", "steps"]


def test_words_about_the_values_cannot_change_within_a_run(stated: Told, npy: Path) -> None:
    with pytest.raises(RunFolderError, match=r"tasks.value_units: the run has 'counts', now 'K'"):
        run(stated.folder, npy, *SCALED, "tasks.value_units=K", STATED[1], resume=True)


def test_a_forecast_has_the_units_that_the_run_was_told(stated: Told, silent: Told, npy: Path, tmp_path: Path) -> None:
    for run_, units, words in ((stated, "counts", "counts"), (silent, "1", "units of the frames")):
        out, said = tmp_path / f"{units}.nc", list[str]()
        predict(ForecastRequest(run_.folder, npy, npy, out, samples=2, at="2025-06-05T11:30"), said.append)
        with read_forecast(out) as forecast:
            assert forecast["mean"].attrs["units"] == units
        assert any(f"quantiles in {words})" in line for line in said)
