"""What a process may ask of the others; with one process all answers are its own, and nothing is sent.

A **rank** is the number of a process, from 0. Every rank calls the same methods in the same order.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from torch import Tensor

T = TypeVar("T")
Note = TypeVar("Note")
LATER = 2.0
"""Seconds that a process waits before it complains, so that the one with the reason is heard, or seen to die, first."""


class OtherRankFailed(RuntimeError):
    """Another process could not do its part. It says why, so that this one need not."""


class RankLost(RuntimeError):
    """A process does not answer, or has ended."""


class Team:
    """A single process. ``Ranks`` is the same for several."""

    rank = 0
    size = 1
    on_this_machine = 1
    """Processes that share this machine's memory and cores."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes, and talks to the user."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Which of ``count`` things are this rank's: consecutive ones, so that all ranks' results in turn are in order.

        Shares differ by one at most; with fewer things than ranks, some have none.
        """
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def attempt(self, work: Callable[[], T], note: Callable[[T], Note]) -> tuple[T, list[Note]]:
        """Do this rank's work; its result, and a note about every rank's result, by rank.

        If the work of any rank raises, all of them raise: that rank its own error, the others ``OtherRankFailed``. If
        it is interrupted on any rank, all raise ``KeyboardInterrupt``. Within ``work`` and ``note`` the current team is
        a single process: the ranks are not in step there, so nothing may need the others.
        """
        result = work()
        return result, [note(result)]

    def map(self, function: Callable[[int], T], count: int) -> list[T]:
        """``[function(i) for i in range(count)]``, divided over the ranks; every rank gets all of it."""
        _, parts = self.attempt(lambda: [function(index) for index in self.share(count)], lambda part: part)
        return [result for part in parts for result in part]

    def on_first(self, work: Callable[[], T]) -> T:
        """What rank 0 has done, or found; an error there is an error everywhere."""
        return work()

    def any(self, flag: bool) -> bool:
        """Whether it is so on some rank."""
        return flag

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its sum over the ranks."""

    def exchange_(self, parts: Sequence[Tensor]) -> None:
        """Replace part i, wherever it is, by that of rank i."""

    def keep(self, note: str) -> None:
        """Leave a note for the processes that torchrun may start in place of these."""

    def kept(self) -> str:
        """The note that an earlier start has left; empty if this is the first."""
        return ""

    def read_on_first(self, read: Callable[[], tuple[dict[str, Tensor], T]]) -> tuple[dict[str, Tensor], T]:
        """What rank 0 has read: large tensors, and something small; an error there is an error everywhere."""
        return read()


_CURRENT: ContextVar[Team] = ContextVar("current team")
_SINGLE = Team()


def current_team() -> Team:
    """Return the team whose work this is: a single process, except within ``use_team``."""
    return _CURRENT.get(_SINGLE)


@contextmanager
def use_team(team: Team) -> Iterator[Team]:
    """Make ``team`` the current one, for this thread, until the ``with`` block ends."""
    token = _CURRENT.set(team)
    try:
        yield team
    finally:
        _CURRENT.reset(token)
