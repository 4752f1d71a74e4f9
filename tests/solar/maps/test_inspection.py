"""``metaprior inspect`` and ``metaprior init --data`` for archives of frames: all problems at once, and what works."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner, Result

from metaprior.cli import app
from metaprior.runs.reading import read_config
from metaprior.runs.sources import open_tasks
from metaprior.solar.maps.archive_facts import time_steps
from metaprior.solar.simulator import simulate, write_frames
from tests.solar.maps.conftest import SolarRun

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::metaprior.solar.maps.archives.frames.{name}")
    for name in ("BadFramesSkipped", "GapsInTime")
]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def inspected(path: Path, *options: object) -> str:
    result = invoke("inspect", path, *options)
    assert result.exit_code == 0, f"{result.output} {result.exception}"
    return result.output


def problems(text: str) -> list[str]:
    return [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]


def changes(text: str) -> list[str]:
    """Return the changes of the command that trains, as a shell reads them."""
    (line,) = [line for line in text.splitlines() if line.startswith("next: metaprior train frames ")]
    words = shlex.split(line)
    return [words[i + 1] for i, word in enumerate(words) if word == "--set"]


def check_trains(text: str) -> None:
    """Draw the first tasks that the command would train on."""
    source = open_tasks(read_config("frames", changes(text)).task_settings, progress=False)
    for purpose in ("train", "val", "test"):
        assert source.tasks(purpose)[0].query.size > 0  # type: ignore[arg-type]


def rewritten(source: Path, path: Path, change) -> Path:  # type: ignore[no-untyped-def]
    with xr.open_dataset(source) as dataset:
        change(dataset.load()).to_netcdf(path)
    return path


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frames") / "long archive.nc"
    write_frames(simulate(days=14, size=16, start="2025-06-01", progress=False), path)
    return path


def test_an_archive_is_described_and_the_command_trains(long: Path) -> None:
    text = inspected(long)
    for told in (
        r"units +W m-2",
        r"cadence +30min",
        r"days +14 \(2025-06-01 to",
        r"gaps +none, besides [0-9]+ nights",
        r"values +\S+ to \S+, none missing \(100 frames looked at\)",
    ):
        assert re.search(told, text), told
    assert problems(text) == ["frames have 16 pixels along the shorter side, fewer than the usual patch of 32"]
    assert changes(text) == [f"tasks.path={long}", "tasks.patch=16"]
    check_trains(text)


def test_many_problems_are_told_at_once(long: Path, tmp_path: Path) -> None:
    def spoil(dataset: xr.Dataset) -> xr.Dataset:
        hourly = dataset.isel(time=dataset["time.minute"] == 0, longitude=slice(0, 6)).copy(deep=True)
        hourly["ghi"][20] = -9999.0
        hourly["ghi"].attrs["units"] = "counts"
        return hourly

    text = inspected(rewritten(long, tmp_path / "bad.nc", spoil))
    found = " ".join(problems(text))
    for told in ("1 frame not usable", "values are in 'counts'", "frames have 6 pixels"):
        assert told in found
    assert set(changes(text)) >= {"tasks.on_bad=skip", "tasks.units=scaled", "model.known=0"}
    assert "model.levels=2" in changes(text)
    assert "  cadence 60min detected" in text.splitlines()
    check_trains(text)


def test_a_short_archive_gets_shorter_windows(june: Path) -> None:
    text = inspected(june)
    assert any(told.startswith("there are too few windows in daylight") for told in problems(text))
    check_trains(text)


def test_frames_with_holes_are_kept_if_most_have_some(tmp_path: Path) -> None:
    write_frames(simulate(days=14, size=36, start="2025-06-01", progress=False), tmp_path / "whole.nc")

    def holes(dataset: xr.Dataset) -> xr.Dataset:
        return dataset.where(dataset["latitude"] > dataset["latitude"][2])

    text = inspected(rewritten(tmp_path / "whole.nc", tmp_path / "holes.nc", holes))
    assert "tasks.missing=keep" in changes(text)
    check_trains(text)


def test_a_day_or_two_are_divided_by_hours(long: Path, tmp_path: Path) -> None:
    path = rewritten(long, tmp_path / "short.nc", lambda dataset: dataset.isel(time=slice(0, 60)))
    text = inspected(path)
    assert any(told.startswith("whole days are divided from 5 days") for told in problems(text))
    check_trains(text)


def test_too_few_frames_are_told(long: Path, tmp_path: Path) -> None:
    path = rewritten(long, tmp_path / "short.nc", lambda dataset: dataset.isel(time=slice(0, 8)))
    text = inspected(path)
    assert any("no settings were found with which tasks can be drawn" in told for told in problems(text))
    assert re.findall(r"next: (metaprior \w+)", text) == ["metaprior nowcast"]
    assert "no settings were found" in str(invoke("init", "--data", path, "--out", tmp_path / "a.toml").exception)
    assert not (tmp_path / "a.toml").exists()


def test_several_variables_are_named_with_a_command_each(long: Path, tmp_path: Path) -> None:
    path = rewritten(long, tmp_path / "two.nc", lambda dataset: dataset.assign(dni=dataset["ghi"] / 2))
    text = inspected(path)
    assert f"next: metaprior inspect {path} --variable dni" in text
    assert "tasks.variable=dni" in changes(inspected(path, "--variable", "dni"))


def test_unsorted_times_get_a_line_that_sorts_them(june: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = rewritten(june, Path("back.nc"), lambda dataset: dataset.isel(time=slice(None, None, -1)))
    text = inspected(path)
    assert problems(text) == ["times must increase: sort the archive by time"]
    (code,) = re.findall(r'^next: python -c "(.*)"$', text, re.MULTILINE)
    exec(code)
    assert inspected(Path("back_sorted.nc")).count("next: metaprior train frames") == 1


def parts_of(june: Path, folder: Path) -> Path:
    """Write the archive as a folder of files with 40 frames each."""
    folder.mkdir()
    with xr.open_dataset(june) as dataset:
        for number, start in enumerate(range(0, dataset.sizes["time"], 40)):
            dataset.isel(time=slice(start, start + 40)).to_netcdf(folder / f"{number}.nc")
    return folder


def test_a_folder_and_a_pattern_of_files_are_archives(june: Path, tmp_path: Path) -> None:
    folder = parts_of(june, tmp_path / "parts")
    (folder / "SOURCE.txt").write_text("from somewhere")
    for path in (folder, folder / "*.nc", tmp_path):
        text = inspected(path)
        assert re.search("^  times read from the variable time of [0-9]+ files$", text, re.MULTILINE)
        assert ("  1 other file or folder left out: SOURCE.txt" in text) == (path != folder / "*.nc")
        check_trains(text)
        assert "*" not in text.split("--run")[1].split("--set")[0]
    (folder / "9.nc").write_bytes(b"damaged")
    text = inspected(folder)
    assert "9.nc: cannot be read as NetCDF" in text
    assert "tasks.on_bad=skip" in changes(text)


def test_a_form_of_names_is_an_option(june: Path, tmp_path: Path) -> None:
    with xr.open_dataset(june) as dataset:
        frames = dataset["ghi"].load()
    for number, frame in enumerate(frames.values):
        time = frames["time"].values[number].astype("datetime64[m]").astype(object)
        np.save(tmp_path / f"{time:at %H.%M on %d %b %Y}.npy", frame)
    assert "--time-pattern %Y%m%d_%H%M" in str(invoke("inspect", tmp_path).exception)
    text = inspected(tmp_path, "--time-pattern", "at %H.%M on %d %b %Y")
    assert "tasks.time_pattern=at %H.%M on %d %b %Y" in changes(text)
    check_trains(text)


def test_a_folder_of_arrays_with_a_note_in_it(long: Path, tmp_path: Path) -> None:
    with xr.open_dataset(long) as dataset:
        frames = dataset["ghi"].load()
    for time, values in zip(frames["time"].values.astype("datetime64[m]").astype(str), frames.values, strict=True):
        np.save(tmp_path / f"{time.replace('T', '_').replace(':', '')}.npy", values)
    (tmp_path / "SOURCE.txt").write_text("from somewhere")
    text = inspected(tmp_path)
    assert "1 other file or folder left out: SOURCE.txt" in text
    assert {"tasks.units=scaled", "model.known=0"} <= set(changes(text))
    assert "tasks.on_bad=skip" not in changes(text)
    check_trains(text)


def test_damaged_files_are_one_message(tmp_path: Path) -> None:
    (tmp_path / "half.nc").write_bytes(b"\x89HDF\r\n\x1a\nand nothing more")
    assert "cannot be read as NetCDF" in str(invoke("inspect", tmp_path / "half.nc").exception)
    np.savez(tmp_path / "table.npz", time=np.arange(3).astype("datetime64[h]"), power=np.ones((3, 2)))
    message = str(invoke("inspect", tmp_path / "table.npz").exception)
    assert "there must be one 3-D array" in message
    assert "--variable" not in message


def test_a_configuration_is_written_that_fits_the_data(long: Path, tmp_path: Path) -> None:
    out = tmp_path / "own.toml"
    result = invoke("init", "--data", long, "--out", out)
    assert result.exit_code == 0, f"{result.output} {result.exception}"
    assert read_config(out) == read_config("frames", changes(inspected(long)))
    assert "# One network for all places is already good" in out.read_text()
    assert "NAME must be frames for" in str(invoke("init", "sites", "--data", long, "--out", "b.toml").exception)


def test_times_of_two_cadences() -> None:
    start = np.datetime64("2025-06-01", "ns")
    minutes = np.concatenate([np.arange(0, 600, 10), np.arange(600, 1200, 15)])
    found = time_steps(start + minutes.astype("timedelta64[m]"))
    assert (found.cadences, found.problems) == (["10min", "15min"], [])
    gaps = time_steps(start + np.delete(np.arange(0, 600, 10), [5, 20]).astype("timedelta64[m]"))
    assert (gaps.cadences, gaps.problems) == (["10min"], [])
    assert "at least two frames" in time_steps(np.array([start])).problems[0]


def test_forecasts_and_examples_are_no_archives(solar_run: SolarRun, june: Path, tmp_path: Path) -> None:
    out = tmp_path / "now.nc"
    data = ("--support", june, "--inputs", june, "--samples", 2, "--at", "2025-06-02T11:30", "--out", out)
    result = invoke("predict", solar_run.folder, *data)
    assert f"next: metaprior inspect {out}" in result.output
    text = inspected(out)
    assert text.startswith(f"{out}: a forecast of maps\n")
    assert "2025-06-02T11:30" in text
    assert "30, 60 minutes" in text
    assert f"metaprior inspect {solar_run.folder}" in inspected(solar_run.folder / "examples.nc")
    assert inspected(solar_run.folder).startswith(f"{solar_run.folder}: the folder of a run\n")


def test_a_run_ends_with_a_command_that_forecasts(solar_run: SolarRun, june: Path, tmp_path: Path) -> None:
    (line,) = [line for line in solar_run.said if line.startswith("next: metaprior predict ")]
    words = shlex.split(line.removeprefix("next: metaprior "))
    assert words[:6] == ["predict", str(solar_run.folder), "--support", str(june), "--inputs", str(june)]
    words[words.index("--out") + 1] = str(tmp_path / "forecast.nc")
    assert invoke(*words, "--samples", 2).exit_code == 0
