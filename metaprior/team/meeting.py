"""Where the processes of one start meet: a part of torchrun's store that those of earlier starts have never used.

torchrun keeps its store when it starts processes anew, with the addresses of those that have ended still in it, and the
number of restarts is no name for a start: on several machines each counts its own.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Protocol

PAUSE = 0.02


class Store(Protocol):
    """What is needed of ``torch.distributed.Store``. ``get`` waits until there is something."""

    def set(self, key: str, value: str, /) -> None:
        """Put something there."""

    def get(self, key: str, /) -> bytes:
        """What somebody put there."""

    def check(self, keys: Sequence[str], /) -> bool:
        """Whether something is there."""


def meeting_place(store: Store, rank: int, size: int) -> str:
    """A name that rank 0 has made up, and told to the ranks that are here now.

    A rank says who it is by a name of its own, new in every start, and waits for an answer to that; rank 0 answers
    whoever is there, until all that live now have confirmed.
    """
    me = uuid.uuid4().hex
    if rank:
        store.set(f"here/{rank}", me)
        place = store.get(f"to {me}").decode()
        store.set(f"{place}/{rank}", "")
        return place
    missing = set(range(1, size))
    while missing:
        for other in sorted(missing):
            who = store.get(f"here/{other}").decode()  # it may be one that has ended
            store.set(f"to {who}", me)
        time.sleep(PAUSE)
        missing = {other for other in missing if not store.check([f"{me}/{other}"])}
    return me
