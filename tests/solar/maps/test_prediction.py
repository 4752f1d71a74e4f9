"""``metaprior predict``: what is adapted to, what is forecast, in which units, and what is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

from metaprior import cli
from metaprior.runs.folder import RunFolder
from metaprior.runs.learned import learned
from metaprior.solar.maps import forecast_inputs
from metaprior.solar.maps.archives.frames import BadFramesSkipped, GapsInTime
from metaprior.solar.maps.forecast_file import read_forecast
from metaprior.solar.maps.forecast_inputs import ForecastRequest, support_windows
from metaprior.solar.maps.prediction import predict
from metaprior.solar.maps.units import ClearSkyIndex
from metaprior.solar.maps.windows import WindowReader
from metaprior.solar.simulator import simulate, write_frames
from metaprior.solar.sun import Place, sine_of_elevation
from tests.conftest import folder_with
from tests.solar.maps.conftest import SolarRun

SARAH = "sarah_sis/SARAH-SIS.nc"
NOON = "2025-07-02T11:30"


@pytest.fixture
def trained(solar_run: SolarRun) -> Path:
    return solar_run.folder


@pytest.fixture(scope="module")
def frames() -> xr.DataArray:
    """Two days of July in another region."""
    return simulate(days=2, size=16, seed=1, start="2025-07-01", progress=False)


@pytest.fixture(scope="module")
def archive(frames: xr.DataArray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frames") / "july.nc"
    write_frames(frames, path)
    return path


def request_of(trained: Path, archive: Path, out: Path, **changes: object) -> ForecastRequest:
    return ForecastRequest(
        **{"run": trained, "support": archive, "inputs": archive, "out": out, "at": NOON, "samples": 3, **changes}
    )  # type: ignore[arg-type]


def check_refused(trained: Path, archive: Path, out: Path, message: str, **changes: object) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        predict(request_of(trained, archive, out, **changes), lambda _: None)
    assert not out.exists()


def test_a_forecast_has_the_times_places_and_units_of_the_frames(
    trained: Path, archive: Path, frames: xr.DataArray, tmp_path: Path
) -> None:
    out = tmp_path / "now.nc"
    command = ["predict", str(trained), "--support", str(archive), "--inputs", str(archive), "--out", str(out)]
    result = CliRunner().invoke(cli.app, [*command, "--at", NOON, "--samples", "4", "--steps", "1"])
    assert result.exit_code == 0, result.output
    assert "adapted to 3 windows from 2025-07-02 08:00 UTC to 2025-07-02 11:30 UTC with 1 steps" in result.output
    assert "issued:  2025-07-02 11:30 UTC, from 2 frames of 16 x 16 pixels, latitude " in result.output
    assert "valid:   2025-07-02 12:00 UTC, 2025-07-02 12:30 UTC" in result.output
    with read_forecast(out) as forecast:
        assert np.array_equal(forecast["latitude"], frames["latitude"])
        assert np.array_equal(forecast["longitude"], frames["longitude"])
        assert forecast["forecast_reference_time"].values.tolist() == [np.datetime64(NOON, "ns").astype(int)]
        valid = [np.datetime64("2025-07-02T12:00"), np.datetime64("2025-07-02T12:30")]
        assert np.array_equal(forecast["valid_time"].values[0], valid)
        assert forecast["mean"].attrs["units"] == "W m-2"
        assert forecast["mean"].shape == (1, 2, 16, 16)
        assert forecast.attrs["support_windows"] == 3
        assert bool((forecast["std"] > 0).all())


def test_without_a_window_to_adapt_to_the_prior_forecasts_and_the_user_is_told(
    trained: Path, frames: xr.DataArray, tmp_path: Path
) -> None:
    """And its values are the network's, by hand: clear-sky index times clear sky."""
    first = int(np.flatnonzero(frames["time"].values == np.datetime64(NOON))[0])
    recent = tmp_path / "recent.nc"
    write_frames(frames[first - 1 : first + 1], recent)
    said: list[str] = []
    predict(request_of(trained, recent, tmp_path / "now.nc", at=None), said.append)
    assert "the prior itself" in said[0]
    assert "no window of 4 frames" in said[0]
    _, learner = learned(RunFolder(trained))
    place, units = Place.of(frames["latitude"].values, frames["longitude"].values), ClearSkyIndex()
    times = frames["time"].values[first - 1 : first + 1]
    later = times[-1] + np.array([30, 60]) * np.timedelta64(1, "m")
    sine, sine_later = (sine_of_elevation(when, place) for when in (times, later))
    x = np.concatenate([units.encode(frames.values[first - 1 : first + 1], sine), units.known(sine_later, (16, 16))])
    mean = learner.prior_predictive().predict(torch.from_numpy(x)[None], samples=3, seed=0).mean[0].numpy()
    loc, scale = units.decoding(2, sine_later)
    with read_forecast(tmp_path / "now.nc") as forecast:
        assert np.allclose(forecast["mean"].values[0], loc + scale * mean, atol=1e-2)


