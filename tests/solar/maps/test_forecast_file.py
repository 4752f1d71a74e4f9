from pathlib import Path

import netCDF4
import numpy as np
import pytest
import torch
import xarray as xr

from benchmarks.common.data_folder import data_folder
from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps import forecast_file
from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.maps.forecast_file import read_forecast, write_forecast

ISSUED = np.array(["2024-06-01T09:00", "2024-06-01T11:30"], dtype="datetime64[m]")
SHORTWAVE = "surface_downwelling_shortwave_flux_in_air"


def forecast() -> GaussianForecast:
    """Two weight samples: 300 + 2 n + 3 l + 0.5 y + 0.25 x, plus and minus 8, noise of 6: (2, 2, 3, 4, 5)."""
    n, lead, y, x = np.ogrid[:2, :3, :4, :5]
    middle = torch.tensor(300.0 + 2 * n + 3 * lead + 0.5 * y + 0.25 * x, dtype=torch.float64)
    return GaussianForecast(
        torch.stack([middle - 8, middle + 8]), torch.full((2, 1, 1, 1, 1), 6.0, dtype=torch.float64)
    )


def frames(*, places: bool = True, **attrs: str) -> xr.DataArray:
    coords = {"latitude": ("y", np.linspace(52, 50.5, 4)), "longitude": ("x", np.linspace(8, 9, 5))} if places else {}
    said = {"units": "W m-2", "long_name": "irradiance", "standard_name": SHORTWAVE, "source": "/home/me/archive.nc"}
    return xr.DataArray(np.zeros((1, 4, 5)), dims=("time", "y", "x"), coords=coords, attrs={**said, **attrs})


def written(path: Path, like: xr.DataArray | None = None, **options: object) -> Path:
    given = {"issued": ISSUED, "cadence": "30min", "like": frames() if like is None else like, "progress": False}
    write_forecast(path, forecast(), **{**given, **options})  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_what_was_written_comes_back(suffix: str, tmp_path: Path) -> None:
    observed = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    back = read_forecast(written(tmp_path / f"a.{suffix}", observed=observed))
    truth = forecast()
    for name in ("mean", "std", "epistemic", "aleatoric"):
        assert back[name].dims == ("forecast_reference_time", "lead_time", "y", "x")
        np.testing.assert_allclose(back[name], getattr(truth, name), rtol=1e-6)
    # The spread of two samples, 8 on either side of their mean, has S - 1 in its denominator.
    np.testing.assert_allclose(back["std"], np.sqrt(128 + 36), rtol=1e-6)
    assert back["quantiles"].dims == ("quantile", "forecast_reference_time", "lead_time", "y", "x")
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        np.testing.assert_allclose(back["quantiles"].sel(quantile=level), truth.quantile(level), rtol=1e-5)
    np.testing.assert_array_equal(back["observed"], observed)
    np.testing.assert_array_equal(back["latitude"], frames()["latitude"])
    assert back["latitude"].dims == ("y",)
    np.testing.assert_array_equal(back["longitude"], frames()["longitude"])
    assert {back[name].dtype for name in back.data_vars} == {np.dtype("float32")}


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
@pytest.mark.parametrize(("cadence", "step"), [("30min", 1800), ("20s", 20)])
def test_times_come_back(suffix: str, cadence: str, step: int, tmp_path: Path) -> None:
    back = read_forecast(written(tmp_path / f"a.{suffix}", cadence=cadence))
    leads = np.array([1, 2, 3]) * np.timedelta64(step, "s")
    np.testing.assert_array_equal(back["forecast_reference_time"], ISSUED)
    np.testing.assert_array_equal(back["lead_time"], leads)
    assert back["valid_time"].dims == ("forecast_reference_time", "lead_time")
    np.testing.assert_array_equal(back["valid_time"], ISSUED[:, None] + leads)


def test_one_forecast_keeps_its_axis(tmp_path: Path) -> None:
    alone = GaussianForecast(forecast().means[:, :1], forecast().scales)
    write_forecast(tmp_path / "a.nc", alone, issued=ISSUED[:1], cadence="30min", like=frames()[0])
    assert read_forecast(tmp_path / "a.nc")["mean"].shape == (1, 3, 4, 5)


