"""Ctrl-C at a good moment: noted when it comes, acted upon between two steps."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from metaprior.team import current_team


class Interrupt:
    """While it is entered, Ctrl-C only leaves a note, and ``check`` raises KeyboardInterrupt. The second is at once.

    Of several processes all stop at the same ``check``, whichever was asked.
    """

    def __init__(self) -> None:
        self.asked = False
        self.between_steps = False
        """Whether the KeyboardInterrupt came from ``check``, where everything is in order."""
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():  # Python delivers signals there alone
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Stop here, if somebody asked for it. All processes are here together."""
        if current_team().any(self.asked):
            self.between_steps = True
            raise KeyboardInterrupt

    def poll(self) -> None:
        """The same where every process goes its own way, within ``Team.attempt``: it lets the others know."""
        if self.asked:
            self.between_steps = True
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
