"""What the user is told about archives that are not as they should be."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from metaprior.solar.maps.archives.frames import BadFramesSkipped, GapsInTime, open_frames
from tests.solar.maps.archives.test_frames import dataset, file_name, half_hours, ramp, write, write_folder

SKIP_IS_OFFERED = 'on_bad="skip" leaves such frames out'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "frames", ramp(6))


def bad_name(number: int) -> str:
    return file_name(half_hours(6)[number])


def refused(path: Path, *said: str) -> None:
    """Opening raises, and the message has every one of these pieces."""
    with pytest.raises(ValueError, match=SKIP_IS_OFFERED) as error:
        open_frames(path)
    for piece in said:
        assert piece in str(error.value)


def skipped(path: Path, name: str, left: int, *, gap: bool = True) -> xr.DataArray:
    """The frames that are left when bad ones are left out, visibly."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frames = open_frames(path, on_bad="skip")
    told = next(warning for warning in caught if warning.category is BadFramesSkipped)
    assert name in str(told.message)
    assert len(frames) == left
    assert len(frames.attrs["skipped"]) >= 1
    assert name in frames.attrs["skipped"][0]
    assert all(warning.filename == __file__ for warning in caught)
    assert any(warning.category is GapsInTime for warning in caught) == gap
    np.testing.assert_array_equal(np.unique(np.diff(frames.time)).min(), np.timedelta64(30, "m"))
    return frames


@pytest.mark.parametrize("keep", [0, 5, 100, 140])
def test_a_truncated_file(folder: Path, keep: int) -> None:
    path = folder / bad_name(3)
    path.write_bytes(path.read_bytes()[:keep])
    refused(folder, str(path), "cannot be read as a .npy file", "truncated")
    frames = skipped(folder, bad_name(3), 5)
    np.testing.assert_array_equal(frames.values, np.delete(ramp(6), 3, axis=0))


def test_a_corrupt_file(folder: Path) -> None:
    (folder / bad_name(2)).write_bytes(b"no array at all" * 20)
    refused(folder, bad_name(2), "cannot be read as a .npy file")
    skipped(folder, bad_name(2), 5)


def test_a_file_of_python_objects_is_not_unpickled(folder: Path) -> None:
    np.save(folder / bad_name(2), np.array([[{}, None]]), allow_pickle=True)
    refused(folder, bad_name(2), "Python objects")


def test_a_frame_of_another_shape(folder: Path) -> None:
    np.save(folder / bad_name(0), np.zeros((5, 4), np.float32))
    refused(folder, bad_name(0), "shape (5, 4) and type float32, but 5 of 6 frames have (3, 4) and float32")
    skipped(folder, bad_name(0), 5, gap=False)


def test_a_frame_of_another_type(folder: Path) -> None:
    np.save(folder / bad_name(5), ramp(1)[0].astype(np.uint8))
    refused(folder, bad_name(5), "type uint8, but 5 of 6 frames have (3, 4) and float32")
    skipped(folder, bad_name(5), 5, gap=False)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (np.zeros((2, 3, 4)), "a file must hold one frame, a 2-D array; got shape (2, 3, 4)"),
        (np.zeros((0, 4)), "a 2-D array; got shape (0, 4)"),
        (np.full((3, 4), "a"), "must be integers or floating-point numbers"),
        (np.zeros((3, 4), complex), "got complex128"),
    ],
)
def test_a_file_that_is_no_frame(folder: Path, frame: np.ndarray, said: str) -> None:
    np.save(folder / bad_name(1), frame)
    refused(folder, bad_name(1), said)
    skipped(folder, bad_name(1), 5)


@pytest.mark.parametrize("name", ["notes.txt", "2024-06-01_2500.npy", "2024-13-01_0000.npy", "frame_0001.npy"])
def test_a_name_that_is_no_time(folder: Path, name: str) -> None:
    (folder / name).write_text("?")
    refused(folder, str(folder / name), "a file whose name is not a time", "YYYY-MM-DD_hhmm.npy")
    skipped(folder, name, 6, gap=False)


def test_a_folder_in_the_folder(folder: Path) -> None:
    (folder / "2024-06-02").mkdir()
    refused(folder, "2024-06-02: a folder whose name is not a time")


def test_hidden_files_do_not_count(folder: Path) -> None:
    (folder / ".DS_Store").write_text("?")
    assert len(open_frames(folder)) == 6


@pytest.mark.parametrize("name", ["2024-06-01_0930 (1).npy", "2024-06-01_0930_copy.npy", "2024-06-01_0930.NPY"])
def test_a_time_that_is_there_twice_in_a_folder(folder: Path, name: str) -> None:
    np.save(folder / "copy.npy", ramp(1)[0])
    (folder / "copy.npy").rename(folder / name)
    refused(folder, "a second frame of 2024-06-01T09:30, beside 2024-06-01_0930.")
    skipped(folder, "a second frame of 2024-06-01T09:30", 6, gap=False)


