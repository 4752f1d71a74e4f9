"""Processes that are started anew find each other, and not those that have ended."""

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from metaprior.team.ranks import meeting_place

SIZE = 3


def store() -> dist.Store:
    kept = dist.HashStore()
    kept.set_timeout(timedelta(seconds=20))
    return kept


def met(where: dist.Store, order: list[int]) -> dict[int, str]:
    """What the ranks agree on, coming one after the other."""
    found: dict[int, str] = {}

    def come(rank: int) -> None:
        found[rank] = meeting_place(where, rank, SIZE, 20.0)

    threads = [threading.Thread(target=come, args=(rank,)) for rank in order]
    for thread in threads:
        thread.start()
        thread.join(0.05)
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_every_start_has_a_place_of_its_own(order: list[int]) -> None:
    where, places = store(), set()
    for _ in range(3):
        found = met(where, order)
        assert len(found) == SIZE
        (place,) = set(found.values())
        places.add(place)
    assert len(places) == 3


@pytest.mark.parametrize("came", [[1], [2], [1, 2]])
def test_ranks_that_have_ended_before_all_were_there_are_not_waited_for(came: list[int]) -> None:
    where = store()
    for rank in came:
        where.set(f"here/{rank}", "a rank that has ended")
    assert len(set(met(where, [0, 1, 2]).values())) == 1


def test_one_rank_alone_has_nobody_to_wait_for() -> None:
    assert meeting_place(store(), 0, 1, 20.0)
