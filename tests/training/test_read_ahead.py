import threading
from collections.abc import Callable

import pytest

from metaprior.training import trainer
from metaprior.training.trainer import ReadAhead

PATIENCE = 20.0


class Disk:
    """Reading, of which everything is known: what, in which thread, in which order."""

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
def test_the_next_thing_is_read_in_another_thread_and_each_once() -> None:
    disk = Disk()
    read = ReadAhead(disk)
    assert [read(number, number + 1 if number < 4 else None) for number in range(5)] == list("01234")
    assert disk.read == [0, 1, 2, 3, 4]
    assert disk.threads == ["main", "other", "other", "other", "other"]


@pytest.mark.usefixtures("always_worth_it")
def test_it_is_under_way_before_it_is_asked_for() -> None:
    disk = Disk()
    read = ReadAhead(disk)
    read(0, 1)
    disk.wait_for(2)
    assert disk.read == [0, 1]


@pytest.mark.usefixtures("always_worth_it")
def test_after_the_last_nothing_is_read() -> None:
    disk = Disk()
    read = ReadAhead(disk)
    read(0, 1)
    read(1, None)
    disk.wait_for(2)
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
def test_an_error_comes_up_when_its_thing_is_wanted_and_not_before() -> None:
    def damaged(wanted: int) -> str:
        if wanted == 2:
            raise OSError("damaged")
        return str(wanted)

    disk = Disk(damaged)
    read = ReadAhead(disk)
    assert read(0, 1) == "0"
    assert read(1, 2) == "1"
    disk.wait_for(3)
    with pytest.raises(OSError, match="damaged"):
        read(2, 3)
    assert read(3, None) == "3", "what comes after it can be read"


@pytest.mark.usefixtures("always_worth_it")
def test_an_error_of_what_is_not_wanted_any_more_is_nobodys() -> None:
    def damaged(wanted: int) -> str:
        if wanted == 1:
            raise OSError("damaged")
        return str(wanted)

    read = ReadAhead(Disk(damaged))
    read(0, 1)
    assert read(5, None) == "5"


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
