from collections import Counter
from pathlib import Path

import pytest

from benchmarks import reading
from benchmarks.common.benchmark import Context
from metaprior.metagrad import meta_batch
from metaprior.metagrad.task_checker import TaskChecker
from tests.benchmarks.tiny import TINY as ALL

TINY: reading.Settings = ALL["reading"]


def test_times_add_up_in_the_part_that_is_named_even_if_the_function_raises() -> None:
    spent = Counter[str]()

    def work(times: int) -> int:
        return sum(range(times))

    measured = reading.timed(work, "work", spent)
    assert measured(100_000) == work(100_000)
    once = spent["work"]
    measured(times=1_000_000)
    assert spent["work"] > once > 0
    with pytest.raises(TypeError):
        reading.timed(work, "other", spent)("ten")
    assert set(spent) == {"work", "other"}


def test_what_is_timed_is_put_back() -> None:
    before = TaskChecker.several, meta_batch.damages, meta_batch.first_non_finite
    with reading.parts_timed(Counter[str]()):
        assert before[0] is not TaskChecker.several
        assert before[1] is not meta_batch.damages
        assert before[2] is not meta_batch.first_non_finite
    assert before == (TaskChecker.several, meta_batch.damages, meta_batch.first_non_finite)


def test_parts_are_within_the_step(tmp_path: Path) -> None:
    rounds = reading.measured_rounds(reading.SIMULATED, TINY, tmp_path)
    assert len(rounds) == TINY.rounds
    for spent in rounds:
        assert set(spent) == {reading.DRAW, reading.CHECK, reading.FINITE, reading.STEP}
        assert 0 < spent[reading.DRAW] + spent[reading.CHECK] + spent[reading.FINITE] < spent[reading.STEP]


def test_shares_are_medians_over_rounds() -> None:
    rounds = [Counter({"draw": draw, "check": 1, "finite": 2, "step": 20}) for draw in (3, 1, 9)]
    row = reading.row_of("here", rounds, TINY, tasks_a_step=4)
    assert (row["reading_share"], row["finite_share"]) == (0.2, 0.1)
    assert (row["ms_a_step"], row["draw_ms_a_task"]) == (1000 * 20 / TINY.steps, 1000 * 3 / TINY.steps / 4)


def test_without_the_data_there_is_the_simulator_and_a_note(tmp_path: Path) -> None:
    result = reading.measure(Context(TINY, tmp_path))
    assert [row["archive"] for row in result.rows] == ["simulated"]
    assert result.headline["reading_share"] == result.headline["reading_share_simulated"]
    assert "reading_share_himawari" not in result.headline
    assert reading.MISSING in result.notes
