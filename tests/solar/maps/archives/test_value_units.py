"""Units of the values: as the file says, as a user says where it does not, and words where nobody does."""

from pathlib import Path

import pytest

from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.value_units import units_or_words, units_text
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