def test_a_patch_has_its_own_coordinates(trained: Path, archive: Path, frames: xr.DataArray, tmp_path: Path) -> None:
    predict(request_of(trained, archive, tmp_path / "now.zarr", place=(8, 3)), lambda _: None)
    with read_forecast(tmp_path / "now.zarr") as forecast:
        assert np.array_equal(forecast["latitude"], frames["latitude"][8:16])
        assert np.array_equal(forecast["longitude"], frames["longitude"][3:11])


def test_a_forecast_does_not_depend_on_the_orientation_of_the_file(
    trained: Path, archive: Path, frames: xr.DataArray, tmp_path: Path
) -> None:
    mirrored = tmp_path / "mirrored.nc"
    write_frames(frames[:, ::-1, ::-1], mirrored)
    with xr.open_dataset(mirrored) as stored:
        assert stored["latitude"][0] > stored["latitude"][-1]
    outs = [tmp_path / "one.nc", tmp_path / "other.nc"]
    for path, out in zip((archive, mirrored), outs, strict=True):
        predict(request_of(trained, path, out, support=archive), lambda _: None)
    with xr.open_dataset(outs[0]) as one, xr.open_dataset(outs[1]) as other:
        for latitude, longitude in (
            (frames["latitude"][3], frames["longitude"][5]),
            (frames["latitude"][-1], frames["longitude"][0]),
        ):
            here = {"latitude": latitude.item(), "longitude": longitude.item()}
            assert np.array_equal(one["mean"].sel(here), other["mean"].sel(here))
        xr.testing.assert_equal(one, other)
        # A cloud stays where it was seen: a network that knows little forecasts nearly persistence.
        seen = frames.sel(time=NOON).swap_dims(y="latitude", x="longitude")
        first = other["mean"][0, 0].sel(latitude=seen["latitude"], longitude=seen["longitude"]).values
        assert np.abs(first - seen.values).mean() < np.abs(first[::-1] - seen.values).mean() / 2


