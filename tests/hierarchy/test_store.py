import errno
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from metaprior import checkpoint
from metaprior.errors import CheckpointError
from metaprior.hierarchy.store import FILE, Entry, PosteriorStore

KIND, ROWS, SIZE = "Test", 6, 5


def store_in(folder: Path, *, size: int = SIZE, dtype: torch.dtype = torch.float64) -> PosteriorStore:
    """As it was committed, if it was."""
    store = PosteriorStore(folder, KIND, ROWS, size, dtype)
    if store.exists:
        store.open(checkpoint.read(folder, KIND)[1]["tasks"])
    return store


def record(number: int, dtype: torch.dtype = torch.float64, size: int = SIZE) -> Tensor:
    return torch.randn(ROWS, size, dtype=dtype, generator=torch.Generator().manual_seed(number))


def new_entry(index: int) -> Entry:
    return Entry(f"task {index}", 10, "shapes", "fingerprint")


def new_store(folder: Path, tasks: int = 3, dtype: torch.dtype = torch.float64) -> PosteriorStore:
    """With record i for task i, committed."""
    checkpoint.write(folder, KIND, {}, {"tasks": []})
    store = store_in(folder, dtype=dtype)
    with store.locked():
        store.entries.extend(map(new_entry, range(tasks)))
        for index in range(tasks):
            store.write(index, record(index, dtype), steps=1)
        store.commit({}, {})
    return store


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_was_committed_is_there_again_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    new_store(tmp_path, dtype=dtype)
    again = store_in(tmp_path, dtype=dtype)
    for index in range(3):
        assert torch.equal(again.read(index), record(index, dtype))
    assert again.entries == [replace(new_entry(i), steps=1, checksum=again.entries[i].checksum) for i in range(3)]


def test_what_was_not_committed_never_was(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with store.locked():
        for attempt in (10, 20, 30):  # more than there are slots
            store.write(1, record(attempt), steps=2)
            assert torch.equal(store.read(1), record(attempt))
            assert torch.equal(store_in(tmp_path).read(1), record(1))
    assert torch.equal(store.read(1), record(1))
    assert store.entries == store_in(tmp_path).entries


def test_slots_take_turns_from_commit_to_commit(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    for number in range(1, 5):
        with store.locked():
            store.write(1, record(10 * number), steps=1 + number)
            assert torch.equal(store_in(tmp_path).read(1), record(10 * (number - 1)) if number > 1 else record(1))
            store.commit({}, {})
        assert torch.equal(store_in(tmp_path).read(1), record(10 * number))
        assert torch.equal(store_in(tmp_path).read(0), record(0))
    assert (tmp_path / FILE).stat().st_size <= 2 * 3 * record(0).nbytes


def test_a_store_grows(tmp_path: Path) -> None:
    new_store(tmp_path)
    store = store_in(tmp_path)
    with store.locked():
        store.entries.extend([new_entry(3), new_entry(4)])
        store.write(4, record(4), steps=1)
        store.commit({}, {})
    again = store_in(tmp_path)
    for index in (0, 1, 2, 4):
        assert torch.equal(again.read(index), record(index))
    with pytest.raises(KeyError, match="no posterior of 'task 3' yet"):
        again.read(3)


def test_a_place_that_was_forgotten_stays_empty(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with store.locked():
        store.forget(1)
        store.commit({}, {})
    again = store_in(tmp_path)
    assert [entry.forgotten for entry in again.entries] == [False, True, False]
    assert torch.equal(again.read(2), record(2))


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    new_store(tmp_path)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content[: 2 * record(0).nbytes])
    with pytest.raises(CheckpointError, match=f"{re.escape(str(tmp_path / FILE))} is cut short: 480 bytes"):
        store_in(tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(CheckpointError, match="is cut short: 0 bytes"):
        store_in(tmp_path)


def test_a_damaged_byte_is_noticed_in_the_posterior_that_has_it(tmp_path: Path) -> None:
    new_store(tmp_path)
    content = bytearray((tmp_path / FILE).read_bytes())
    content[2 * record(0).nbytes + 17] ^= 1  # task 1's first slot
    (tmp_path / FILE).write_bytes(content)
    store = store_in(tmp_path)
    assert torch.equal(store.read(0), record(0))
    assert torch.equal(store.read(2), record(2))
    with pytest.raises(CheckpointError, match=re.escape(f"{tmp_path / FILE}: the posterior of 'task 1' is not what")):
        store.read(1)


def test_a_store_of_another_size_is_refused(tmp_path: Path) -> None:
    new_store(tmp_path)
    with pytest.raises(CheckpointError, match=f"{re.escape(str(tmp_path / FILE))} is cut short"):
        store_in(tmp_path, size=SIZE + 10)
    with pytest.raises(CheckpointError, match="is not what was saved"):
        store_in(tmp_path, size=SIZE - 1).read(0)
    with pytest.raises(CheckpointError, match="is not what was saved"):
        store_in(tmp_path, dtype=torch.float32).read(0)


def test_one_writes_at_a_time(tmp_path: Path) -> None:
    first, second = new_store(tmp_path), store_in(tmp_path)
    with first.locked():
        with pytest.raises(CheckpointError, match=f"{re.escape(str(tmp_path))} is being written by another process"):
            second.locked().__enter__()
        assert torch.equal(second.read(0), record(0))  # reading is always possible
    for number in (5, 6):  # both slots
        with second.locked():
            second.write(0, record(number), steps=2)
            second.commit({}, {})
    with pytest.raises(CheckpointError, match=r"'task 0' is not what was saved\. Either another process has trained"):
        first.read(0)
    assert torch.equal(store_in(tmp_path).read(0), record(6))


def test_a_record_of_another_shape_and_a_commit_without_the_lock_are_refused(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with pytest.raises(ValueError, match="is not locked for writing"):
        store.commit({}, {})
    with store.locked(), pytest.raises(ValueError, match=r"a record must have the shape \(6, 5\), got \(6, 4\)"):
        store.write(0, torch.zeros(6, 4))


# VmHWM and not ru_maxrss, which a new process inherits from the one that started it.
MANY_RECORDS = """
import re, sys
from pathlib import Path
import torch
from metaprior import checkpoint
from metaprior.hierarchy.store import Entry, PosteriorStore

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
checkpoint.write(sys.argv[1], "Test", {}, {"tasks": []})
store = PosteriorStore(sys.argv[1], "Test", 6, 20_000, torch.float32)
record = torch.randn(6, 20_000)
peaks = []
for tasks in (20, 400):
    with store.locked():
        for index in range(len(store.entries), tasks):
            store.entries.append(Entry(f"task {index}", 1, "", ""))
            store.write(index, record, steps=1)
        store.commit({}, {})
    for index in range(tasks):
        assert torch.equal(store.read(index), record)
    peaks.append(peak())
print(*peaks)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="VmHWM is Linux's")
def test_memory_does_not_grow_with_the_number_of_tasks(tmp_path: Path) -> None:
    """400 records of 480 kB are 192 MB on disk; the peak after 20 and after 400 of them is the same within 10 %."""
    done = subprocess.run([sys.executable, "-c", MANY_RECORDS, tmp_path], capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split())
    assert many < 1.1 * few


def test_a_full_disk_is_an_error_that_names_the_file_and_the_last_commit_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(tmp_path)

    def no_space(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(OSError, match=re.escape(str(tmp_path / FILE))) as failed, store.locked():
        store.write(1, record(9), steps=2)
    assert failed.value.errno == errno.ENOSPC
    assert store_in(tmp_path).read(1).equal(record(1))
