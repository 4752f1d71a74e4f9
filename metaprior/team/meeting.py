"""Where the processes of one start meet: a part of torchrun's store that those of earlier starts have never used.

When torchrun starts processes anew, its store still has the addresses of those that have ended. The number of restarts
does not identify a start, because every machine counts its own.
"""

import time
import uuid
from collections.abc import Callable
from typing import Protocol

from metaprior.team.team import RankLost

PAUSE = 0.02


class Store(Protocol):
    """The part of ``torch.distributed.Store`` that is used."""

    def set(self, key: str, value: str, /) -> None:
        """Set a value."""

    def get(self, key: str, /) -> bytes:
        """Return a value."""

    def check(self, keys: list[str], /) -> bool:
        """Return whether all keys have a value."""


def meeting_place(store: Store, rank: int, size: int, patience: float) -> str:
    """Return a name that rank 0 has made up and told to the ranks that are here now.

    A rank announces itself by a name that is new in every start, and waits for an answer to that; rank 0 answers every
    announcement until all ranks have confirmed. Nobody waits longer than ``patience`` seconds.
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
