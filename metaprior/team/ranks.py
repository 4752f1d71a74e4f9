"""Several processes, by torch.distributed: objects and CPU tensors through gloo, CUDA tensors through NCCL."""

import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from metaprior.team.team import LATER, OtherRankFailed, RankLost, Team, use_team

T = TypeVar("T")
Note = TypeVar("Note")
LARGE = 2**18
"""Size from which a tensor is sent by itself; smaller ones are sent together."""
GRACE = 10.0
"""Seconds that ranks have to answer when rank 0 asks which of them are there."""
PAUSE = 0.02
KEPT, MISSING = "metaprior/kept", "metaprior/missing"


class Ranks(Team):
    """The processes of an initialised process group.

    ``store`` is theirs alone; ``lasting`` is torchrun's, which survives them.
    """

    def __init__(self, hang_after: float, store: Store, lasting: Store) -> None:
        self.rank, self.size, self.hang_after = dist.get_rank(), dist.get_world_size(), hang_after
        self._store, self._lasting = store, lasting
        self.on_this_machine = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        # Finds out who is missing: a group in which something went wrong does not answer any more.
        self._spare = dist.new_group(backend="gloo", timeout=timedelta(seconds=hang_after))
        self.names = [f"rank {rank}" for rank in range(self.size)]
        found = self._gather(f"host {socket.gethostname()}, process {os.getpid()}")
        self.names = [f"rank {rank} ({where})" for rank, where in enumerate(found)]

    def attempt(self, work: Callable[[], T], note: Callable[[T], Note]) -> tuple[T, list[Note]]:
        """See ``Team``."""
        own: BaseException | None = None
        notes: list[Note] = []
        try:
            with use_team(Team()):
                result = work()
                notes.append(note(result))
        except (KeyboardInterrupt, Exception) as error:
            own = error
        failure = None if own is None else f"{type(own).__name__}: {own}"
        parts = self._gather((notes, failure, isinstance(own, KeyboardInterrupt)))
        if any(interrupted for _, _, interrupted in parts):
            raise KeyboardInterrupt
        if failures := {rank: failure for rank, (_, failure, _) in enumerate(parts) if failure is not None}:
            raise self._error_to_raise(own, failures)
        return result, [note for notes, _, _ in parts for note in notes]

    def _error_to_raise(self, own: BaseException | None, failures: Mapping[int, str]) -> BaseException:
        """Return the error that this rank raises: its own if it is the first that failed, else ``OtherRankFailed``."""
        speaker = min(failures)
        if own is None or self.rank != speaker:
            return OtherRankFailed(f"{self.names[speaker]} failed: {failures[speaker]}")
        if len(set(failures.values())) > 1 or len(failures) < self.size:
            own.add_note(
                f"({self.names[self.rank]}; ranks that failed: {', '.join(map(str, failures))} of {self.size})"
            )
        return own

    def on_first(self, work: Callable[[], T]) -> T:
        """See ``Team``."""
        _, found = self.attempt(lambda: work() if self.first else None, lambda result: result)
        return found[0]  # type: ignore[return-value]

    def any(self, flag: bool) -> bool:
        """See ``Team``."""
        found = torch.tensor(int(flag))
        with self._waiting():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """See ``Team``. The ranks' sums are bitwise identical."""
        small = [tensor for tensor in tensors if tensor.numel() < LARGE]
        joined = [torch.cat([tensor.flatten() for tensor in small])] if small else []
        with self._waiting():
            large = [tensor for tensor in tensors if tensor.numel() >= LARGE]
            for sent in [dist.all_reduce(tensor, async_op=True) for tensor in [*large, *joined]]:
                sent.wait()
        for total in joined:
            for tensor, part in zip(small, total.split([tensor.numel() for tensor in small]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def exchange_(self, parts: Sequence[Tensor]) -> None:
        """See ``Team``."""
        with self._waiting():
            sent = [dist.broadcast(part, src=rank, async_op=True) for rank, part in enumerate(parts) if part.numel()]
            for work in sent:
                work.wait()

    def keep(self, note: str) -> None:
        """See ``Team``."""
        self._lasting.set(KEPT, note)

    def kept(self) -> str:
        """See ``Team``."""
        return self.on_first(lambda: self._lasting.get(KEPT).decode() if self._lasting.check([KEPT]) else "")

    def read_on_first(self, read: Callable[[], tuple[dict[str, Tensor], T]]) -> tuple[dict[str, Tensor], T]:
        """See ``Team``. Tensors arrive on the CPU."""
        tensors: dict[str, Tensor] = {}

        def shapes_and_rest() -> tuple[dict[str, tuple[torch.Size, torch.dtype]], T]:
            found, rest = read()
            tensors.update({name: value.cpu().contiguous() for name, value in found.items()})
            return {name: (value.shape, value.dtype) for name, value in tensors.items()}, rest

        shapes, rest = self.on_first(shapes_and_rest)
        if not self.first:
            tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}
        with self._waiting():
            for name in shapes:
                dist.broadcast(tensors[name], src=0)
        return tensors, rest

    def _gather(self, own: T) -> list[T]:
        parts: list[T | None] = [None] * self.size
        with self._waiting():
            dist.all_gather_object(parts, own)
        return parts  # type: ignore[return-value]

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Turn torch's error about a rank that hangs or has died into one that names it."""
        began = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            raise self._lost(error, time.monotonic() - began) from error

    def _lost(self, error: RuntimeError, waited: float) -> RuntimeError:
        """Return the error to raise. Rank 0 finds out who is missing, and the others read it from there."""
        hanging = self._missing()
        if hanging is None and "Timed out" in str(error):
            hanging = "another process" if self.first else self.names[0]
        elif hanging and not self.first:
            return OtherRankFailed(f"{hanging} did not answer, as rank 0 says")
        if hanging:
            return RankLost(
                f"{hanging} did not answer for {waited:.0f} s (--hang-after {self.hang_after:g}): "
                f"{self.names[self.rank]} gives up. If it was only slow, give it more time; where it hangs, "
                "`py-spy dump --pid PROCESS` on its host shows"
            )
        time.sleep(LATER)
        return RankLost(
            f"{self.names[self.rank]} lost the connection to another process, which has ended; its own message, or the "
            f"table of torchrun, says why ({str(error).splitlines()[0]})"
        )

    def _missing(self) -> str | None:
        """Return the ranks that do not come to a barrier, as rank 0 finds out; None if that is not known."""
        message = ""
        try:
            dist.monitored_barrier(self._spare, timeout=timedelta(seconds=GRACE), wait_all_ranks=True)
        except RuntimeError as error:
            message = str(error)
        if self.first:
            found = re.search(r"Ranks? ([\d, ]+) failed to pass", message)
            names = ", ".join(self.names[int(rank)] for rank in found[1].split(",")) if found else ""
            self._store.set(MISSING, names)
            return names or None  # None if one has ended
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            if self._store.check([MISSING]):
                return self._store.get(MISSING).decode() or None
            time.sleep(0.1)
        return None


def meeting_place(store: Store, rank: int, size: int, patience: float) -> str:
    """Return a name that rank 0 has made up and told to the ranks that are here now.

    A rank announces itself by a name that is new in every start, and waits for an answer to that; rank 0 answers every
    announcement until all ranks have confirmed. Nobody waits longer than ``patience`` seconds.

    It names a part of torchrun's store that earlier starts have never used: when torchrun starts processes anew, its
    store still has the addresses of those that have ended. The number of restarts does not identify a start, because
    every machine counts its own.
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
