"""``metaprior nowcast``: an archive in, a forecast, a page and plain sentences out."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from metaprior import cli
from metaprior.solar.maps.forecast_file import read_forecast
from metaprior.solar.maps.nowcast import nowcasting
from metaprior.solar.maps.nowcast.adapting import adapted
from metaprior.solar.simulator import write_frames
from tests.solar.maps.nowcast.small import nowcaster, world


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nowcast")
    write_frames(world().to_frames(), folder / "world.nc")
    nowcaster().save(folder / "prior")
    return folder


def run(files: Path, *options: str) -> str:
    given = ["nowcast", str(files / "world.nc"), "--prior", str(files / "prior"), *options]
    result = CliRunner().invoke(cli.app, given)
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    return result.output


def test_a_forecast_and_a_page_are_written_and_explained(files: Path) -> None:
    out, page = files / "forecast.nc", files / "forecast.html"
    told = run(files, "--out", str(out), "--page", str(page))
    for text in (
        "cadence 15min",
        "earlier moments",
        "optical flow",
        "issued:",
        "90 % bands held",
        f"next: metaprior inspect {out}",
    ):
        assert text in told
    with read_forecast(out) as written:
        assert written["mean"].attrs["units"] == "W m-2"
    html = page.read_text()
    assert "Nowcast of simulated irradiance" in html
    assert "Content-Security-Policy" in html


def test_without_files_the_answer_is_printed_alone(files: Path) -> None:
    told = run(files, "--at", str(world().times[2, 6]))
    assert "written:" not in told
    assert "next: metaprior nowcast" in told


def test_an_archive_without_gaps_is_forecast(files: Path) -> None:
    day = np.datetime64("2025-06-01T08:00", "ns") + np.arange(12) * np.timedelta64(15, "m")
    frames = np.random.default_rng(0).random((12, 20, 24), np.float32)
    np.savez(files / "day.npz", time=day, sky=frames)
    result = CliRunner().invoke(cli.app, ["nowcast", str(files / "day.npz"), "--prior", str(files / "prior")])
    assert result.exit_code == 0, result.exception
    assert "gap" not in result.output


def test_adapting_is_told(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nowcasting, "adapted", lambda *given, **options: adapted(*given, **{**options, "steps": 1}))
    told = run(files, "--adapt")
    assert "the networks have learned from 10 windows" in told


def test_an_existing_file_is_kept(files: Path) -> None:
    out = files / "kept.nc"
    out.touch()
    result = CliRunner().invoke(
        cli.app, ["nowcast", str(files / "world.nc"), "--prior", str(files / "prior"), "--out", str(out)]
    )
    assert isinstance(result.exception, FileExistsError)
    assert "--overwrite" in str(result.exception)
