"""Evaluation by several ranks: the numbers of one process to the last bit, and nobody asks for another's tasks."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from metaprior import evaluation
from metaprior.evaluation import Evaluation, evaluate
from metaprior.posterior import Posterior
from metaprior.tasks.task import Examples, Task
from metaprior.team import OtherRankFailed, Team
from tests.bars import recorded_bars
from tests.team.fake import outcomes, together
from tests.test_evaluation import adapt_line, label_tasks, line, line_task, logits

SLOPES = (1.0, 3.0, -0.7, 2.2, 0.1, 5.0, -4.0)


def doubtful(support: Examples | None, steps: int) -> Posterior:
    """Weight samples differ, so that every number depends on the task's own seed."""
    posterior = adapt_line(support, steps)
    return replace(posterior, weights=posterior.weights.replace(rho=torch.zeros(1).double()))


class Asked:
    """Tasks by index that remember who asked for which."""

    def __init__(self) -> None:
        self.indices: list[int] = []

    def __len__(self) -> int:
        return len(SLOPES)

    def __getitem__(self, index: int) -> Task:
        self.indices.append(index)
        return line_task(SLOPES[index], f"line {index}")


def text(found: Evaluation) -> str:
    return json.dumps(found.as_json())


@pytest.mark.parametrize("size", [2, 3, 9])
def test_real_values_are_scored_as_by_one_process_to_the_last_bit(size: int) -> None:
    alone = text(evaluate(doubtful, Asked(), shots=[0, 1, None], steps=[1, 2], samples=3))

    def work(team: Team) -> str:
        return text(evaluate(doubtful, Asked(), shots=[0, 1, None], steps=[1, 2], samples=3))

    assert together(size, work) == [alone] * size


@pytest.mark.parametrize("size", [2, 3])
def test_labels_too_whose_confidences_are_added_up_in_the_order_of_tasks(size: int) -> None:
    alone = evaluate(logits, label_tasks(7))
    for found in together(size, lambda _: evaluate(logits, label_tasks(7))):
        assert text(found) == text(alone)
        assert found.row()["ece"] == alone.row()["ece"]


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_a_rank_asks_for_its_own_tasks_alone(size: int) -> None:
    def work(team: Team) -> tuple[list[int], list[int]]:
        tasks = Asked()
        evaluate(adapt_line, tasks)
        return tasks.indices, list(team.share(len(SLOPES)))

    for asked, own in together(size, work):
        assert asked == own


def test_iterators_are_gone_through_by_all_and_scored_in_turns() -> None:
    def endless() -> Iterator[Task]:
        return (line_task(slope, f"line {i}") for i, slope in enumerate(itertools.chain(SLOPES, itertools.repeat(1.0))))

    adapted: dict[int, int] = {}

    def work(team: Team) -> str:
        def counted(support: Examples | None, steps: int) -> Posterior:
            adapted[team.rank] = adapted.get(team.rank, 0) + 1
            return doubtful(support, steps)

        return text(evaluate(counted, itertools.islice(endless(), 7)))

    assert together(3, work) == [text(evaluate(doubtful, Asked()))] * 3
    assert adapted == {0: 3, 1: 2, 2: 2}


def wild(*bad: float) -> Callable[[Examples | None, int], Posterior]:
    def adapt(support: Examples | None, steps: int) -> Posterior:
        slope = 0.0 if support is None else round((support.y / support.x).mean().item(), 6)
        return line(math.nan if slope in bad else slope)

    return adapt


def test_failures_are_listed_in_the_order_of_tasks() -> None:
    bad = wild(SLOPES[5], SLOPES[1], SLOPES[2])
    alone = evaluate(bad, Asked(), shots=[0, None])
    for found in together(3, lambda _: evaluate(bad, Asked(), shots=[0, None])):
        assert [failure.index for failure in found.failures] == [1, 2, 5]
        assert text(found) == text(alone)
        assert found.table() == alone.table()


def test_a_rank_on_which_everything_failed_is_no_error_but_all_ranks_are() -> None:
    last = wild(*SLOPES[4:])  # all of rank 2
    assert {found.row()["tasks"] for found in together(3, lambda _: evaluate(last, Asked()))} == {4}
    for error in outcomes(3, lambda _: evaluate(wild(*SLOPES), Asked())):
        assert isinstance(error, FloatingPointError)
        assert "first of 7 failures was 'line 0'" in str(error)


def test_bad_data_of_one_rank_stop_all() -> None:
    tasks = [line_task(slope, f"line {i}") for i, slope in enumerate(SLOPES)]
    tasks[6] = tasks[6]._replace(query=Examples(tasks[6].query.x, tasks[6].query.y + math.inf))
    first, second = outcomes(2, lambda _: evaluate(adapt_line, tasks))
    assert isinstance(first, OtherRankFailed)
    assert "query y of task 'line 6'" in str(first)
    assert isinstance(second, ValueError)


def test_the_first_rank_shows_how_far_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = recorded_bars(monkeypatch, evaluation)
    together(2, lambda _: evaluate(adapt_line, Asked(), progress=True))
    assert [2, 4, 7] in [bar.counts for bar in bars if bar.show and bar.total == 7]
    assert [bar.show for bar in bars].count(False) == 1
    bars.clear()
    evaluate(adapt_line, Asked(), progress=True)
    assert [(bar.show, bar.counts) for bar in bars] == [(True, [1, 2, 3, 4, 5, 6, 7])]
