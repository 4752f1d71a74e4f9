"""Communication between the processes that share a job; a single process sends nothing and answers itself.

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
"""Seconds that a process waits before it reports an error, so that the one with the cause reports or dies first."""


class OtherRankFailed(RuntimeError):
    """Raised where another process failed, which reports the cause itself."""


class RankLost(RuntimeError):
    """Raised where a process does not answer or has ended."""


class Team:
    """A single process; ``Ranks`` is the same for several."""

    rank = 0
    size = 1
    on_this_machine = 1
    """Number of processes that share this machine's memory and cores."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and talks to the user."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Return which of ``count`` things are this rank's: consecutive ones, as many as the others' or one more.

        With fewer things than ranks some ranks have none.
        """
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def attempt(self, work: Callable[[], T], note: Callable[[T], Note]) -> tuple[T, list[Note]]:
        """Do this rank's work; return its result, and a note about every rank's result, by rank.

        If the work of any rank raises, all of them raise: that rank its own error, the others ``OtherRankFailed``. If
        it is interrupted on any rank, all raise ``KeyboardInterrupt``. Within ``work`` and ``note`` the current team is
        a single process: the ranks are not in step there, so nothing may need the others.
        """
        result = work()
        return result, [note(result)]

    def map(self, function: Callable[[int], T], count: int) -> list[T]:
        """Return ``[function(i) for i in range(count)]`` on every rank; the calls are divided over the ranks."""
        _, parts = self.attempt(lambda: [function(index) for index in self.share(count)], lambda part: part)
        return [result for part in parts for result in part]

    def on_first(self, work: Callable[[], T]) -> T:
        """Do ``work`` on rank 0 and return its result on every rank; an error there is raised everywhere."""
        return work()

    def any(self, flag: bool) -> bool:
        """Return whether ``flag`` is true on some rank."""
        return flag

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its sum over the ranks."""

    def exchange_(self, parts: Sequence[Tensor]) -> None:
        """Replace ``parts[i]`` on every rank by that of rank i."""

    def keep(self, note: str) -> None:
        """Leave a note for the processes that torchrun may start in place of these."""

    def kept(self) -> str:
        """Return the note that an earlier start has left; empty if this is the first."""
        return ""

    def read_on_first(self, read: Callable[[], tuple[dict[str, Tensor], T]]) -> tuple[dict[str, Tensor], T]:
        """Return on every rank what rank 0 reads: large tensors by name, and something small."""
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
