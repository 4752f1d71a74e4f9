import io
import sys
import types
from collections.abc import Callable, Iterator

import pytest

from metaprior import progress
from metaprior.progress import LineBar, Pace, ProgressBar, TerminalBar, about, duration, progress_bar, track

Log = Callable[[], list[str]]


class Clock:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, clock: Clock, capsys: pytest.CaptureFixture[str]) -> Log:
    """Return a function that returns the lines on the error stream, which is no terminal."""
    monkeypatch.setattr(progress, "PACE", Pace(clock))
    return lambda: capsys.readouterr().err.splitlines()


def work(clock: Clock, count: int, seconds: float) -> Iterator[int]:
    for number in range(count):
        clock.now += seconds
        yield number


def test_a_log_gets_a_line_every_half_minute_and_one_at_the_end(log: Log, clock: Clock) -> None:
    with progress_bar("epoch 3/20", 400, unit="tasks", show=True) as bar:
        for number in work(clock, 400, 0.25):
            bar.update(1, loss=f"{number / 100:.2f}")
    assert log() == [
        "epoch 3/20: 120/400 tasks, 0:30 elapsed, about 1:10 left, loss 1.19",
        "epoch 3/20: 240/400 tasks, 1:00 elapsed, about 0:40 left, loss 2.39",
        "epoch 3/20: 360/400 tasks, 1:30 elapsed, about 0:10 left, loss 3.59",
        "epoch 3/20: 400/400 tasks, 1:40 elapsed, loss 3.99",
    ]


def test_short_work_leaves_no_trace_in_a_log(log: Log, clock: Clock) -> None:
    assert list(track(work(clock, 29, 1.0), "frames", unit="frames", show=True)) == list(range(29))
    assert log() == []


def test_short_bars_that_follow_each_other_are_one_long_work(log: Log, clock: Clock) -> None:
    for epoch in range(10):
        list(track(work(clock, 4, 2.0), f"epoch {epoch}", unit="tasks", show=True))
    assert [line.split(",")[0] for line in log()] == ["epoch 3: 3 tasks", "epoch 7: 2 tasks"]


def test_waiting_is_no_work(log: Log, clock: Clock) -> None:
    clock.now += 25  # imports, before any bar
    list(track(work(clock, 5, 1.0), "first", unit="tasks", show=True))
    clock.now += 3600
    list(track(work(clock, 5, 1.0), "second", unit="tasks", show=True))
    assert log() == []


def test_one_long_step_is_told_once(log: Log, clock: Clock) -> None:
    list(track(work(clock, 1, 100.0), "memory", unit="processes", show=True, total=1))
    assert log() == ["memory: 1/1 processes, 1:40 elapsed"]


def test_work_that_was_begun_before_is_not_taken_for_fast_work(log: Log, clock: Clock) -> None:
    with progress_bar("hierarchy", 100, unit="rounds", show=True, done=90) as bar:
        clock.now += 30
        bar.update(5)
    assert log() == ["hierarchy: 95/100 rounds, 0:30 elapsed, about 0:30 left"]


def test_without_a_total_nothing_is_foretold(log: Log, clock: Clock) -> None:
    list(track(work(clock, 2, 20.0), "tasks of an iterator", unit="tasks", show=True))
    assert log() == ["tasks of an iterator: 2 tasks, 0:40 elapsed"]


def test_an_error_ends_a_bar_with_what_was_done(log: Log, clock: Clock) -> None:
    def fails() -> None:
        with progress_bar("scores", 9, unit="tasks", show=True) as bar:
            for seconds in (20, 20, 5):
                clock.now += seconds
                bar.update()
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert log()[-1] == "scores: 3/9 tasks, 0:45 elapsed, about 1:30 left"


def test_a_terminal_gets_a_bar_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, object]] = []
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(TerminalBar.__init__, "__kwdefaults__", {"make": lambda **options: made.append(options)})
    assert isinstance(progress_bar("evaluation", 7, unit="tasks", show=True, done=2), TerminalBar)
    assert made == [{"desc": "evaluation", "total": 7, "unit": " tasks", "initial": 2, "delay": 2.0}]


def test_a_bar_of_tqdm_shows_count_and_values() -> None:
    stream = Terminal()
    with TerminalBar("evaluation", 4, "tasks", 0, file=stream, delay=0, mininterval=0) as bar:
        bar.update(2, loss="0.5")
        bar.update(2)
    assert "evaluation: 100%" in stream.getvalue()
    assert "4/4" in stream.getvalue()
    assert "loss=0.5" in stream.getvalue()


def test_what_is_not_to_be_shown_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("evaluation", 4, unit="tasks", show=False) as bar:
        bar.update(4, loss="0.5")
    assert type(bar) is ProgressBar
    assert bar.done == 4
    assert stream.getvalue() == ""


def test_a_notebook_gets_a_bar_although_its_stream_is_no_terminal(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with progress_bar("evaluation", 4, unit="tasks", show=True) as bar:
        assert isinstance(bar, TerminalBar)
    shell.config.clear()  # IPython in a terminal
    assert isinstance(progress_bar("evaluation", 4, unit="tasks", show=True), LineBar)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (605, "10:05"), (3723, "1:02:03")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "5 seconds"),
        (33, "35 seconds"),
        (70, "a minute"),
        (100, "2 minutes"),
        (3000, "50 minutes"),
        (9000, "2 hours"),
    ],
)
def test_rough_times_in_words(seconds: float, text: str) -> None:
    assert about(seconds) == text
