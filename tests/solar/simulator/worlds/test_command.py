"""``metaprior simulate worlds`` writes an archive that opens as it says, and tells what was drawn."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from metaprior import cli
from metaprior.solar.maps.archives.frames import BadFramesSkipped, GapsInTime, open_frames
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
    assert f'opens with: open_frames("{out}", cadence="30min")' in told
    assert f"next: metaprior inspect {out}" in told
    frames = open_frames(out, cadence="30min", progress=False)
    expected = world.values.reshape(24, 24, 24)
    flipped = out.suffix and world.located and world.weather.view.north_up  # south is first where it is known
    np.testing.assert_array_equal(frames.values, expected[:, ::-1] if flipped else expected)
    assert ("latitude" in frames.coords) == bool(world.located and out.suffix)
    if out.suffix:
        assert (frames.name, frames.attrs["units"]) == ("reflectance", world.sensor.units)


def test_frames_with_missing_values_are_left_out_as_it_says(tmp_path: Path) -> None:
    worlds = (draw_world(seed, size=24, days=2, frames=10) for seed in range(100))
    world = next(one for one in worlds if 0 < np.isnan(one.values).any((2, 3)).sum() < 10 and one.sine.min() > 0.2)
    told = simulated(tmp_path / "gaps.nc", "--seed", str(world.seed), "--days", "2")
    assert re.search(r"note: \d+ frames? with missing values by day must be left out", told)
    assert f'cadence="{world.cadence}min", on_bad="skip")' in told
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadFramesSkipped)
        warnings.simplefilter("ignore", GapsInTime)
        frames = open_frames(tmp_path / "gaps.nc", cadence=f"{world.cadence}min", on_bad="skip", progress=False)
    assert 2 <= len(frames) < 20


def test_a_world_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    worlds = (draw_world(seed, size=24, kind="thermal") for seed in range(100))
    world = next(one for one in worlds if one.located and one.sine.max() < 0)
    told = simulated(tmp_path / "night.nc", "--seed", str(world.seed), "--kind", "thermal")
    assert "note: open_frames refuses this world: " in told
    assert "it is night in all frames" in told


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
