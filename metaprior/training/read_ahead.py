"""Reading while computing: the next tasks come from the disk in a second thread while these are learned from."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Wanted = TypeVar("Wanted")
Value = TypeVar("Value")
WORTH_A_THREAD = 0.002
"""Seconds of reading from which the next thing is read ahead; less is over before a thread has taken it up."""


class ReadAhead(Generic[Wanted, Value]):
    """``read``, and where that takes long, the next ``read`` already under way. One thing is read ahead, no more."""

    def __init__(self, read: Callable[[Wanted], Value]) -> None:
        self._read = read
        self._thread: ThreadPoolExecutor | None = None
        self._coming: tuple[Wanted, Future[Value]] | None = None

    def __call__(self, wanted: Wanted, following: Wanted | None) -> Value:
        """What is wanted now; ``following`` is what will be wanted next, if anything."""
        value = self._taken(wanted)
        if following is not None and self._thread is not None:
            self._coming = following, self._thread.submit(self._read, following)
        return value

    def _taken(self, wanted: Wanted) -> Value:
        coming, self._coming = self._coming, None
        if coming is not None and coming[0] == wanted:
            return coming[1].result()
        began = time.perf_counter()
        value = self._read(wanted)
        if self._thread is None and time.perf_counter() - began > WORTH_A_THREAD:
            self._thread = ThreadPoolExecutor(1, "read ahead")
        return value