@pytest.mark.parametrize("kind", ["npz", "nc", "zarr"])
def test_a_time_that_is_there_twice_in_a_file(kind: str, tmp_path: Path) -> None:
    path = write(kind, tmp_path, ramp(6), half_hours(5)[[0, 1, 2, 2, 3, 4]])
    refused(path, f"{path}, frame 3 (2024-06-01T10:00): a second frame of 2024-06-01T10:00")
    frames = skipped(path, "frame 3", 5, gap=False)
    np.testing.assert_array_equal(frames.values, ramp(6)[[0, 1, 2, 4, 5]])


@pytest.mark.parametrize("kind", ["npz", "nc"])
def test_times_that_go_back_are_refused_always(kind: str, tmp_path: Path) -> None:
    path = write(kind, tmp_path, ramp(4), half_hours(4)[[0, 2, 1, 3]])
    for on_bad in ("raise", "skip"):
        with pytest.raises(
            ValueError, match=r"2024-06-01T09:30 \(number 2\) follows 2024-06-01T10:00; sort the archive"
        ):
            open_frames(path, on_bad=on_bad)


def test_a_missing_time(tmp_path: Path) -> None:
    times = half_hours(3)
    times[1] = np.datetime64("NaT")
    with pytest.raises(ValueError, match=r"time number 1 is missing \(NaT\)"):
        open_frames(write("npz", tmp_path, ramp(3), times))


@pytest.mark.parametrize("odd", [0, 4])
def test_a_frame_off_the_cadence_is_odd_also_when_it_is_the_first(odd: int, tmp_path: Path) -> None:
    times = half_hours(6)
    times[odd] += np.timedelta64(7, "m")
    path = write_folder(tmp_path / "a", ramp(6), times)
    refused(path, file_name(times[odd]), "is off the cadence: frames are expected every 30 min")
    skipped(path, file_name(times[odd]), 5, gap=odd > 0)


def test_a_finer_cadence_than_was_said(tmp_path: Path) -> None:
    times = half_hours(1) + np.arange(6) * np.timedelta64(10, "m")
    path = write_folder(tmp_path / "a", ramp(6), times)
    refused(path, 'most follow the one before after 10 min. If that is right, give cadence="10min"')


def test_a_coarser_cadence_than_was_said(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "a", ramp(3), half_hours(6)[::2])
    with pytest.raises(
        ValueError, match=r'no two frames are one step apart; .* after 60 min\. .* give cadence="60min"'
    ):
        open_frames(path)


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the folder is empty; frames are files named YYYY-MM-DD_hhmm.npy"):
        open_frames(tmp_path)


def test_a_folder_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("?")
    with pytest.raises(ValueError, match=r"none of the 1 files is named YYYY-MM-DD_hhmm.npy; one is notes.txt"):
        open_frames(tmp_path, on_bad="skip")


def test_a_folder_of_nothing_but_broken_frames(folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="none of the 6 frames can be read"):
        open_frames(folder, on_bad="skip")


