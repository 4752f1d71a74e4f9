import threading
from collections.abc import Callable

import pytest

from metaprior.training import trainer
from metaprior.training.trainer import ReadAhead

PATIENCE = 20.0


class Disk:
    """A reader that records what was read, in which thread and in which order."""

    def __init__(self, what: Callable[[int], str] = str) -> None:
        self.what = what
        self.read: list[int] = []
        self.threads: list[str] = []
        self.finished = threading.Semaphore(0)

    def __call__(self, wanted: int) -> str:
        self.read.append(wanted)
        self.threads.append("main" if threading.current_thread() is threading.main_thread() else "other")
        try:
            return self.what(wanted)
        finally:
            self.finished.release()

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.finished.acquire(timeout=PATIENCE)


@pytest.fixture
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "WORTH_A_THREAD", -1.0)


@pytest.mark.usefixtures("always_worth_it")
def test_the_next_item_is_read_in_another_thread_and_each_once() -> None:
    disk = Disk()
    read = ReadAhead(disk)
    assert [read(number, number + 1 if number < 4 else None) for number in range(5)] == list("01234")
    assert disk.read == [0, 1, 2, 3, 4]
    assert disk.threads == ["main", "other", "other", "other", "other"]


@pytest.mark.usefixtures("always_worth_it")
def test_the_next_item_is_read_before_it_is_needed_and_nothing_after_the_last() -> None:
    disk = Disk()
    read = ReadAhead(disk)
    read(0, 1)
    disk.wait_for(2)
    assert disk.read == [0, 1]
    read(1, None)
    assert disk.read == [0, 1]
    assert read._coming is None


def test_nothing_is_read_ahead_where_reading_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "WORTH_A_THREAD", 1e9)
    disk = Disk()
    read = ReadAhead(disk)
    assert [read(number, number + 1) for number in range(4)] == list("0123")
    assert disk.read == [0, 1, 2, 3]
    assert set(disk.threads) == {"main"}
    assert read._thread is None


def test_a_slow_first_reading_is_what_makes_it_worth_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: now[0])

    def slow_at_two(wanted: int) -> str:
        now[0] += 10 * trainer.WORTH_A_THREAD if wanted == 2 else 0.0
        return str(wanted)

    disk = Disk(slow_at_two)
    read = ReadAhead(disk)
    assert [read(number, number + 1) for number in range(4)] == list("0123")
    assert disk.threads[:4] == ["main", "main", "main", "other"]


@pytest.mark.usefixtures("always_worth_it")
def test_a_wrong_guess_is_forgotten() -> None:
    disk = Disk()
    read = ReadAhead(disk)
    read(0, 1)
    disk.wait_for(2)
    assert read(7, 8) == "7"
    disk.wait_for(2)
    assert read(8, None) == "8"
    assert sorted(disk.read) == [0, 1, 7, 8]
    assert disk.threads[disk.read.index(7)] == "main"


@pytest.mark.usefixtures("always_worth_it")
def test_an_error_is_raised_when_its_item_is_needed_and_only_then() -> None:
    def damaged(wanted: int) -> str:
        if wanted == 2:
            raise OSError("damaged")
        return str(wanted)

    disk = Disk(damaged)
    read = ReadAhead(disk)
    assert read(1, 2) == "1"
    disk.wait_for(2)
    with pytest.raises(OSError, match="damaged"):
        read(2, 3)
    assert read(3, 2) == "3"
    assert read(5, None) == "5", "the error of an item that is not needed any more is not raised"


@pytest.mark.usefixtures("always_worth_it")
def test_there_is_one_thread_however_many_guesses_were_wrong() -> None:
    go_on, at_once, most = threading.Event(), [0], [0]
    lock = threading.Lock()

    def slow(wanted: int) -> str:
        if threading.current_thread() is not threading.main_thread():
            with lock:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            assert go_on.wait(PATIENCE)
            with lock:
                at_once[0] -= 1
        return str(wanted)

    disk = Disk(slow)
    read = ReadAhead(disk)
    for number in range(0, 50, 10):
        read(number, number + 1)  # never what is wanted next
    go_on.set()
    disk.wait_for(10)
    assert most == [1]
