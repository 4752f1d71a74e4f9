"""How much of a NetCDF or Zarr archive is asked for at once, whatever its chunks are, and what the user is told."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from metaprior.solar.maps.archives import archive
from metaprior.solar.maps.archives.archive import Archive
from metaprior.solar.maps.archives.frames import open_frames
from tests.solar.maps.archives.test_frames import dataset, half_hours, needs_proc, ramp

FRAME = 4 * 8 * 8  # bytes
COUNT = 14  # half-hours of one day


def write(path: Path, *chunk: int, dtype: str = "float32") -> Path:
    """Fourteen frames of 8 x 8 in chunks of this shape."""
    frames = dataset(ramp(COUNT, 8, 8) / 2)
    if path.suffix == ".nc":
        frames.to_netcdf(path, encoding={"ghi": {"chunksizes": chunk, "dtype": dtype, "zlib": True}})
    else:
        frames.to_zarr(path, consolidated=False, encoding={"ghi": {"chunks": chunk, "dtype": dtype}})
    return path


def opened(path: Path, monkeypatch: pytest.MonkeyPatch, *, limit: float) -> tuple[list[int], list[str]]:
    """Frames of each block that was asked for when at most ``limit`` fit, and the warnings, which name this file."""
    asked: list[int] = []
    real = Archive.read
    monkeypatch.setattr(archive, "LARGEST_BLOCK_BYTES", int(limit * FRAME))
    monkeypatch.setattr("metaprior.solar.maps.archives.cf_file.LARGEST_BLOCK_BYTES", int(limit * FRAME))
    monkeypatch.setattr(Archive, "read", lambda self, key: (asked.append(len(key)), real(self, key))[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frames = open_frames(path)
    told, blocks = [str(one.message) for one in caught if one.filename == __file__], asked[:]
    np.testing.assert_array_equal(frames.values, ramp(COUNT, 8, 8) / 2)
    return blocks, told


@pytest.mark.parametrize("kind", ["nc", "zarr"])
@pytest.mark.parametrize(
    ("limit", "blocks"), [(COUNT, [14]), (13, [7, 7]), (5, [5, 5, 4]), (1, [1] * COUNT), (0.5, [1] * COUNT)]
)
def test_no_block_is_larger_than_the_limit_or_one_frame(
    kind: str, limit: float, blocks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(write(tmp_path / f"a.{kind}", COUNT, 2, 2), monkeypatch, limit=limit)[0] == blocks


def test_chunks_longer_than_a_block_warn_with_a_command_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.nc", COUNT, 8, 2)
    _, (told,) = opened(path, monkeypatch, limit=8)
    start = (
        f"{path}: ghi is stored in chunks of 14 x 8 x 2 values (time, lat, lon), 0.0 MiB each: to check the frames, "
    )
    assert told.startswith(start)
    assert "8 or fewer at a time, every chunk is decompressed 2 times." in told
    assert told.endswith("nccopy -c time/1,lat/8,lon/8 OLD.nc NEW.nc")
    assert "not bounded" not in told, "a chunk is small: only time is lost"


def test_a_chunk_larger_than_a_block_warns_that_memory_is_not_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.zarr", COUNT, 8, 8)
    _, (told,) = opened(path, monkeypatch, limit=13)
    assert f"{path}: ghi is stored in chunks of 14 x 8 x 8 values" in told
    assert "memory for whole chunks, so its peak is not bounded here; to check the frames" in told
    assert "chunks (1, 8, 8), with to_zarr of xarray" in told


def test_the_size_of_a_chunk_is_that_of_the_stored_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = write(tmp_path / "a.nc", 7, 8, 8, dtype="float64")
    assert "not bounded" in opened(large, monkeypatch, limit=13)[1][0]
    assert opened(large, monkeypatch, limit=14)[1] == []


def test_other_files_are_opened_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset(ramp(COUNT, 8, 8) / 2).to_netcdf(tmp_path / "whole.nc")
    for path in (tmp_path / "whole.nc", write(tmp_path / "a.nc", 4, 8, 8), write(tmp_path / "a.zarr", 4, 8, 8)):
        assert opened(path, monkeypatch, limit=4)[1] == []


def test_the_lines_of_the_documentation_store_an_archive_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[4] / "docs" / "solar" / "frames.md"
    (lines,) = [block for block in page.read_text().split("```python\n") if "to_zarr" in block]
    frames = dataset(np.tile(ramp(6, 2, 2), (50, 1, 1)), half_hours(300))
    frames.to_zarr(tmp_path / "old.zarr", consolidated=False, encoding={"ghi": {"chunks": (300, 1, 1)}})
    monkeypatch.chdir(tmp_path)
    example = re.sub(r"^write_frames.*\n", "", lines.split("```")[0], flags=re.MULTILINE)
    exec(example.replace("(16, 16, 16)", "(16, 2, 2)"), {})
    new = xr.open_zarr(tmp_path / "new.zarr", chunks=None, consolidated=False)
    assert new.ghi.encoding["chunks"] == (16, 2, 2)
    xr.testing.assert_identical(new.load(), frames)


PEAKS = """
import re, sys
from pathlib import Path
from metaprior.solar.maps.archives import archive
from metaprior.solar.maps.archives.frames import open_frames
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024
archive.LARGEST_BLOCK_BYTES = 2**23
before = peak()
open_frames(sys.argv[1], progress=False)
print(peak() - before)
"""


@needs_proc
def test_memory_does_not_grow_with_the_length_of_chunks(tmp_path: Path) -> None:
    count = 320  # frames of 0.25 MiB in chunks of 1.25 MiB
    values = np.broadcast_to(np.linspace(0, 1, 256, dtype=np.float32), (count, 256, 256))
    file = xr.Dataset({"brightness": (("time", "y", "x"), values)}, {"time": half_hours(count)})
    chunked = {"chunksizes": (count, 32, 32), "zlib": True, "complevel": 1}
    file.to_netcdf(tmp_path / "long.nc", encoding={"brightness": chunked})
    command = [sys.executable, "-W", "ignore", "-c", PEAKS, str(tmp_path / "long.nc")]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=alone)
    # Four blocks of 8 MiB, and the chunks that the library keeps, 64 MiB; the archive read whole takes 240 MiB.
    assert int(done.stdout) < 150