def test_the_file_says_what_cf_asks_for(tmp_path: Path) -> None:
    with netCDF4.Dataset(written(tmp_path / "a.nc", attrs={"title": "June", "institution": "here"})) as file:
        assert file.Conventions == "CF-1.8"
        assert (file.title, file.institution) == ("June", "here")
        assert "/home" not in " ".join(str(file.getncattr(name)) for name in file.ncattrs())
        maps = ("forecast_reference_time", "lead_time", "latitude", "longitude")
        assert file["mean"].dimensions == maps
        assert file["quantiles"].dimensions == ("quantile", *maps)
        assert {file[name].units for name in ("mean", "std", "epistemic", "aleatoric", "quantiles")} == {"W m-2"}
        assert file["mean"].standard_name == SHORTWAVE
        assert file["std"].standard_name == f"{SHORTWAVE} standard_error"
        assert file["mean"].ancillary_variables == "std epistemic aleatoric"
        assert file["mean"].coordinates == "valid_time"
        assert all(file[name].long_name for name in file.variables)
        assert file["mean"].filters()["zlib"]


def test_the_axes_say_what_cf_asks_for(tmp_path: Path) -> None:
    expected = {
        "forecast_reference_time": ("forecast_reference_time", "minutes since 1970-01-01 00:00:00"),
        "valid_time": ("time", "minutes since 1970-01-01 00:00:00"),
        "lead_time": ("forecast_period", "minutes"),
        "latitude": ("latitude", "degrees_north"),
        "longitude": ("longitude", "degrees_east"),
    }
    with netCDF4.Dataset(written(tmp_path / "a.nc")) as file:
        assert {name: (file[name].standard_name, file[name].units) for name in expected} == expected
        assert (file["latitude"].axis, file["longitude"].axis) == ("Y", "X")
        assert {file[name].calendar for name in ("forecast_reference_time", "valid_time")} == {"standard"}
        # Coordinates may have no missing values, and 64-bit integers came with CF-1.9.
        assert not any("_FillValue" in file[name].ncattrs() for name in (*expected, "quantile"))
        assert not any(variable.dtype == np.int64 for variable in file.variables.values())
        np.testing.assert_array_equal(file["lead_time"][:], [30, 60, 90])


def test_plain_xarray_reads_it_too(tmp_path: Path) -> None:
    with xr.open_dataset(written(tmp_path / "a.nc"), decode_timedelta=False) as plain:
        one = plain["mean"].sel(lead_time=60, forecast_reference_time="2024-06-01T11:30", latitude=50.5, longitude=9.0)
        assert float(one) == pytest.approx(300 + 2 + 3 + 1.5 + 1)
        assert one["valid_time"].values == np.datetime64("2024-06-01T12:30")


def test_without_places_rows_and_columns_keep_their_own_axes(tmp_path: Path) -> None:
    like = frames(places=False, units="1").assign_coords(y=("y", [4.0, 3.0, 2.0, 1.0], {"units": "km"}))
    del like.attrs["standard_name"]
    back = read_forecast(written(tmp_path / "a.nc", like))
    assert back["mean"].dims == ("forecast_reference_time", "lead_time", "y", "x")
    np.testing.assert_array_equal(back["y"], [4, 3, 2, 1])
    assert back["y"].attrs["units"] == "km"
    assert back["mean"].attrs["units"] == "1"
    assert "standard_name" not in back["std"].attrs


def test_missing_values_stay_missing(tmp_path: Path) -> None:
    observed = np.ones((2, 3, 4, 5))
    observed[0, 1, 2, 3] = np.nan
    np.testing.assert_array_equal(read_forecast(written(tmp_path / "a.nc", observed=observed))["observed"], observed)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_an_earlier_file_is_replaced_only_when_asked(suffix: str, tmp_path: Path) -> None:
    path = written(tmp_path / f"a.{suffix}")
    with pytest.raises(FileExistsError, match=r"exists\. Give another name, or overwrite=True"):
        written(path)
    written(path, overwrite=True, attrs={"title": "second"})
    assert read_forecast(path).title == "second"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(("suffix", "writer"), [("nc", "to_netcdf"), ("zarr", "to_zarr")])
