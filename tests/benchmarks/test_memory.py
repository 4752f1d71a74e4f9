"""What is started, what is not, and what the numbers are made of; nothing is asserted about megabytes or seconds."""

import math
import signal

import pytest

from benchmarks.common.processes import ProcessFailed
from benchmarks.memory import BENCHMARK, one_step
from benchmarks.memory import comparison as memory
from benchmarks.memory.one_step import Step
from tests.benchmarks.pretended import pretended_peaks

TINY = Step("twice_reverse", 2, width=2, frame=16, k_shot=2, k_query=1, micro_batch=1, tasks=2)


@pytest.fixture
def peers() -> None:
    pytest.importorskip("higher")
    pytest.importorskip("torchopt")


@pytest.mark.usefixtures("peers")
def test_a_peer_that_does_not_fit_is_not_started_and_its_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_gib", lambda: 20.0)
    started: list[Step] = []
    monkeypatch.setattr(memory, "measured", pretended_peaks(started))
    result = BENCHMARK.run()
    assert ("higher", 5) in [(step.what, step.steps) for step in started]
    assert ("higher", 10) not in [(step.what, step.steps) for step in started]
    row = next(row for row in result.rows if (row["what"], row["inner_steps"]) == ("higher", 10))
    assert (row["width"], row["random"]) == (64, "all")
    assert row["peak_gib"] is None
    assert row["extrapolated_gib"] == pytest.approx(21)
    assert row["status"] == "not started: extrapolated 21.0 GiB, 20.0 GiB available"
    assert result.headline["memory_ratio_10"] == pytest.approx(2 / 21)
    assert "higher at 10 steps: 21.0 GiB is EXTRAPOLATED" in result.table()


def test_a_peer_that_fails_alone_leaves_an_extrapolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_gib", lambda: math.inf)
    monkeypatch.setattr(memory, "measured", lambda *_: {"status": "out of memory"})
    known = [{"inner_steps": 1, "peak_gib": 3.0}, {"inner_steps": 2, "peak_gib": 5.0}]
    row = memory.measure_or_refuse(Step("higher", 5), known)
    assert row["extrapolated_gib"] == 11.0
    assert row["status"] == "out of memory"


@pytest.mark.usefixtures("peers")
def test_quick_has_the_same_headline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "measured", pretended_peaks([]))
    result = BENCHMARK.run(quick=True)
    assert math.isnan(result.headline["memory_ratio_10"])  # nothing is run for ten steps


def test_one_step_measures_every_task() -> None:
    row = one_step.measure_step(TINY)
    assert row["status"] == "ok"
    assert len(row["peaks_gib"]) == 2
    assert row["peak_gib"] == row["peaks_gib"][-1] > 0


def test_a_process_of_its_own_reports_and_runs_out_of_memory_alone() -> None:
    row = memory.measured(TINY, 0.05)
    assert row["status"].startswith(("out of memory", "killed"))
    assert "peak_gib" not in row


def test_a_killed_process_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise ProcessFailed([], -signal.SIGKILL, "")

    monkeypatch.setattr(memory, "in_own_process", killed)
    assert memory.measured(TINY, None)["status"].startswith("killed by signal 9")
