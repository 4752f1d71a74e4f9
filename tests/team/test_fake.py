"""The fake of the tests is a team."""

import pytest
import torch

from metaprior.team import OtherRankFailed, Team
from metaprior.team.team import RankLost
from tests.team.fake import outcomes, together


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_answer_as_one_process_would(size: int) -> None:
    def work(team: Team) -> tuple[list[int], int, bool, list[float]]:
        total = torch.tensor([1.0 + team.rank])
        team.sum_([total])
        return (
            team.map(lambda i: i * i, 5),
            team.on_first(lambda: team.rank + 7),
            team.any(team.rank == 1),
            total.tolist(),
        )

    sums = [float(size * (size + 1) // 2)]
    assert together(size, work) == [([0, 1, 4, 9, 16], 7, size > 1, sums)] * size


def test_what_arrives_is_a_copy() -> None:
    lists = together(2, lambda team: team.map(lambda _: [0], 1))
    assert lists[0][0] is not lists[1][0]


def test_an_error_of_one_rank_is_one_of_all_and_said_by_that_rank() -> None:
    def work(team: Team) -> None:
        team.map(lambda i: 1 // (i - 2), 4)

    first, second = outcomes(2, work)
    assert isinstance(first, OtherRankFailed)
    assert "rank 1 failed: ZeroDivisionError" in str(first)
    assert isinstance(second, ZeroDivisionError)


def test_who_leaves_is_not_waited_for() -> None:
    def work(team: Team) -> list[int]:
        if team.rank == 1:
            raise KeyboardInterrupt
        return team.map(lambda i: i, 2)

    waiting, gone = outcomes(2, work)
    assert isinstance(waiting, RankLost)
    assert isinstance(gone, KeyboardInterrupt)