def test_support_windows_are_the_most_recent_ones_that_were_over(frames: xr.DataArray) -> None:
    def starts(part: xr.DataArray) -> list[int]:
        reader = WindowReader(part, 2, 2, ClearSkyIndex())
        return [window.start for window in support_windows(reader, np.datetime64(NOON), 3, 5.0)]

    times = frames["time"].values
    last = [str(times[start + 3].astype("datetime64[m]")) for start in starts(frames)]
    assert last == ["2025-07-02T09:30", "2025-07-02T10:30", "2025-07-02T11:30"]  # no target frame twice
    noon = int(np.flatnonzero(times == np.datetime64(NOON))[0])
    assert starts(frames[noon - 4 : noon + 1]) == [0, 1]  # better than one
    holed = frames[noon - 8 : noon + 1].copy(deep=True)
    holed[6, 3, 3] = np.nan
    assert starts(holed) == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"at": None}, "sun goes down to .* degrees, .* at least 5 .*would do: --at 2"),
        ({"at": "2025-08-01T12:00"}, "there is no frame at 2025-08-01"),
        ({"at": "noon"}, "--at must be a time"),
        ({"at": "2025-07-01T04:00"}, "needs the 2 frames up to then"),
        ({"place": (9, 0)}, "from 0,0 to 8,8, of a patch of 8 pixels"),
        ({"samples": 1}, "--samples must be at least 2"),
    ],
)
def test_an_impossible_request_is_refused(
    trained: Path, archive: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    check_refused(trained, archive, tmp_path / "now.nc", message, **changes)


@pytest.mark.parametrize(
    ("part", "name", "message"),
    [
        (lambda frames: frames[::2], "hourly.nc", "trained on frames every 30min"),
        (lambda frames: frames[:, :3, :], "small.nc", "3 x 16 pixels are too small; .*needs 4 or more"),
        (lambda frames: frames[:40], "bare", "needs latitude and longitude"),
    ],
)
def test_frames_that_do_not_fit_the_run_are_refused(
    trained: Path,
    frames: xr.DataArray,
    tmp_path: Path,
    part: Callable[[xr.DataArray], xr.DataArray],
    name: str,
    message: str,
) -> None:
    write_frames(part(frames), tmp_path / name)
    check_refused(trained, tmp_path / name, tmp_path / "now.nc", message)


def test_support_of_another_place_is_refused(
    trained: Path, archive: Path, frames: xr.DataArray, tmp_path: Path
) -> None:
    shifted = tmp_path / "elsewhere.nc"
    write_frames(frames.assign_coords(latitude=("y", frames["latitude"].values + 1)), shifted)
    check_refused(trained, archive, tmp_path / "now.nc", "must be of the same place", support=shifted)


def test_the_path_of_the_forecast_is_checked_first(trained: Path, archive: Path, tmp_path: Path) -> None:
    check_refused(trained, archive, tmp_path / "now.txt", r"must end in \.nc or \.zarr")
    out = tmp_path / "now.nc"
    out.write_text("mine")
    with pytest.raises(FileExistsError, match="--overwrite"):
        predict(request_of(trained, archive, out), lambda _: None)
    assert out.read_text() == "mine"


def test_the_time_that_an_error_proposes_works(trained: Path, archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "now.nc"
    with pytest.raises(ValueError, match="would do") as error:
        predict(request_of(trained, archive, out, at=None), lambda _: None)
    said = re.search(r"--at (\S+)$", str(error.value))
    assert said
    predict(request_of(trained, archive, out, at=said[1]), lambda _: None)
    assert out.exists()


def test_a_folder_of_files_whose_names_have_the_times_forecasts_the_same(
    trained: Path, archive: Path, frames: xr.DataArray, tmp_path: Path
) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    for number, time in enumerate(frames["time"].values.astype("datetime64[m]").tolist()):
        one = frames[number].drop_vars("time")
        one.to_netcdf(folder / f"{time:sis %d.%m.%y %H-%M.nc}")
    asked = {"inputs": folder, "support": folder, "time_pattern": "%d.%m.%y %H-%M"}
    predict(request_of(trained, archive, tmp_path / "of_many.nc", **asked), lambda _: None)
    predict(request_of(trained, archive, tmp_path / "of_one.nc"), lambda _: None)
    with read_forecast(tmp_path / "of_many.nc") as many, read_forecast(tmp_path / "of_one.nc") as one:
        np.testing.assert_array_equal(many["mean"].values, one["mean"].values)


def test_bad_frames_are_left_out_on_request(trained: Path, archive: Path, frames: xr.DataArray, tmp_path: Path) -> None:
    broken, values = tmp_path / "broken.nc", frames.copy(deep=True)
    values[20, 2, 2] = np.inf
    write_frames(values, broken)
    out = tmp_path / "now.nc"
    check_refused(trained, archive, out, "metaprior predict: --on-bad skip", support=broken)
    with (
        pytest.warns(BadFramesSkipped, match="1 bad frame left out"),
        pytest.warns(GapsInTime, match="1 frame missing"),
    ):
        predict(request_of(trained, archive, out, support=broken, on_bad="skip"), lambda _: None)
    assert out.exists()


def test_one_archive_is_opened_once(
    trained: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    real = forecast_inputs.open_frames

    def watched(path: Path, **settings: Any) -> xr.DataArray:
        opened.append(path)
        return real(path, **settings)

    monkeypatch.setattr(forecast_inputs, "open_frames", watched)
    predict(request_of(trained, archive, tmp_path / "now.nc"), lambda _: None)
    assert opened == [archive]


def test_runs_that_are_not_solar_are_refused(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from metaprior.solar.maps import prediction
    from tests.runs import tiny

    config = tiny.request(tmp_path / "waves").config
    monkeypatch.setattr(prediction, "learned", lambda *_, **_options: (config, None))
    with pytest.raises(ValueError, match=r"tasks\.kind 'sinusoids'; metaprior predict is for runs on frames"):
        predict(request_of(tmp_path, tmp_path, tmp_path / "now.nc"), lambda _: None)


def test_sarah_irradiance_comes_back_in_its_units_places_and_times(trained: Path, tmp_path: Path) -> None:
    path, out, said = folder_with(SARAH) / SARAH, tmp_path / "sarah.nc", list[str]()
    predict(request_of(trained, path, out, at="2015-01-01T11:30"), said.append)
    assert re.search(r"adapted to [1-3] windows from 2015-01-01", said[0])
    with xr.open_dataset(path) as sarah, read_forecast(out) as forecast:
        assert np.array_equal(forecast["latitude"], sarah["lat"])
        assert np.array_equal(forecast["longitude"], sarah["lon"])
        valid = [np.datetime64("2015-01-01T12:00"), np.datetime64("2015-01-01T12:30")]
        assert np.array_equal(forecast["valid_time"].values[0], valid)
        assert forecast["mean"].attrs["units"] == "W m-2"
        mean = forecast["mean"].values
        assert mean.shape == (1, 2, 61, 51)
        assert np.isfinite(mean).all()
        assert -100 < mean.min() < mean.max() < 500  # a clear sky lets 200 through there
        seen = sarah["SIS"].sel(time="2015-01-01T11:30").values
        assert np.abs(mean[0, 0] - seen).mean() < 100  # a network that knows little forecasts nearly persistence
    assert json.loads((trained / "solar.json").read_text())["units"]["kind"] == "clear_sky"
