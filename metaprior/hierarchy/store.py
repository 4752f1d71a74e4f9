"""Posteriors of many tasks on disk: memory-mapped, one record a task, never torn.

A store is a checkpoint folder (``metaprior.checkpoint``) with one more file, ``posteriors.bin``: for every task two
**slots** of R x D numbers (mu, rho, and their optimiser's moments). The checkpoint says which slot of each task holds;
new numbers go to the other one. ``commit`` first brings the slots to the disk and then replaces the checkpoint in one
step. So a process that is killed at any moment leaves the state of the last commit, whole: all posteriors, psi and the
place in the training, of the same instant.

Only the records in use are mapped, and only as long as they are copied: memory does not grow with the number of tasks.
"""

import errno
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metaprior import checkpoint
from metaprior.errors import CheckpointError

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing keeps a second process out
    fcntl = None  # type: ignore[assignment]

FILE = "posteriors.bin"
SLOTS = 2
CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""What file systems say that have no such thing."""
TYPES: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype("<f4"), torch.float64: np.dtype("<f8")}


@dataclass(frozen=True)
class Entry:
    """What is known of a task besides its numbers."""

    name: str
    observations: int
    shapes: str
    """Of its data: tasks of the same shapes can be worked on together."""
    fingerprint: str
    """Of its data; they may not change."""
    steps: int = 0
    """Local steps that its posterior has taken; 0: there is no record yet."""
    slot: int = 0
    checksum: int = 0
    nll: float = 0.0
    """Of its data, summed, when it was last worked on."""
    kl: float = 0.0
    """From q(theta), at the same time."""
    forgotten: bool = False
    """The user took it out; its place stays empty."""


class PosteriorStore:
    """The records of a folder. Many may read; one at a time may write (``locked``)."""

    entries: list[Entry]
    """As they are now; a commit makes them last."""

    def __init__(
        self, folder: str | os.PathLike[str], kind: str, rows: int, dimension: int, dtype: torch.dtype
    ) -> None:
        self.folder, self.kind = Path(folder), kind
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"a store is a folder, but {self.folder} is a file")
        self._shape, self._type = (rows, dimension), TYPES[dtype]
        self._record_bytes = rows * dimension * self._type.itemsize
        self.entries = []
        self._committed: list[Entry] = []
        self._file: IO[bytes] | None = None

    @property
    def path(self) -> Path:
        """The file with the numbers."""
        return self.folder / FILE

    @property
    def exists(self) -> bool:
        """Whether there is something to take up."""
        return (self.folder / checkpoint.DESCRIPTION).exists()

    def take_up(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Continue with the tasks as the checkpoint's description has them."""
        entries = [Entry(**task) for task in tasks]
        ends = [self._offset(i, entry.slot) + self._record_bytes for i, entry in enumerate(entries) if entry.steps]
        found = self.path.stat().st_size if self.path.exists() else 0
        if found < max(ends, default=0):
            raise CheckpointError(
                f"{self.path} is cut short: {found} bytes, and the posteriors of {len(entries)} tasks need "
                f"{max(ends)}; restore it from a copy"
            )
        self.entries, self._committed = entries, list(entries)

    def read(self, index: int) -> Tensor:
        """A task's record (R, D), copied."""
        entry = self.entries[index]
        if not entry.steps:
            raise KeyError(f"the posterior of {entry.name!r} has not been worked on yet, so it is not in the store")
        values = np.array(self._mapped(index, entry.slot, "r"))
        if zlib.crc32(values.data) != entry.checksum:
            raise CheckpointError(
                f"{self.path}: the posterior of {entry.name!r} is not what was saved. Either another process has "
                "trained on this store since it was opened (open it again), or the file is damaged: restore it"
            )
        return torch.from_numpy(values)

    def write(self, index: int, record: Tensor, **known: Any) -> None:
        """Put a task's record beside the committed one; ``known`` are fields of its entry that change with it."""
        values = np.ascontiguousarray(record.detach().cpu().numpy(), self._type)
        if values.shape != self._shape:
            raise ValueError(f"a record has the shape {self._shape}, got {values.shape}")
        slot = self._free_slot(index)
        self._reserve(self._offset(index, slot))
        mapped = self._mapped(index, slot, "r+")
        mapped[...] = values
        self.entries[index] = replace(self.entries[index], slot=slot, checksum=zlib.crc32(values.data), **known)

    def forget(self, index: int) -> None:
        """Leave a task's place empty; its name and the fingerprint of its data go too."""
        self.entries[index] = Entry("", 0, "", "", forgotten=True)

    def wipe(self, index: int) -> None:
        """Overwrite the numbers of a task that was forgotten, and committed so."""
        for slot in range(SLOTS):
            if self._offset(index, slot) + self._record_bytes <= os.fstat(self._open_file().fileno()).st_size:
                self._mapped(index, slot, "r+")[...] = 0
        os.fsync(self._open_file().fileno())

    def commit(self, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
        """Make everything that was written last, together with the tensors and the description."""
        os.fsync(self._open_file().fileno())
        tasks = [asdict(entry) for entry in self.entries]
        checkpoint.write(self.folder, self.kind, tensors, {**description, "tasks": tasks}, beside=(FILE,))
        self._committed = list(self.entries)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes meanwhile (the folder is made if need be); what is not committed will never have been."""
        checkpoint.refuse_foreign(self.folder, beside=(FILE,))
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)  # not for appending, where room is not reserved
        with os.fdopen(descriptor, "r+b") as self._file:
            try:
                if fcntl is not None:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CheckpointError(
                    f"{self.folder} is being written by another process, or another object of this one; wait for it, "
                    "or use another store"
                ) from None
            try:
                yield
            finally:
                self._file, self.entries = None, list(self._committed)

    def _open_file(self) -> IO[bytes]:
        if self._file is None:
            raise ValueError(f"the store {self.folder} is not locked for writing")
        return self._file

    def _free_slot(self, index: int) -> int:
        """The slot that the last commit does not count on."""
        taken = self._committed[index] if index < len(self._committed) else None
        return 1 - taken.slot if taken is not None and taken.steps else 0

    def _offset(self, index: int, slot: int) -> int:
        return (index * SLOTS + slot) * self._record_bytes

    def _reserve(self, offset: int) -> None:
        """Room for a record: to write through a map to a disk that is full would kill the process."""
        file = self._open_file()
        try:
            os.posix_fallocate(file.fileno(), offset, self._record_bytes)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in CANNOT_RESERVE:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            file.truncate(max(offset + self._record_bytes, os.fstat(file.fileno()).st_size))

    def _mapped(self, index: int, slot: int, mode: Any) -> npt.NDArray[Any]:
        return np.memmap(self.path, self._type, mode, self._offset(index, slot), self._shape)