@pytest.mark.parametrize("kind", ["folder", "npz", "nc", "zarr"])
def test_one_frame(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one frame is too few"):
        open_frames(write(kind, tmp_path, ramp(1)))


def test_one_frame_is_left(folder: Path) -> None:
    for number in range(5):
        np.save(folder / bad_name(number), np.full((3, 4), np.nan, np.float32))
    with pytest.raises(ValueError, match=f"one frame is too few; .* 5 were left out:\n  .*{bad_name(0)}"):
        open_frames(folder, on_bad="skip")


@pytest.mark.parametrize("kind", ["folder", "npz", "nc", "zarr"])
@pytest.mark.parametrize(
    ("value", "said"), [(np.nan, "4 of 12 values are missing (NaN)"), (np.inf, "4 of 12 values are infinite")]
)
def test_a_patch_of_missing_or_infinite_values_by_day(kind: str, value: float, said: str, tmp_path: Path) -> None:
    values = ramp(6)
    values[2, 1:, 2:] = value
    path = write(kind, tmp_path, values)
    refused(
        path, said, "the first in row 1, column 2", bad_name(2) if kind == "folder" else "frame 2 (2024-06-01T10:00)"
    )
    frames = skipped(path, said, 5)
    np.testing.assert_array_equal(frames.values, np.delete(ramp(6), 2, axis=0))
    np.testing.assert_array_equal(frames[1:3, 0].values, ramp(6)[[1, 3], 0])


def test_only_the_first_five_bad_frames_are_shown_and_all_are_listed(tmp_path: Path) -> None:
    values = ramp(10)
    values[:7, 0, 0] = np.nan
    path = write("npz", tmp_path, values)
    with pytest.warns(BadFramesSkipped, match=r"7 bad frames left out:(\n  .*){5}\n  ... and 2 more"):
        frames = open_frames(path, on_bad="skip")
    assert len(frames.attrs["skipped"]) == 7


@pytest.mark.parametrize("mark", [-999.0, 1e20])
def test_a_number_that_marks_missing_values_undeclared(folder: Path, mark: float) -> None:
    frame = ramp(1)[0]
    frame[0, 0] = mark
    np.save(folder / bad_name(4), frame)
    refused(folder, bad_name(4), f"holds {mark:g}, which usually marks missing values")
    assert skipped(folder, bad_name(4), 5).attrs["data_min"] == 0.0


def test_irradiance_that_cannot_be(tmp_path: Path) -> None:
    values = ramp(6)
    values[3, 0, 0] = 30000.0
    refused(
        write("nc", tmp_path, values),
        "frame 3",
        "irradiance must lie between -20 and 2000 W m-2, got values from 301 to 30000",
    )


def test_values_too_large_for_float32(folder: Path, tmp_path: Path) -> None:
    values = ramp(6, dtype="float64")
    values[3, 0, 0] = 1e200
    refused(write_folder(tmp_path / "wide", values), bad_name(3), "1 of 12 values are infinite")


@pytest.mark.parametrize("on_bad", ["raise", "skip"])
def test_night_in_all_frames_by_the_sun(on_bad: str, tmp_path: Path) -> None:
    path = write("nc", tmp_path, ramp(4), half_hours(4) + np.timedelta64(12, "h"))
    with pytest.raises(
        ValueError, match=r"it is night in all frames: the sun is never higher than -1.* times must be UTC"
    ):
        open_frames(path, on_bad=on_bad)


def test_night_in_all_frames_by_brightness(tmp_path: Path) -> None:
    dark = write_folder(tmp_path / "dark", np.zeros((4, 3, 4), np.float32))
    with pytest.raises(ValueError, match="all values are 0; it is night in all frames"):
        open_frames(dark)
    noisy = write_folder(tmp_path / "noisy", ramp(4, dtype="uint8") % 11)
    with pytest.raises(ValueError, match="it is night in all frames: the brightest value is 10 of 255"):
        open_frames(noisy)


def test_what_is_not_there_and_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist; frames are a folder of"):
        open_frames(tmp_path / "nowhere")
    (tmp_path / "a.txt").write_text("?")
    with pytest.raises(ValueError, match=r"the format .txt is not supported; frames are a folder of"):
        open_frames(tmp_path / "a.txt")


@pytest.mark.parametrize("kind", ["npz", "nc"])
@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_truncated_archive(kind: str, keep: float, tmp_path: Path) -> None:
    path = write(kind, tmp_path, ramp(40, 30, 30) % 1000)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(OSError, match=f"archive.{kind}: cannot be read as"):
        open_frames(path)


def test_a_damaged_part_of_an_archive_is_a_bad_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    dataset(ramp(6)).to_zarr(path, consolidated=False, encoding={"ghi": {"chunks": (1, 3, 4)}})
    parts = sorted(part for part in (path / "ghi").rglob("*") if part.is_file() and part.name != "zarr.json")
    parts[3].write_bytes(b"no longer what it was")
    refused(path, "frame 3 (2024-06-01T10:30): cannot be read", "truncated or damaged")
    skipped(path, "frame 3", 5)


def test_an_npz_without_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, frames=ramp(3))
    with pytest.raises(ValueError, match="there is no array 'time', only frames"):
        open_frames(path)
    np.savez(path, time=half_hours(3), a=ramp(3), b=ramp(3))
    with pytest.raises(
        ValueError, match=r"there must be one 3-D array .* got a \(3, 3, 4\), b .*\. Name one with variable="
    ):
        open_frames(path)
    np.savez(path, time=np.arange(3), a=ramp(3))
    with pytest.raises(ValueError, match=r"time must be a 1-D datetime64 array .* got int64"):
        open_frames(path)
    np.savez(path, time=half_hours(4), a=ramp(3))
    with pytest.raises(ValueError, match=r"each of the 3 frames of a, got datetime64\[ns\] of shape \(4,\)"):
        open_frames(path)


def test_a_netcdf_without_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    dataset(ramp(3)).rename(ghi="a").assign(b=dataset(ramp(3)).ghi).to_netcdf(path)
    with pytest.raises(
        ValueError, match=r"there must be one variable with the dimensions time, y and x .*\. Name one with variable="
    ):
        open_frames(path)
    with pytest.raises(ValueError, match="there must be a variable 'c' with the dimensions time, y and x"):
        open_frames(path, variable="c")
    dataset(ramp(3)).drop_vars("time").to_netcdf(tmp_path / "b.nc")
    with pytest.raises(ValueError, match=r"one variable .* and decodable times, got ghi"):
        open_frames(tmp_path / "b.nc")
    wrong = dataset(ramp(3))
    wrong["lat"] = wrong.lat + 50
    wrong.to_netcdf(tmp_path / "c.nc")
    with pytest.raises(ValueError, match="lat must lie within -90 and 90 degrees"):
        open_frames(tmp_path / "c.nc")


def test_arguments_that_mean_nothing(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"cadence must be a positive length of time .* got 'soon'"):
        open_frames(folder, cadence="soon")
    with pytest.raises(ValueError, match=r"cadence must be a positive length of time .* got '-1h'"):
        open_frames(folder, cadence="-1h")
    with pytest.raises(ValueError, match="on_bad must be"):
        open_frames(folder, on_bad="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"variable='a' was given, but .* which have no names"):
        open_frames(folder, variable="a")
