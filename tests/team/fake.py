"""Several ranks in one process: a thread each, of which one runs at a time.

The code of ``Ranks`` with another post office. What is sent is pickled, as between processes, so ranks share no object
that they were not given together. Only one thread runs until it waits for the others: networks are not safe from two.
"""

import pickle
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from metaprior.team import Team, use_team
from metaprior.team.ranks import Ranks
from metaprior.team.team import RankLost

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds until a rank that waits in vain gives up."""


class _PostOffice:
    def __init__(self) -> None:
        self.rounds: dict[int, dict[int, bytes]] = defaultdict(dict)  # letters by round and rank
        self.somebody_left = False
        self.kept = ""
        self.turn = threading.Condition()


class FakeRank(Ranks):
    """One of several threads that take themselves for processes."""

    def __init__(self, rank: int, size: int, office: _PostOffice) -> None:
        self.rank, self.size, self.hang_after, self.on_this_machine = rank, size, PATIENCE, size
        self.names = [f"rank {number}" for number in range(size)]
        self._office, self._round = office, 0

    def any(self, flag: bool) -> bool:
        return any(self._gather(flag))

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        parts = self._gather([tensor.detach().clone() for tensor in tensors])
        for tensor, *others in zip(tensors, *parts, strict=True):
            tensor.copy_(torch.stack(others).sum(0))

    def exchange_(self, parts: Sequence[Tensor]) -> None:
        all_parts = self._gather([part.detach().clone() for part in parts])
        for rank, part in enumerate(parts):
            part.copy_(all_parts[rank][rank])

    def keep(self, note: str) -> None:
        self._office.kept = note

    def kept(self) -> str:
        return self.on_first(lambda: self._office.kept)

    def read_on_first(self, read: Callable[[], tuple[dict[str, Tensor], T]]) -> tuple[dict[str, Tensor], T]:
        return self.on_first(read)

    def _gather(self, own: T) -> list[T]:
        office, letters = self._office, self._office.rounds[self._round]
        self._round += 1
        letters[self.rank] = pickle.dumps(own)
        office.turn.notify_all()
        office.turn.wait_for(lambda: len(letters) == self.size or office.somebody_left, PATIENCE)
        if len(letters) < self.size:
            raise RankLost(f"{self.names[self.rank]} waited in vain")
        return [pickle.loads(letters[rank]) for rank in range(self.size)]


def outcomes(size: int, work: Callable[[Team], T], kept: str = "") -> list[T | BaseException]:
    """Return what ``work`` returned or raised on each rank, whose team is the current one.

    ``kept`` is the note that an earlier start has left.
    """
    office = _PostOffice()
    office.kept = kept
    found: list[T | BaseException] = [RuntimeError("never came to an end")] * size

    def run(rank: int) -> None:
        with office.turn:
            try:
                with use_team(FakeRank(rank, size, office)) as team:
                    found[rank] = work(team)
            except BaseException as error:
                found[rank] = error
            finally:
                office.somebody_left = True
                office.turn.notify_all()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def together(size: int, work: Callable[[Team], T]) -> list[T]:
    """What ``work`` returned on each rank; none may raise."""
    results: list[T] = []
    for rank, outcome in enumerate(outcomes(size, work)):
        if isinstance(outcome, BaseException):
            raise AssertionError(f"rank {rank} of {size} raised") from outcome
        results.append(outcome)
    return results
