from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from metaprior.adaptation.descent import DescentModel
from metaprior.metagrad import keeping
from metaprior.metagrad.meta_batch import BatchSums, mean_of_pool, meta_sums, sum_over_ranks
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.team import OtherRankFailed, Team
from tests.team.fake import outcomes, together
from tests.training.lines import damaged, lines, make_problem

PROBLEM = make_problem()
MODEL = DescentModel(PROBLEM)
THETA = PROBLEM.initial(torch.ones(4, 1, dtype=torch.float64), 0.2)
NOISE = Noise(3)


def divided(tasks: Sequence[Task], size: int, *, stacked: bool = False, pooled: bool = False) -> list[BatchSums]:
    """What every rank has in the end."""

    def work(team: Team) -> BatchSums:
        own = team.share(len(tasks))

        def part() -> BatchSums:
            mine = [tasks[index] for index in own]
            if pooled:
                return MODEL.pooled_sums(THETA, mine)
            noise = NOISE.at(task=own.start)
            return meta_sums(PROBLEM, THETA, mine, noise, engine=keeping(10), stacked=stacked and len(mine) > 1)

        return sum_over_ranks(THETA, part)

    return together(size, work)


def assert_same(found: BatchSums, expected: BatchSums, tolerance: float) -> None:
    assert (found.names, found.weight) == (expected.names, expected.weight)
    assert list(map(str, found.failures)) == list(map(str, expected.failures))
    assert found.grads is not None
    assert expected.grads is not None
    assert found.terms is not None
    assert expected.terms is not None
    of_both = zip((*found.grads.tensors(), *found.terms), (*expected.grads.tensors(), *expected.terms), strict=True)
    for value, other in of_both:
        torch.testing.assert_close(value, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("pooled", [False, True])
def test_sums_are_those_of_one_process_and_the_same_everywhere(size: int, stacked: bool, pooled: bool) -> None:
    """Also where there are fewer tasks than ranks."""
    tasks = lines(4)
    (alone,) = divided(tasks, 1, stacked=stacked, pooled=pooled)
    first, *others = divided(tasks, size, stacked=stacked, pooled=pooled)
    assert_same(first, alone, 1e-12)
    for other in others:
        assert_same(other, first, 0.0)


@pytest.mark.parametrize("pooled", [False, True])
def test_means_are_those_of_one_process(pooled: bool) -> None:
    tasks = lines(5)
    (alone,) = divided(tasks, 1, pooled=pooled)
    found = divided(tasks, 2, pooled=pooled)[1]
    mean = mean_of_pool if pooled else BatchSums.mean
    one, two = mean(alone, THETA), mean(found, THETA)
    assert one.count == two.count == 5
    torch.testing.assert_close(two.grads.mu, one.grads.mu, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(two.loss, one.loss, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("bad", [{0}, {3}, {0, 1}, {2, 3}, {0, 3}])
def test_bad_tasks_are_named_in_order_and_left_out(bad: set[int], pooled: bool) -> None:
    """One rank may have no good task at all."""
    tasks = [damaged(task) if index in bad else task for index, task in enumerate(lines(4))]
    (alone,) = divided(tasks, 1, pooled=pooled)
    for found in divided(tasks, 2, pooled=pooled):
        assert_same(found, alone, 1e-12)
        assert [failure.task for failure in found.failures] == [f"line {index}" for index in sorted(bad)]
        assert len(found.names) == 4 - len(bad)


def test_without_a_good_task_anywhere_there_are_no_sums() -> None:
    tasks = [damaged(task) for task in lines(3)]
    for found in divided(tasks, 2):
        assert found.grads is None
        assert [failure.task for failure in found.failures] == ["line 0", "line 1", "line 2"]
        assert found.mean(THETA).count == 0


def test_an_error_on_one_rank_stops_all_before_anything_is_added() -> None:
    def work(team: Team) -> BatchSums:
        def part() -> BatchSums:
            if team.rank == 1:
                raise OSError("the disk is gone")
            return MODEL.pooled_sums(THETA, lines(2))

        return sum_over_ranks(THETA, part)

    first, second = outcomes(2, work)
    assert isinstance(first, OtherRankFailed)
    assert isinstance(second, OSError)


def test_one_process_gets_its_own_sums_back() -> None:
    own = MODEL.pooled_sums(THETA, lines(2))
    assert sum_over_ranks(THETA, lambda: own) is own


def test_views_are_not_added_into() -> None:
    """A gradient that is one number seen many times cannot be summed in place."""
    own = MODEL.pooled_sums(THETA, lines(1))
    assert own.grads is not None
    wide = own.grads.replace(rho=torch.ones(1, dtype=torch.float64).expand_as(THETA.rho))
    found = together(2, lambda _: sum_over_ranks(THETA, lambda: replace(own, grads=wide)))
    for sums in found:
        assert sums.grads is not None
        assert torch.equal(sums.grads.rho, torch.full_like(THETA.rho, 2.0))
