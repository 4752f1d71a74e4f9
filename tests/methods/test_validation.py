"""Scores of validation tasks, and whether adaptation is worth anything on them."""

import math
from typing import Any

import pytest

from metaprior.evaluation import Cell, Evaluation
from metaprior.methods.validation import FEWEST_TASKS, MOST_TASKS, ValidationScores, validation_scores, validation_tasks
from metaprior.tasks import Sinusoids
from tests.methods.small_learner import small_learner
from tests.training.lines import lines


def scores(before: list[float], after: list[float], failed: int = 0) -> ValidationScores:
    cells = {Cell(0, 0): before, Cell(None, 5): after}
    per_task = [
        {"index": index, **cell._asdict(), "nll": nll} for cell, own in cells.items() for index, nll in enumerate(own)
    ]
    rows: list[dict[str, Any]] = [
        {**cell._asdict(), "tasks": len(own), "failed": failed, "nll": sum(own) / max(1, len(own))}
        for cell, own in cells.items()
    ]
    return ValidationScores(Evaluation(rows, per_task, {}))


def test_scores_are_means_over_tasks_and_the_gain_is_paired() -> None:
    found = scores([1.0, 11.0, 21.0], [0.5, 10.0, 21.0])
    assert (found.before, found.after, found.failed) == (11.0, 10.5, 0)
    assert found.score == pytest.approx(10.75)
    gain, error = found.gain
    assert gain == pytest.approx(0.5)
    assert error == pytest.approx(0.5 / math.sqrt(3))  # of the differences, although tasks differ by 20
    assert scores([1.0], [], failed=1).after == math.inf
    assert scores([1.0], [], failed=1).score == math.inf


def test_an_adaptation_that_gains_nothing_is_told_from_one_that_does() -> None:
    count = FEWEST_TASKS
    noise = [0.1 * (-1) ** i for i in range(count)]
    before = [float(i) for i in range(count)]
    same, better, worse = ([b + n - shift for b, n in zip(before, noise, strict=True)] for shift in (0.0, 1.0, -1.0))
    assert scores(before, better).idle() is None
    assert scores(before[:5], same[:5]).idle() is None, "too few to judge"
    assert "over 10 tasks the mean NLL is 4.5 before and 4.5 after it" in str(scores(before, same).idle())
    assert "gains nothing" in str(scores(before, worse).idle())
    assert "gains nothing" in str(scores(before, before).idle())


def test_scores_of_a_learner() -> None:
    tasks = lines(4)
    found = validation_scores(small_learner().start(tasks), tasks, (0, 2, None))
    assert [row["shots"] for row in found.evaluation.rows] == [0, 2, None]
    assert math.isfinite(found.score)


def test_a_source_without_an_end_is_cut() -> None:
    found = validation_tasks(Sinusoids())
    assert len(found) == MOST_TASKS  # type: ignore[arg-type]
    assert found[3].name == "sinusoid 3"
    assert validation_tasks(listed := lines(2)) is listed
    assert validation_tasks({"a": listed[0]})[0].name == "a"
