"""Progress of long work: a bar on a terminal and in notebooks, a plain line every half minute in a file or a pipe.

    with progress_bar("evaluation", 100, unit="tasks", show=True) as bar:
        for task in tasks:
            ...
            bar.update(1, loss="0.53")

prints, where the error stream is not a terminal, nothing in the first half minute, and then lines such as

    evaluation: 60/100 tasks, 0:45 elapsed, about 0:30 left, loss 0.53
"""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from tqdm import tqdm

BAR_AFTER = 2.0
"""Seconds of work before a bar appears."""
LINE_EVERY = 30.0
"""Seconds from one line to the next, and of work before the first."""

T = TypeVar("T")


class ProgressBar:
    """Counts what is done and shows nothing; classes that derive from it show the count.

    Args:
        label: What is being done.
        total: How many there are to do; None if that is not known.
        unit: What is counted, in the plural.
        done: How many were done before.
    """

    def __init__(self, label: str, total: int | None, unit: str, done: int) -> None:
        self.label, self.total, self.unit, self.done = label, total, unit, done

    def update(self, count: int = 1, **shown: str) -> None:
        """Count ``count`` more; ``shown`` are values to display beside the count, by name."""
        self.done += count

    def close(self) -> None:
        """End the display."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class TerminalBar(ProgressBar):
    """A bar of tqdm, of the class that suits terminals or that for notebooks."""

    def __init__(
        self, label: str, total: int | None, unit: str, done: int, *, make: Callable[..., Any] = tqdm, **options: Any
    ) -> None:
        super().__init__(label, total, unit, done)
        options = {"delay": BAR_AFTER, **options}
        self._bar = make(desc=label, total=total, unit=f" {unit}", initial=done, **options)

    def update(self, count: int = 1, **shown: str) -> None:
        """See ``ProgressBar``."""
        super().update(count)
        if shown:
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update(count)

    def close(self) -> None:
        """Leave the bar as it is, and go to the next line."""
        self._bar.close()


class Pace:
    """Says when a line is due: half a minute after the last one, or after the beginning of the work.

    Bars that follow each other within a minute, such as those of short epochs, are one work.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._last_line = self._last_use = -math.inf

    def begin(self) -> None:
        """Note that a bar begins."""
        now = self.clock()
        if now - self._last_use > 2 * LINE_EVERY:
            self._last_line = now
        self._last_use = now

    def is_due(self) -> bool:
        """Return whether half a minute has passed since the last line, and if so begin the next half minute."""
        self._last_use = now = self.clock()
        if now - self._last_line < LINE_EVERY:
            return False
        self._last_line = now
        return True


class LineBar(ProgressBar):
    """Prints a line every half minute, and one at the end of work that took longer than that."""

    def __init__(
        self, label: str, total: int | None, unit: str, done: int, *, stream: TextIO | None = None, pace: Pace
    ) -> None:
        super().__init__(label, total, unit, done)
        pace.begin()
        self._stream, self._pace, self._began = stream or sys.stderr, pace, pace.clock()
        self._first, self._printed, self._shown = done, done, dict[str, str]()

    def update(self, count: int = 1, **shown: str) -> None:
        """See ``ProgressBar``."""
        super().update(count)
        self._shown = shown or self._shown
        if self._pace.is_due():
            self._print()

    def close(self) -> None:
        """Print the last line of long work, unless it would repeat the one before."""
        if self._printed != self.done and self._pace.clock() - self._began >= LINE_EVERY:
            self._print()

    def _print(self) -> None:
        self._printed = self.done
        print(self.text(self._pace.clock() - self._began), file=self._stream, flush=True)

    def text(self, elapsed: float) -> str:
        """Return the line after so many seconds."""
        known = self.total is not None and self.total > 0
        parts = [f"{self.done}/{self.total} {self.unit}" if known else f"{self.done} {self.unit}"]
        parts.append(f"{duration(elapsed)} elapsed")
        if self.total is not None and self._first < self.done < self.total:
            left = elapsed * (self.total - self.done) / (self.done - self._first)
            parts.append(f"about {duration(left)} left")
        return f"{self.label}: {', '.join([*parts, *(f'{name} {value}' for name, value in self._shown.items())])}"


PACE = Pace()
"""The pace of all lines of this process."""


def progress_bar(label: str, total: int | None, *, unit: str, show: bool, done: int = 0) -> ProgressBar:
    """Return a bar for work that begins now, as it suits the error stream; use it in a ``with`` block.

    Args:
        label: What is being done.
        total: How many there are to do; None if that is not known.
        unit: What is counted, in the plural.
        show: Show anything at all.
        done: How many were done before.
    """
    if not show:
        return ProgressBar(label, total, unit, done)
    if _in_notebook():
        from tqdm.auto import tqdm as notebook_tqdm

        return TerminalBar(label, total, unit, done, make=notebook_tqdm if find_spec("ipywidgets") else tqdm)
    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalBar(label, total, unit, done)
    return LineBar(label, total, unit, done, pace=PACE)


def track(items: Iterable[T], label: str, *, unit: str, show: bool, total: int | None = None) -> Iterator[T]:
    """Iterate over ``items`` with a bar; ``total`` is their number, if they have no length."""
    count = len(items) if total is None and isinstance(items, Sized) else total
    with progress_bar(label, count, unit=unit, show=show) as bar:
        for item in items:
            yield item
            bar.update()


def write_line(text: str, stream: TextIO | None = None) -> None:
    """Print a line (to the output stream, if none is given) without damaging a bar on the screen."""
    tqdm.write(text, file=stream or sys.stdout)


def duration(seconds: float) -> str:
    """Return a time span as minutes and seconds, 0:45, or as hours, minutes and seconds, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def about(seconds: float) -> str:
    """Return a rough time span in words, as 20 seconds, 3 minutes or 2 hours."""
    for size, word in ((3600, "hour"), (60, "minute")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {word}s"
    return "a minute" if seconds > 50 else f"{max(5, 5 * round(seconds / 5))} seconds"


def _in_notebook() -> bool:
    """Return whether this is the kernel of a notebook, whose error stream is no terminal but shows bars."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython  # type: ignore[import-not-found]

    shell = get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
