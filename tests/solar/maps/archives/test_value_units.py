"""Units of the values: as the file says, as a user says where it does not, and words where nobody does."""

from pathlib import Path

import numpy as np
import pytest

from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.value_units import flux_of, one_spelling, units_or_words, units_text
from tests.solar.maps.archives.test_frames import dataset, ramp, write


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_files_without_units_take_those_of_the_user(kind: str, tmp_path: Path) -> None:
    path = write(kind, tmp_path, ramp(3))
    frames = open_frames(path, value_units="K", long_name="cloud top temperature")
    assert (frames.attrs["units"], frames.attrs["long_name"]) == ("K", "cloud top temperature")
    assert open_frames(path).attrs["units"] == "1"


def test_a_netcdf_file_without_units_takes_them_too_and_keeps_its_own_name(tmp_path: Path) -> None:
    silent = dataset(ramp(3))
    del silent["ghi"].attrs["units"]
    silent.to_netcdf(tmp_path / "a.nc")
    frames = open_frames(tmp_path / "a.nc", value_units="K", long_name="other")
    assert (frames.attrs["units"], frames.attrs["long_name"]) == ("K", "irradiance")


def test_other_units_than_the_files_are_refused_with_both(tmp_path: Path) -> None:
    path = write("nc", tmp_path, ramp(3))
    with pytest.raises(ValueError, match=r"archive.nc: value_units must be the units of the file, 'W m-2', got 'K'"):
        open_frames(path, value_units="K")
    assert open_frames(path, value_units="W/m^2").attrs["units"] == "W m-2"  # the same in another spelling


def test_irradiance_of_the_user_has_one_spelling_and_is_checked(tmp_path: Path) -> None:
    path = write("folder", tmp_path, ramp(3))
    assert open_frames(path, value_units="W/m2").attrs["units"] == "W m-2"
    impossible = write("npz", tmp_path, 1e6 * ramp(3))
    assert open_frames(impossible).attrs["data_max"] > 1e8
    with pytest.raises(ValueError, match="W m-2"):
        open_frames(impossible, value_units="W m-2")


def test_words_stand_for_units_that_nobody_knows() -> None:
    unknown = "units of the frames"
    assert [units_or_words(units) for units in ("", "1", "K", "W m-2")] == [unknown, unknown, "K", "W m-2"]
    assert [units_text(units) for units in (" ", "1", unknown, "K", "W m-2")] == [
        unknown,
        unknown,
        unknown,
        "K",
        "W/m²",
    ]


@pytest.mark.parametrize(
    "spelling",
    [
        *("W m-2", "W m**-2", "W m^-2", "W/m2", "W/m^2", "W/(m^2)", "W/m²", "W m⁻²", "W.m-2", "J m-2 s-1"),
        *("Watt m-2", "Watts/m2", "watts per square metre", "W per square meter"),
    ],
)
def test_spellings_of_irradiance(spelling: str) -> None:
    assert one_spelling(spelling) == "W m-2"
    assert units_text(spelling) == "W/m²"


@pytest.mark.parametrize("units", ["mW m-2 sr-1 (cm-1)-1", "W m-2 sr-1 um-1", "m s-1", "kg m-2", "counts"])
def test_units_that_are_no_irradiance_stay(units: str) -> None:
    assert one_spelling(units) == units
    assert flux_of(units) is None


def test_spellings_of_other_units() -> None:
    spelled = {
        "percent": "%",
        "kelvin": "K",
        "degree_Celsius": "degC",
        "°C": "degC",
        "dimensionless": "1",
        "kJ/m2": "kJ m-2",
    }
    assert {units: one_spelling(units) for units in spelled} == spelled


@pytest.mark.parametrize(
    ("units", "factor", "told"),
    [
        ("J m**-2", 1 / 1800, "J m-2 is energy of one step: divided by 1800 s, so values are in W m-2"),
        ("kJ/m2", 1000 / 1800, "kJ m-2 is energy of one step"),
        ("Wh m-2", 2.0, "Wh m-2 is energy of one step"),
        ("J/cm2", 1e4 / 1800, "J cm-2 is energy of one step"),
        ("kW m-2", 1000.0, "kW m-2 multiplied by 1000, so values are in W m-2"),
    ],
)
def test_energy_of_a_step_and_thousands_become_irradiance(units: str, factor: float, told: str, tmp_path: Path) -> None:
    dataset(ramp(3) / factor, units=units).to_netcdf(tmp_path / "a.nc")
    for given in (None, "W m-2", units):
        frames = open_frames(tmp_path / "a.nc", value_units=given)
        np.testing.assert_allclose(frames.values, ramp(3), rtol=1e-5)
        assert frames.attrs["units"] == "W m-2"
        assert any(one.startswith(told) for one in frames.attrs["findings"])
        assert frames.attrs["data_max"] == pytest.approx(ramp(3).max(), rel=1e-5)


def test_wrong_units_of_a_file_are_replaced(tmp_path: Path) -> None:
    path = write("nc", tmp_path, ramp(3))
    with pytest.raises(ValueError, match=r'if the file is wrong replace its units: value_units="!K"'):
        open_frames(path, value_units="K")
    frames = open_frames(path, value_units="!K")
    assert frames.attrs["units"] == "K"
    assert "units are K, as given, and not W m-2, as the file states" in frames.attrs["findings"]


def test_energy_that_is_summed_from_the_start_of_a_run_is_refused(tmp_path: Path) -> None:
    watts = 500 + ramp(8) / 10
    summed = dataset(np.cumsum(1800.0 * watts, 0), units="J m-2")
    summed.to_netcdf(tmp_path / "a.nc")
    with pytest.raises(ValueError, match="probably summed from the start of a run"):
        open_frames(tmp_path / "a.nc", on_bad="skip")
    summed.diff("time").to_netcdf(tmp_path / "b.nc")
    np.testing.assert_allclose(open_frames(tmp_path / "b.nc").values, watts[1:], rtol=1e-4)
