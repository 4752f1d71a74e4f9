"""Archives with bad frames, and archives that cannot be opened: what is raised, skipped and warned."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def check_refused(path: Path, *said: str) -> None:
    """Opening raises, and the message has every one of these pieces."""
    with pytest.raises(ValueError, match=SKIP_IS_OFFERED) as error:
        open_frames(path)
    for piece in said:
        assert piece in str(error.value)


def opened_skipping(path: Path, name: str, left: int, *, gap: bool = True) -> xr.DataArray:
    """Open with on_bad="skip" and check warnings and attributes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frames = open_frames(path, on_bad="skip")
    told = next(warning for warning in caught if warning.category is BadFramesSkipped)
    assert name in str(told.message)
    assert name in frames.attrs["skipped"][0]
    assert len(frames) == left
    assert all(warning.filename == __file__ for warning in caught)
    assert any(warning.category is GapsInTime for warning in caught) == gap
    return frames


def overwrite(number: int, content: bytes | np.ndarray) -> Callable[[Path], str]:
    """Return a function that replaces a frame of a folder, and returns its name."""

    def damage(folder: Path) -> str:
        path = folder / bad_name(number)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.save(path, content, allow_pickle=True)
        return path.name

    return damage


def truncate(keep: int) -> Callable[[Path], str]:
    def damage(folder: Path) -> str:
        path = folder / bad_name(3)
        path.write_bytes(path.read_bytes()[:keep])
        return str(path)

    return damage


def add(name: str) -> Callable[[Path], str]:
    def damage(folder: Path) -> str:
        (folder / name).write_text("?")
        return str(folder / name)

    return damage


def with_value(value: float) -> np.ndarray:
    frame = ramp(1)[0]
    frame[0, 0] = value
    return frame


NO_TIME = ("a file whose name is not a time", "such as 2026-01-28_1030.npy")


@pytest.mark.parametrize(
    ("damage", "said", "left", "gap"),
    [
        *((truncate(keep), ("cannot be read as a .npy file", "truncated"), 5, True) for keep in (0, 5, 100, 140)),
        (overwrite(2, b"no array at all" * 20), ("cannot be read as a .npy file",), 5, True),
        (overwrite(2, np.array([[{}, None]])), ("Python objects",), 5, True),
        (
            overwrite(0, np.zeros((5, 4), np.float32)),
            ("shape (5, 4) and type float32, but 5 of 6 frames have (3, 4) and float32",),
            5,
            False,
        ),
        (overwrite(5, ramp(1)[0].astype(np.uint8)), ("type uint8, but 5 of 6 frames have (3, 4)",), 5, False),
        (overwrite(1, np.zeros((2, 3, 4))), ("one frame, a 2-D array; got shape (2, 3, 4)",), 5, True),
        (overwrite(1, np.zeros((0, 4))), ("a 2-D array; got shape (0, 4)",), 5, True),
        (overwrite(1, np.full((3, 4), "a")), ("must be integers or floating-point numbers",), 5, True),
        (overwrite(1, np.zeros((3, 4), complex)), ("got complex128",), 5, True),
        (overwrite(4, with_value(-999.0)), ("holds -999, which usually marks missing values",), 5, True),
        (overwrite(4, with_value(1e20)), ("holds 1e+20, which usually marks missing values",), 5, True),
        *((add(name), NO_TIME, 6, False) for name in ("notes.npy", "2024-06-01_2500.npy", "2024-13-01_0000.npy")),
    ],
)
def test_a_bad_file_of_a_folder(
    folder: Path, damage: Callable[[Path], str], said: tuple[str, ...], left: int, gap: bool
) -> None:
    name = damage(folder)
    check_refused(folder, name, *said)
    frames = opened_skipping(folder, Path(name).name, left, gap=gap)
    kept = [time in frames.time.values for time in half_hours(6)]
    np.testing.assert_array_equal(frames.values, ramp(6)[kept])


def test_other_files_and_folders_are_left_out_and_hidden_ones_not_even_told(folder: Path) -> None:
    (folder / ".DS_Store").write_text("?")
    assert not any("left out" in told for told in open_frames(folder).attrs["findings"])
    for name in ("SOURCE.txt", "README", "a.png", "a.nc.aux.xml"):
        (folder / name).write_text("?")
    (folder / "2024-06-02").mkdir()
    frames = open_frames(folder)
    assert len(frames) == 6
    assert "5 other files or folders left out: 2024-06-02, README, SOURCE.txt, ..." in frames.attrs["findings"]


