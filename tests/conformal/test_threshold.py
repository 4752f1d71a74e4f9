"""The quantile behind everything, by hand and against its definition in exact fractions."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from metaprior.conformal.threshold import exact, fewest, score_of_share, threshold


def by_definition(scores: Tensor, level: Fraction, members: Tensor) -> float:
    """Return the smallest score that the weighted share reaches the level at, the new task's weight at infinity."""
    tasks = {k: [s for s, m in zip(scores.tolist(), members.tolist(), strict=True) if m == k] for k in members.tolist()}

    def reached(t: float) -> Fraction:
        return sum((Fraction(sum(s <= t for s in own), len(own)) for own in tasks.values()), Fraction(0))

    return next((t for t in sorted(scores.tolist()) if reached(t) >= level * (len(tasks) + 1)), math.inf)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0.5, 5.0), (0.6, 6.0), (0.61, 7.0), (0.9, 9.0), (0.901, math.inf), (0.01, 1.0), (0.999, math.inf)],
)
def test_it_is_the_order_statistic_of_split_conformal_prediction(level: float, expected: float) -> None:
    scores = numbers(3, 1, 2, 9, 8, 7, 4, 6, 5)
    assert float(threshold(scores, level)) == expected  # ceil(10 level)-th smallest of 9


@pytest.mark.parametrize("count", range(1, 130))
def test_levels_mean_what_is_written(count: int) -> None:
    """In floating point, 100 * 0.55 is above 55 and 20 * 0.95 or 10 * 0.7 may be on either side."""
    scores = torch.arange(1, count + 1, dtype=torch.float64)
    for percent in range(1, 100):
        rank = -(-(count + 1) * percent // 100)
        assert float(threshold(scores, percent / 100)) == (rank if rank <= count else math.inf)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_the_fewest_observations_are_just_enough(level: float) -> None:
    count = fewest(level)
    assert math.isfinite(threshold(torch.zeros(count), level))
    assert math.isinf(threshold(torch.zeros(count - 1), level))


def test_missing_scores_are_no_scores_and_each_target_has_its_own() -> None:
    nan = math.nan
    scores = torch.tensor([[1.0, nan, nan], [2.0, 5.0, nan], [3.0, 6.0, nan], [nan, 7.0, nan]], dtype=torch.float64)
    assert threshold(scores, 0.5).tolist() == [2.0, 6.0, math.inf]
    assert threshold(scores[:, :2].reshape(4, 2, 1), 0.5).shape == (2, 1)


def test_ties_count_each() -> None:
    assert float(threshold(numbers(1, 1, 1, 1, 2, 2, 2, 2, 2), 0.4)) == 1
    assert float(threshold(numbers(1, 1, 1, 1, 2, 2, 2, 2, 2), 0.41)) == 2
    assert float(threshold(numbers(*[4.0] * 9), 0.9)) == 4


def test_tasks_weigh_the_same_whatever_their_size() -> None:
    scores, members = numbers(1, 2, 3, 4, 10, 20), torch.tensor([7, 7, 7, 7, 3, 5])
    assert float(threshold(scores, 0.25, members)) == 4  # the first task is 1/4 of the weight, with all four scores
    assert float(threshold(scores, 0.26, members)) == 10
    assert float(threshold(scores, 0.75, members)) == 20
    assert math.isinf(threshold(scores, 0.76, members))


@pytest.mark.parametrize("seed", range(40))
def test_tasks_against_the_definition(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tasks = int(torch.randint(1, 12, (), generator=generator))
    sizes = torch.randint(1, 9, (tasks,), generator=generator)
    members = torch.arange(tasks).repeat_interleave(sizes)[torch.randperm(int(sizes.sum()), generator=generator)]
    scores = torch.randint(0, 12, members.shape, generator=generator).double()  # with ties
    for level in (0.05, 0.3, 0.5, 0.75, 0.8, 0.9, 0.95):
        assert float(threshold(scores, level, members)) == by_definition(scores, exact(level), members)


def test_sizes_without_a_small_common_multiple_only_raise_the_threshold() -> None:
    sizes = torch.tensor([31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79])  # their multiple is beyond 2**40
    members = torch.arange(len(sizes)).repeat_interleave(sizes)
    scores = torch.rand(len(members), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for level in (0.5, 0.77, 0.9):
        found, expected = float(threshold(scores, level, members)), by_definition(scores, exact(level), members)
        assert expected <= found <= expected + 0.01


def test_score_of_a_share_is_the_smallest_that_so_many_do_not_exceed() -> None:
    nan = math.nan
    scores = torch.tensor([[5.0, nan, nan], [1.0, 4.0, nan], [3.0, 2.0, nan], [2.0, nan, nan], [4.0, nan, nan]])
    found = {share: score_of_share(scores, share)[0].tolist() for share in (0.2, 0.5, 0.6, 0.8, 1.0)}
    assert [found[share][0] for share in found] == [1, 3, 3, 4, 5]
    assert [found[share][1] for share in found] == [2, 2, 4, 4, 4]
    assert all(math.isnan(own[2]) for own in found.values())