def test_an_interrupted_write_leaves_the_earlier_file_and_nothing_else(
    suffix: str, writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / f"a.{suffix}", attrs={"title": "first"})
    real = getattr(xr.Dataset, writer)

    def crash(self: xr.Dataset, target: Path, **options: object) -> None:
        real(self, target, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(xr.Dataset, writer, crash)
    with pytest.raises(KeyboardInterrupt):
        written(path, overwrite=True)
    assert read_forecast(path).title == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_moved_there_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.zarr", attrs={"title": "first"})
    real = Path.rename

    def only_aside(self: Path, target: Path) -> Path:
        if ".tmp" in self.name:
            raise OSError("no")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", only_aside)
    with pytest.raises(OSError, match="no"):
        written(path, overwrite=True)
    assert read_forecast(path).title == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.zarr"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"issued": ISSUED[:1]}, "issued must be 2 strictly increasing times"),
        ({"issued": ISSUED[::-1]}, "issued must be 2 strictly increasing times"),
        ({"issued": np.array([0, 1])}, "issued must be 2 strictly increasing times"),
        ({"like": frames()[:, 1:]}, r"like must have the forecast's \(4, 5\) rows and columns \(y, x\), got \(3, 5\)"),
        ({"quantiles": (0.5, 1.0)}, "quantiles must increase and lie strictly between 0 and 1"),
        ({"quantiles": (0.5, 0.5)}, "quantiles must increase"),
        ({"quantiles": ()}, "quantiles must increase"),
        (
            {"observed": np.zeros((2, 3, 4, 4))},
            r"observed must have the forecast's shape \(2, 3, 4, 5\), got \(2, 3, 4, 4\)",
        ),
        ({"cadence": "often"}, "cadence must be a positive length of time"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        written(tmp_path / "a.nc", **options)
    assert not list(tmp_path.iterdir())


def test_a_forecast_of_other_things_is_refused(tmp_path: Path) -> None:
    flat = GaussianForecast(torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"means must be \(S, N, L, Y, X\), got shape \(2, 3\)"):
        write_forecast(tmp_path / "a.nc", flat, issued=ISSUED, cadence="30min", like=frames())


def test_invalid_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.tif: the file of a forecast must end in \.nc or \.zarr"):
        written(tmp_path / "a.tif")
    with pytest.raises(FileNotFoundError, match="no does not exist; make it first"):
        written(tmp_path / "no" / "a.nc")
    with pytest.raises(FileNotFoundError, match=r"a\.nc does not exist; a forecast is a \.nc file or a \.zarr folder"):
        read_forecast(tmp_path / "a.nc")


def test_other_files_are_no_forecasts(tmp_path: Path) -> None:
    (tmp_path / "a.nc").write_text("no")
    with pytest.raises(OSError, match=r"a\.nc: cannot be read as a forecast"):
        read_forecast(tmp_path / "a.nc")
    xr.Dataset({"mean": ("x", [1.0])}).to_netcdf(tmp_path / "b.nc")
    with pytest.raises(
        ValueError, match="must be a file of write_forecast, got one without forecast_reference_time, lead_time"
    ):
        read_forecast(tmp_path / "b.nc")


def test_quantiles_of_many_pixels_are_searched_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_forecast(written(tmp_path / "a.nc"))["quantiles"].values
    monkeypatch.setattr(forecast_file, "PIXELS_AT_ONCE", 7)
    np.testing.assert_allclose(read_forecast(written(tmp_path / "b.nc"))["quantiles"].values, whole, rtol=1e-5)


def test_a_forecast_on_sarah_comes_back_in_its_units_places_and_times(tmp_path: Path) -> None:
    path = data_folder() / "sarah_sis" / "SARAH-SIS.nc"
    if not path.is_file():
        pytest.skip(f"{path} is not there (METAPRIOR_DATA names the folder)")
    patch = open_frames(path)[:, 20:36, 10:26]
    seen = torch.from_numpy(patch[20:22].values).double()  # persistence, from 10:00 and 10:30
    means = seen[None, :, None].expand(2, 2, 4, 16, 16) + torch.tensor([-5.0, 5.0])[:, None, None, None, None]
    persistence = GaussianForecast(means, torch.full_like(means, 10.0))
    write_forecast(tmp_path / "a.nc", persistence, issued=patch.time.values[20:22], cadence="30min", like=patch)
    back = read_forecast(tmp_path / "a.nc")
    assert back["mean"].attrs["units"] == "W m-2"
    assert back["mean"].attrs["standard_name"] == SHORTWAVE
    np.testing.assert_allclose(back["mean"][:, 3], patch[20:22], atol=1e-4)
    np.testing.assert_array_equal(back["latitude"], patch["latitude"])
    np.testing.assert_array_equal(back["longitude"], patch["longitude"])
    assert back["valid_time"].values[1, 3] == np.datetime64("2015-01-01T12:30")