@pytest.mark.parametrize("name", ["2024-06-01_0930 (1).npy", "2024-06-01_0930_copy.npy", "2024-06-01_0930.NPY"])
def test_a_duplicate_time_in_a_folder(folder: Path, name: str) -> None:
    np.save(folder / "copy.npy", ramp(1)[0])
    (folder / "copy.npy").rename(folder / name)
    check_refused(folder, "a second frame of 2024-06-01T09:30, beside 2024-06-01_0930.")
    opened_skipping(folder, "a second frame of 2024-06-01T09:30", 6, gap=False)


@pytest.mark.parametrize("kind", ["npz", "nc", "zarr"])
def test_a_duplicate_time_in_a_file(kind: str, tmp_path: Path) -> None:
    path = write(kind, tmp_path, ramp(6), half_hours(5)[[0, 1, 2, 2, 3, 4]])
    check_refused(path, f"{path}, frame 3 (2024-06-01T10:00): a second frame of 2024-06-01T10:00")
    frames = opened_skipping(path, "frame 3", 5, gap=False)
    np.testing.assert_array_equal(frames.values, ramp(6)[[0, 1, 2, 4, 5]])


@pytest.mark.parametrize("odd", [0, 4])
def test_a_frame_off_the_cadence_is_found_also_if_it_is_the_first(odd: int, tmp_path: Path) -> None:
    times = half_hours(6)
    times[odd] += np.timedelta64(7, "m")
    path = write_folder(tmp_path / "a", ramp(6), times)
    check_refused(path, file_name(times[odd]), "is off the cadence: frames are expected every 30 min")
    opened_skipping(path, file_name(times[odd]), 5, gap=odd > 0)


def test_the_archives_own_cadence_is_named(tmp_path: Path) -> None:
    finer = half_hours(1) + np.arange(6) * np.timedelta64(10, "m")
    path = write_folder(tmp_path / "finer", ramp(6), finer)
    with pytest.raises(ValueError, match=r'after 10 min\. If that is right, give cadence="10min"'):
        open_frames(path, cadence="7min", on_bad="skip")
    coarser = write_folder(tmp_path / "coarser", ramp(3), half_hours(6)[::2])
    with pytest.raises(ValueError, match=r'no two frames are one step apart; .* 60 min\. .* give cadence="60min"'):
        open_frames(coarser, cadence="30min")


@pytest.mark.parametrize("kind", ["folder", "npz", "nc", "zarr"])
@pytest.mark.parametrize(
    ("value", "said"), [(np.nan, "4 of 12 values are missing (NaN)"), (np.inf, "4 of 12 values are infinite")]
)
def test_missing_or_infinite_values_by_day(kind: str, value: float, said: str, tmp_path: Path) -> None:
    values = ramp(6)
    values[2, 1:, 2:] = value
    path = write(kind, tmp_path, values)
    name = bad_name(2) if kind == "folder" else "frame 2 (2024-06-01T10:00)"
    check_refused(path, said, "the first in row 1, column 2", name)
    frames = opened_skipping(path, said, 5)
    np.testing.assert_array_equal(frames.values, np.delete(ramp(6), 2, axis=0))
    np.testing.assert_array_equal(frames[1:3, 0].values, ramp(6)[[1, 3], 0])


def test_values_that_are_too_large(tmp_path: Path) -> None:
    values = ramp(6, dtype="float64")
    values[3, 0, 0] = 30000.0
    message = "irradiance must lie between -20 and 2000 W m-2, got values from 301 to 30000"
    check_refused(write("nc", tmp_path, values), "frame 3", message)
    values[3, 0, 0] = 1e200  # infinite as float32
    check_refused(write_folder(tmp_path / "wide", values), bad_name(3), "1 of 12 values are infinite")


def test_a_damaged_chunk_of_an_archive_is_a_bad_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    dataset(ramp(6)).to_zarr(path, consolidated=False, encoding={"ghi": {"chunks": (1, 3, 4)}})
    parts = sorted(part for part in (path / "ghi").rglob("*") if part.is_file() and part.name != "zarr.json")
    parts[3].write_bytes(b"no longer what it was")
    check_refused(path, "frame 3 (2024-06-01T10:30): cannot be read", "truncated or damaged")
    opened_skipping(path, "frame 3", 5)


def test_the_first_five_bad_frames_are_shown_and_all_are_listed(tmp_path: Path) -> None:
    values = ramp(10)
    values[:7, 0, 0] = np.nan
    path = write("npz", tmp_path, values)
    with pytest.warns(BadFramesSkipped, match=r"7 bad frames left out:(\n  .*){5}\n  ... and 2 more"):
        frames = open_frames(path, on_bad="skip")
    assert len(frames.attrs["skipped"]) == 7
    values[:9, 0, 0] = np.nan
    with pytest.raises(
        ValueError, match=r"at least 2 usable frames, .* got 1; 9 were left out:(\n  .*){5}\n  ... and 4 more"
    ):
        open_frames(write("npz", tmp_path, values), on_bad="skip")


