"""The team of the processes that torchrun started."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NoReturn

import torch

from metaprior.checks import checked_device
from metaprior.team.team import Team, use_team

HANG_AFTER = 600.0
"""Seconds without an answer after which a process counts as hanging."""
LAST_THREADS = 0.5
"""Seconds for gloo's threads to end in scripts, which do not end with ``leave``."""
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def team_of_torchrun(hang_after: float = HANG_AFTER) -> Iterator[Team]:
    """Share the work of the ``with`` block among the processes of torchrun; without torchrun there is this one alone.

        torchrun --nproc-per-node 4 script.py

        with metaprior.team_of_torchrun() as team:
            learner.fit(tasks)  # each process computes its share, and all learn the same theta
            found = learner.evaluate(unseen)
            team.on_first(lambda: print(found.table()))

    Every process has to make the same calls of ``fit``, ``evaluate`` and ``predict`` in the same order; what only one
    of them is to do goes through ``team.on_first``.

    ``hang_after``: seconds after which a process that does not answer is named, and the others stop.
    """
    if not hang_after > 0:
        raise ValueError(f"hang_after must be a positive number of seconds, got {hang_after}")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        with use_team(Team()) as team:
            yield team
        return
    if missing := [name for name in NEEDED if name not in os.environ]:
        raise ValueError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but {', '.join(missing)} is not set. Start the processes with "
            "torchrun, which sets them all"
        )
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from metaprior.team.ranks import Ranks, meeting_place

    timeout = timedelta(seconds=hang_after)
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    own = dist.PrefixStore(meeting_place(store, rank, size, hang_after), store)  # type: ignore[attr-defined]
    dist.init_process_group(backend(), store=own, rank=rank, world_size=size, timeout=timeout)
    with use_team(Ranks(hang_after, own, store)) as team:
        yield team
    dist.destroy_process_group()  # not after an error: the other processes may have ended
    time.sleep(LAST_THREADS)


def backend() -> str:
    """Return the backend of torch.distributed by device."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def own_device(kind: str) -> torch.device:
    """Return the device of this process: of several GPUs the one with its number on this machine."""
    if checked_device(kind).type != "cuda":
        return torch.device(kind)
    number = int(os.environ.get("LOCAL_RANK", "0")) if torch.cuda.device_count() > 1 else 0  # it may see its own alone
    if number >= torch.cuda.device_count():
        raise ValueError(
            f"there are {torch.cuda.device_count()} GPUs here, and this is process {number} (from 0) of this machine; "
            "start one process for each GPU with torchrun --nproc-per-node"
        )
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    return device


def leave(code: int) -> NoReturn:
    """End this process, one of several, at once.

    On a busy machine a thread of gloo may abort an interpreter that is shutting down ("terminate called without an
    active exception"), and torchrun would count that as a failure of a process that has done all its work.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
