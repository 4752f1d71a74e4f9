"""What is started, what is not, and what the numbers are made of; nothing is asserted about megabytes or seconds."""

import math
import signal
from collections.abc import Callable

import pytest

from benchmarks import memory, one_step
from benchmarks.one_step import Step
from benchmarks.result import Row

TINY = Step("twice_reverse", 2, width=2, frame=16, k_shot=2, k_query=1, micro_batch=1, tasks=2)
HEADLINE = {"planner_error", "memory_ratio_5", "memory_ratio_10", "bytes_per_step_over_4D", "cpu_ratio_5", "leak_ratio"}


def pretend(started: list[Step]) -> Callable[[Step, float | None], Row]:
    """Peaks on straight lines: ours 1 + 0.1 K, a full unroll 1 + 2 K; D such that 0.1 GiB is 4D bytes."""

    def runner(step: Step, limit_gib: float | None) -> Row:
        started.append(step)
        if step.what == "predict":
            return {"predicted_gib": {"twice_reverse/1": 1.2 * (1 + 0.1 * step.steps)}, "status": "ok"}
        peak = 1 + step.steps * (2.0 if step.what in ("higher", "torchopt", "unrolled") else 0.1)
        row = {"peak_gib": peak, "peaks_gib": [peak] * step.tasks, "cpu_seconds": 2.0, "wall_seconds": 1.0}
        return {**row, "weights": 0.1 * 2**30 / 4, "status": "ok"}

    return runner


@pytest.fixture
def peers() -> None:
    pytest.importorskip("higher")
    pytest.importorskip("torchopt")


@pytest.mark.usefixtures("peers")
def test_headline_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_gib", lambda: 100.0)
    result = memory.run(full=True, runner=pretend([]))
    assert set(result.headline) == HEADLINE | {"full_peak_gib"}
    assert result.headline["memory_ratio_5"] == pytest.approx(11 / 1.5)
    assert result.headline["memory_ratio_10"] == pytest.approx(21 / 2)
    assert result.headline["bytes_per_step_over_4D"] == pytest.approx(1.0)
    assert result.headline["planner_error"] == pytest.approx(0.2)
    assert result.headline["cpu_ratio_5"] == result.headline["leak_ratio"] == 1.0
    assert all(row["status"] == "ok" for row in result.rows)
    assert "EXTRAPOLATED" not in result.table()


@pytest.mark.usefixtures("peers")
def test_a_peer_that_does_not_fit_is_not_started_and_its_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_gib", lambda: 20.0)
    started: list[Step] = []
    result = memory.run(runner=pretend(started))
    assert ("higher", 5) in [(step.what, step.steps) for step in started]
    assert ("higher", 10) not in [(step.what, step.steps) for step in started]
    row = next(row for row in result.rows if (row["what"], row["inner_steps"]) == ("higher", 10))
    assert row["peak_gib"] is None
    assert row["extrapolated_gib"] == pytest.approx(21)
    assert row["status"] == "not started: extrapolated 21.0 GiB, 20.0 GiB available"
    assert result.headline["memory_ratio_10"] == pytest.approx(21 / 2)
    assert "higher at 10 steps: 21.0 GiB is EXTRAPOLATED" in result.table()


@pytest.mark.usefixtures("peers")
def test_a_peer_that_fails_alone_leaves_an_extrapolation() -> None:
    known = [{"inner_steps": 1, "peak_gib": 3.0}, {"inner_steps": 2, "peak_gib": 5.0}]
    row = memory.measure_or_refuse(Step("higher", 5), known, lambda *_: {"status": "out of memory"}, math.inf)
    assert row["extrapolated_gib"] == 11.0
    assert row["status"] == "out of memory"


@pytest.mark.usefixtures("peers")
def test_quick_has_the_same_headline() -> None:
    result = memory.run(quick=True, runner=pretend([]))
    assert set(result.headline) == HEADLINE
    assert math.isnan(result.headline["memory_ratio_10"])  # nothing is run for ten steps


def test_options_survive_the_command_line() -> None:
    assert one_step.parse([*TINY.arguments(), "--limit-gib", "2.5"]) == (TINY, 2.5)
    assert one_step.parse(TINY.arguments()) == (TINY, None)


def test_one_step_measures_every_task() -> None:
    row = one_step.measure(TINY)
    assert row["status"] == "ok"
    assert len(row["peaks_gib"]) == 2
    assert row["peak_gib"] == row["peaks_gib"][-1] > 0


def test_a_process_of_its_own_reports_and_runs_out_of_memory_alone() -> None:
    row = memory.in_own_process(TINY, 0.05)
    assert row["status"].startswith(("out of memory", "killed"))
    assert "peak_gib" not in row


def test_a_killed_process_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        returncode, stdout, stderr = -signal.SIGKILL, "", ""

    monkeypatch.setattr(memory.subprocess, "run", lambda *_, **__: Killed())
    assert memory.in_own_process(TINY, None)["status"].startswith("killed by signal 9")