def saved(**arrays: np.ndarray) -> Callable[[Path], Path]:
    """Return a function that writes an npz file."""

    def make(tmp_path: Path) -> Path:
        np.savez(tmp_path / "a.npz", **arrays)
        return tmp_path / "a.npz"

    return make


def stored(content: xr.Dataset) -> Callable[[Path], Path]:
    """Return a function that writes a NetCDF file."""

    def make(tmp_path: Path) -> Path:
        content.to_netcdf(tmp_path / "a.nc")
        return tmp_path / "a.nc"

    return make


def archive(kind: str, values: np.ndarray, times: np.ndarray | None = None) -> Callable[[Path], Path]:
    return lambda tmp_path: write(kind, tmp_path, values, times)


def empty_files(tmp_path: Path) -> Path:
    for path in write_folder(tmp_path / "a", ramp(6)).iterdir():
        path.write_bytes(b"")
    return tmp_path / "a"


def text_file(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("?")
    return tmp_path / "a.txt"


BACK = half_hours(4)[[0, 2, 1, 3]]
UNKNOWN = np.concatenate([half_hours(1), [np.datetime64("NaT")], half_hours(3)[2:]])
NIGHT = half_hours(4) + np.timedelta64(12, "h")
TWO = dataset(ramp(3)).rename(ghi="a").assign(b=dataset(ramp(3)).ghi)
FAR_NORTH = dataset(ramp(3)).assign_coords(lat=("lat", [100.0, 100.1, 100.2], {"units": "degrees_north"}))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (archive("npz", ramp(4), BACK), {}, r"09:30 \(number 2\) follows 2024-06-01T10:00; sort the archive"),
        (archive("nc", ramp(4), BACK), {"on_bad": "skip"}, r"09:30 \(number 2\) follows 2024-06-01T10:00; sort"),
        (archive("npz", ramp(3), UNKNOWN), {}, r"time number 1 is missing \(NaT\)"),
        *((archive(kind, ramp(1)), {}, "at least 2 usable frames") for kind in ("folder", "npz", "nc", "zarr")),
        (archive("nc", ramp(4), NIGHT), {"on_bad": "skip"}, r"night in all .* than -1.* times must be UTC"),
        (archive("folder", np.zeros((4, 3, 4), "f4")), {}, "all values are 0; it is night in all frames"),
        (archive("folder", ramp(4, dtype="uint8") % 11), {}, "night in all .* brightest value is 10 of 255"),
        (lambda path: path, {}, r"the folder is empty; frames are a NetCDF or HDF5 file"),
        (
            lambda path: text_file(path).parent,
            {"on_bad": "skip"},
            r"none of the 1 files is one of frames; one is a\.txt",
        ),
        (empty_files, {"on_bad": "skip"}, "none of the 6 frames can be read"),
        (text_file, {}, r"the format .txt is not supported; frames are a NetCDF"),
        (saved(frames=ramp(3)), {}, "there is no array 'time', only frames"),
        (saved(time=half_hours(3), a=ramp(3), b=ramp(3)), {}, r"one 3-D array .* got a \(3, 3, 4\), b .*Name one"),
        (saved(time=np.arange(3), a=ramp(3)), {}, r"time must be a 1-D datetime64 array .* got int64"),
        (saved(time=half_hours(4), a=ramp(3)), {}, r"the 3 frames of a, got datetime64\[ns\] of shape \(4,\)"),
        (stored(TWO), {}, r"one variable with the dimensions time, y and x .*\. Name one with variable="),
        (stored(TWO), {"variable": "c"}, "a variable 'c' with the dimensions time, y and x"),
        (stored(dataset(ramp(3)).drop_vars("time")), {}, r"one variable .* and decodable times, got ghi"),
        (stored(FAR_NORTH), {}, "lat must lie within -90 and 90 degrees"),
        (archive("folder", ramp(3)), {"cadence": "soon"}, r"cadence must be a positive length .* got 'soon'"),
        (archive("folder", ramp(3)), {"cadence": "-1h"}, r"cadence must be a positive length .* got '-1h'"),
        (archive("folder", ramp(3)), {"on_bad": "ignore"}, "on_bad must be"),
        (archive("folder", ramp(3)), {"variable": "a"}, r"variable='a' was given, but .* which have no names"),
    ],
)
def test_an_archive_that_cannot_be_opened(
    make: Callable[[Path], Path], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        open_frames(make(tmp_path), **options)


@pytest.mark.parametrize("kind", ["npz", "nc"])
@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_truncated_or_absent_archive(kind: str, keep: float, tmp_path: Path) -> None:
    path = write(kind, tmp_path, ramp(40, 30, 30) % 1000)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(OSError, match=f"archive.{kind}: cannot be read as"):
        open_frames(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"archive.{kind} does not exist; frames are a NetCDF"):
        open_frames(path)
