"""``metaprior simulate worlds`` writes an archive that opens as it says, and tells what was drawn."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from metaprior import cli
from metaprior.solar.maps.archives.frames import GapsInTime, open_frames
from metaprior.solar.simulator.worlds import draw_world
from metaprior.solar.simulator.worlds.wording import in_words


def simulated(out: Path, *options: str) -> str:
    result = CliRunner().invoke(cli.app, ["simulate", "worlds", "--out", str(out), "--size", "24", *options])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", ["world.nc", "world.zarr", "world"])
def test_the_command_writes_the_world_of_the_seed(name: str, tmp_path: Path) -> None:
    out = tmp_path / "data" / name
    told = simulated(out, "--seed", "7", "--kind", "reflectance", "--cadence", "30", "--days", "2", "--frames", "12")
    world = draw_world(7, size=24, days=2, frames=12, cadence=30, kind="reflectance")
    assert f"written: {out}, 24 frames of 24 x 24 pixels" in told
    assert all(line in told for line in in_words(world))
    assert f"next: metaprior nowcast {out}" in told
    frames = open_frames(out, progress=False)
    expected = world.values.reshape(24, 24, 24)
    flipped = out.suffix and world.located and world.weather.view.north_up  # south is first where it is known
    np.testing.assert_array_equal(frames.values, expected[:, ::-1] if flipped else expected)
    assert ("latitude" in frames.coords) == bool(world.located and out.suffix)
    if out.suffix:
        assert (frames.name, frames.attrs["units"]) == ("reflectance", world.sensor.units)


def test_worlds_with_gaps_and_worlds_by_night_open_for_a_nowcast(tmp_path: Path) -> None:
    worlds = [draw_world(seed, size=24, days=2, frames=10) for seed in range(100)]
    gaps = next(one for one in worlds if 0 < np.isnan(one.values).any((2, 3)).sum() < 10 and one.sine.min() > 0.2)
    thermal = (draw_world(seed, size=24, kind="thermal") for seed in range(100))
    night = next(one for one in thermal if one.located and one.sine.max() < 0)
    for name, world, options in (("gaps.nc", gaps, ["--days", "2"]), ("night.nc", night, ["--kind", "thermal"])):
        simulated(tmp_path / name, "--seed", str(world.seed), *options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GapsInTime)
            frames = open_frames(tmp_path / name, missing="keep", progress=False)
        assert len(frames) == world.values.shape[0] * world.values.shape[1]


def test_defaults_are_three_days_of_ten_frames_and_existing_files_stay(tmp_path: Path) -> None:
    out = tmp_path / "world.nc"
    assert "3 days of 10 frames of 24 x 24 pixels" in simulated(out)
    again = CliRunner().invoke(cli.app, ["simulate", "worlds", "--out", str(out), "--size", "24"])
    assert isinstance(again.exception, FileExistsError)
    assert "--overwrite" in str(again.exception)
    simulated(out, "--overwrite")


def test_options_that_no_world_has_are_told(tmp_path: Path) -> None:
    command = ["simulate", "worlds", "--out", str(tmp_path / "w.nc"), "--cadence", "7"]
    assert "cadence must be 5, 10, 15" in str(CliRunner().invoke(cli.app, command).exception)
    wrong = CliRunner().invoke(cli.app, ["simulate", "worlds", "--out", str(tmp_path / "w.nc"), "--kind", "radar"])
    assert wrong.exit_code == 2
    assert not list(tmp_path.iterdir())
