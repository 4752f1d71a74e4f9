"""``metaprior`` to which something happens: ``python -m tests.runs.altered WHAT[,WHAT] train ...``, under torchrun."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from metaprior import cli
from metaprior.runs import finish
from metaprior.runs.program import Interrupt
from metaprior.tasks import Sinusoids, Task
from metaprior.team import ranks
from metaprior.training.trainer import Trainer

RANK, LIFE = int(os.environ.get("RANK", "0")), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
LATE = 21
"""A task of a later step, which rank 1 of two has to learn from; nobody needs it at the beginning."""
PATIENCE = 60.0


def at_step(number: int, what: Callable[[], None]) -> None:
    """Before the step with this number, from 0."""
    real = Trainer.step

    def step(self: Trainer) -> Any:
        if self.progress.step == number:
            what()
        return real(self)

    Trainer.step = step  # type: ignore[method-assign]


def at_late_task(what: Callable[[], None]) -> None:
    real = Sinusoids.__getitem__

    def read(self: Sinusoids, index: int) -> Task:
        if index == LATE:
            what()
        return real(self, index)

    Sinusoids.__getitem__ = read  # type: ignore[method-assign]


def no_pictures() -> None:
    finish.draw = lambda *_: []


def ranks_die() -> None:
    """Rank 1 at step 5 of its first life, rank 0 at step 10 of its second."""
    if (RANK, LIFE) in ((1, 0), (0, 1)):
        at_step(10 if LIFE else 5, lambda: os.kill(os.getpid(), signal.SIGKILL))


def dies_writing() -> None:
    """Rank 0 with a checkpoint half written, in its first life."""
    from tests.runs.killed import kill_at

    if RANK == 0 and LIFE == 0:
        kill_at(14, "half written")


def ctrl_c() -> None:
    """At step 6: from a terminal it reaches torchrun, which hands it on. Everybody waits for it."""
    came, real = threading.Event(), Interrupt._note

    def noted(self: Interrupt, *signal_and_frame: Any) -> None:
        real(self, *signal_and_frame)
        came.set()

    def press() -> None:
        if RANK == 0:
            os.kill(os.getppid(), signal.SIGINT)
        assert came.wait(PATIENCE), "torchrun was interrupted, and the ranks were not told"

    Interrupt._note = noted  # type: ignore[method-assign]
    at_step(6, press)


def hangs() -> None:
    ranks.GRACE = 3.0
    at_late_task(lambda: threading.Event().wait())


def cannot_read() -> None:
    def fail() -> None:
        raise OSError("the archive is on a disk that is gone")

    at_late_task(fail)


def other_learning_rate() -> None:
    if RANK == 1:
        sys.argv += ["--set", "meta.lr=0.5"]


if __name__ == "__main__":
    for name in sys.argv.pop(1).split(","):
        globals()[name]()
    cli.main()
