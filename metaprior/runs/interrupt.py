"""Ctrl-C is noted when it comes, and stops the run between two steps."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from metaprior.team import current_team


class Interrupt:
    """While it is entered, Ctrl-C makes the next ``check`` raise KeyboardInterrupt; a second Ctrl-C raises at once.

    Of several processes all stop at the same ``check``, whichever of them was interrupted.
    """

    def __init__(self) -> None:
        self.asked = False
        self.between_steps = False
        """Whether the KeyboardInterrupt came from ``check``, so that the state is that between two steps."""
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():  # Python delivers signals there alone
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if any process was interrupted. All processes call it together."""
        if current_team().any(self.asked):
            self.between_steps = True
            raise KeyboardInterrupt

    def poll(self) -> None:
        """Raise KeyboardInterrupt if this process was interrupted; within ``Team.attempt``, which tells the others."""
        if self.asked:
            self.between_steps = True
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
