"""Where the processes of one start meet: a part of torchrun's store that those of earlier starts have never used.

torchrun keeps its store when it starts processes anew, with the addresses of those that have ended still in it, and the
number of restarts is no name for a start: on several machines each counts its own.
"""

import time
import uuid
from collections.abc import Callable
from typing import Protocol

from metaprior.team.team import RankLost

PAUSE = 0.02


class Store(Protocol):
    """What is needed of ``torch.distributed.Store``."""

    def set(self, key: str, value: str, /) -> None:
        """Put something there."""

    def get(self, key: str, /) -> bytes:
        """What somebody put there."""

    def check(self, keys: list[str], /) -> bool:
        """Whether something is there."""


def meeting_place(store: Store, rank: int, size: int, patience: float) -> str:
    """A name that rank 0 has made up, and told to the ranks that are here now.

    A rank says who it is by a name of its own, new in every start, and waits for an answer to that; rank 0 answers
    whoever is there, until all that live now have confirmed. Nobody waits longer than ``patience`` seconds.
    """
    me = uuid.uuid4().hex
    if rank:
        store.set(f"here/{rank}", me)
        _wait(lambda: [] if store.check([f"to {me}"]) else [0], patience)
        place = store.get(f"to {me}").decode()
        store.set(f"{place}/{rank}", "")
        return place

    def answer() -> list[int]:
        for other in range(1, size):
            if store.check([f"here/{other}"]):  # it may be one that has ended
                store.set(f"to {store.get(f'here/{other}').decode()}", me)
        return [other for other in range(1, size) if not store.check([f"{me}/{other}"])]

    _wait(answer, patience)
    return me


def _wait(missing: Callable[[], list[int]], patience: float) -> None:
    end = time.monotonic() + patience
    while names := ", ".join(f"rank {rank}" for rank in missing()):
        if time.monotonic() > end:
            raise RankLost(f"{names} did not come within {patience:g} s (--hang-after {patience:g})")
        time.sleep(PAUSE)
