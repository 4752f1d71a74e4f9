"""What ranks may ask of each other: the code of ``Ranks``, with threads for processes."""

import pytest
import torch

from metaprior.team import OtherRankFailed, Team, current_team
from tests.team.fake import FakeRank, _PostOffice, outcomes, together


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 8, 100])
def test_shares_are_consecutive_and_of_equal_size(size: int, count: int) -> None:
    shares = [FakeRank(rank, size, _PostOffice()).share(count) for rank in range(size)]
    assert [index for share in shares for index in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_answers_itself() -> None:
    team = Team()
    assert (team.first, team.size, list(team.share(3))) == (True, 1, [0, 1, 2])
    assert team.attempt(lambda: 2, lambda two: two + 1) == (2, [3])
    assert team.map(lambda i: i * i, 3) == [0, 1, 4]
    assert team.on_first(lambda: "x") == "x"
    assert (team.any(True), team.any(False)) == (True, False)
    total = torch.ones(2)
    team.sum_([total])
    assert total.tolist() == [1.0, 1.0]
    with pytest.raises(ZeroDivisionError):
        team.attempt(lambda: 1 // 0, lambda _: None)


def test_notes_are_in_the_order_of_the_ranks_and_results_stay_at_home() -> None:
    found = together(3, lambda team: team.attempt(lambda: object(), lambda _: f"from {team.rank}"))
    assert [notes for _, notes in found] == [["from 0", "from 1", "from 2"]] * 3
    assert len({id(result) for result, _ in found}) == 3


def failing(*ranks: int, alike: bool = True) -> list[object]:
    def work(team: Team) -> object:
        def fail() -> None:
            if team.rank in ranks:
                raise ValueError("no such file" if alike else f"no such file on {team.rank}")

        return team.attempt(fail, lambda _: None)

    return outcomes(3, work)


def notes(error: object) -> list[str]:
    return getattr(error, "__notes__", [])


def test_the_lowest_rank_that_failed_speaks_and_says_who_it_is() -> None:
    quiet, speaker, also = failing(1, 2)
    assert isinstance(speaker, ValueError)
    assert notes(speaker) == ["(rank 1; ranks that failed: 1, 2 of 3)"]
    for other in (quiet, also):
        assert isinstance(other, OtherRankFailed)
        assert str(other) == "rank 1 failed: ValueError: no such file"


def test_what_all_ranks_find_wrong_is_nobodys_own() -> None:
    """A configuration with a mistake, say: no rank is to blame."""
    speaker, *others = failing(0, 1, 2)
    assert isinstance(speaker, ValueError)
    assert not notes(speaker)
    assert all(isinstance(other, OtherRankFailed) for other in others)
    assert notes(failing(0, 1, 2, alike=False)[0]) == ["(rank 0; ranks that failed: 0, 1, 2 of 3)"]


def test_a_note_that_fails_is_a_failure() -> None:
    first, second = outcomes(2, lambda team: team.attempt(lambda: team.rank, lambda rank: 1 // rank))
    assert isinstance(first, ZeroDivisionError)
    assert isinstance(second, OtherRankFailed)


def test_only_rank_0_works_and_all_know_what_it_found() -> None:
    worked = []

    def work(team: Team) -> str:
        return team.on_first(lambda: worked.append(team.rank) or "found")  # type: ignore[func-returns-value]

    assert together(3, work) == ["found"] * 3
    assert worked == [0]


def test_an_error_of_rank_0_is_one_everywhere() -> None:
    def work(team: Team) -> object:
        return team.on_first(lambda: {}["missing"])

    first, *others = outcomes(3, work)
    assert isinstance(first, KeyError)
    assert {type(other) for other in others} == {OtherRankFailed}


def test_a_rank_without_a_share_has_nothing_to_do_and_still_knows_all() -> None:
    asked: list[tuple[int, int]] = []

    def work(team: Team) -> list[int]:
        def function(index: int) -> int:
            asked.append((team.rank, index))
            return 10 * index

        return team.map(function, 2)

    assert together(3, work) == [[0, 10]] * 3
    assert sorted(index for _, index in asked) == [0, 1]


def test_who_is_interrupted_at_work_takes_the_others_along() -> None:
    def work(team: Team) -> object:
        def interrupted() -> None:
            if team.rank == 1:
                raise KeyboardInterrupt

        return team.attempt(interrupted, lambda _: None)

    assert {type(outcome) for outcome in outcomes(3, work)} == {KeyboardInterrupt}


def test_the_current_team_is_that_of_the_thread_and_a_single_process_within_work() -> None:
    def work(team: Team) -> tuple[bool, list[int], int]:
        sizes = team.map(lambda _: current_team().size, 3)  # ranks are not in step there
        return current_team() is team, sizes, team.on_first(lambda: current_team().size)

    assert together(2, work) == [(True, [1, 1, 1], 1)] * 2
    assert type(current_team()) is Team
