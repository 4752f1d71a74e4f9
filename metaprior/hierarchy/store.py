"""The posteriors of many tasks on disk: memory-mapped, one record for each task, consistent after a crash.

A store is a checkpoint folder (``metaprior.checkpoint``) with one more file, ``posteriors.bin``, which has two
**slots** of R x D numbers for every task (mu, rho, and their optimiser's moments). The checkpoint says which slot of
each task is valid; new numbers go to the other one. ``commit`` first syncs the slots to the disk and then replaces the
checkpoint in one atomic step. A process that is killed at any moment therefore leaves the state of the last commit:
all posteriors, psi and the position in the training, of the same instant.

Only the records in use are mapped, and only while they are copied: memory does not grow with the number of tasks.
"""

import errno
import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
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
"""Errors of file systems that cannot reserve space."""
TYPES: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype("<f4"), torch.float64: np.dtype("<f8")}


@dataclass(frozen=True)
class Entry:
    """The metadata of a task's record."""

    name: str
    observations: int
    shapes: str
    """Shapes of its data: tasks of the same shapes can be stacked."""
    fingerprint: str
    """Digest of its data, which must not change."""
    steps: int = 0
    """Local steps that its posterior has taken; 0 if there is no record yet."""
    slot: int = 0
    checksum: int = 0
    nll: float = 0.0
    """Negative log-likelihood of its data, summed, at its last visit."""
    kl: float = 0.0
    """Expected KL from q(theta), at the same visit."""
    forgotten: bool = False
    """Whether the user took it out; its position stays empty."""


class PosteriorStore:
    """The records in a folder. Many processes may read; one at a time may write (``locked``)."""

    entries: list[Entry]
    """The present metadata; ``commit`` makes them permanent."""

    def __init__(
        self, folder: str | os.PathLike[str], kind: str, rows: int, dimension: int, dtype: torch.dtype
    ) -> None:
        self.folder, self.kind = Path(folder), kind
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"store must be a folder, got the file {self.folder}")
        self._shape, self._type = (rows, dimension), TYPES[dtype]
        self._record_bytes = rows * dimension * self._type.itemsize
        self.entries = []
        self._committed: list[Entry] = []
        self._file: IO[bytes] | None = None

    @property
    def path(self) -> Path:
        """Return the path of the file with the numbers."""
        return self.folder / FILE

    @property
    def exists(self) -> bool:
        """Return whether the folder holds a commit."""
        return (self.folder / checkpoint.DESCRIPTION).exists()

    def open(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Continue with the tasks of a checkpoint's description."""
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
        """Return a copy of a task's record (R, D)."""
        entry = self.entries[index]
        if not entry.steps:
            raise KeyError(f"the store has no posterior of {entry.name!r} yet: the task was not visited")
        values = np.array(self._mapped(index, entry.slot, "r"))
        if zlib.crc32(values.data) != entry.checksum:
            raise CheckpointError(
                f"{self.path}: the posterior of {entry.name!r} is not what was saved. Either another process has "
                "trained on this store since it was opened (open it again), or the file is damaged: restore it"
            )
        return torch.from_numpy(values)

    def write(self, index: int, record: Tensor, **fields: Any) -> None:
        """Write a task's record beside the committed one; ``fields`` of its entry change with it."""
        values = np.ascontiguousarray(record.detach().cpu().numpy(), self._type)
        if values.shape != self._shape:
            raise ValueError(f"a record must have the shape {self._shape}, got {values.shape}")
        taken = self._committed[index] if index < len(self._committed) else None
        slot = 1 - taken.slot if taken is not None and taken.steps else 0  # the one that the last commit does not use
        self._reserve(self._offset(index, slot))
        mapped = self._mapped(index, slot, "r+")
        mapped[...] = values
        self.entries[index] = replace(self.entries[index], slot=slot, checksum=zlib.crc32(values.data), **fields)

    def forget(self, index: int) -> None:
        """Remove a task's entry, with its name and fingerprint; its position stays empty."""
        self.entries[index] = Entry("", 0, "", "", forgotten=True)

    def wipe(self, index: int) -> None:
        """Overwrite the numbers of a task whose removal was committed."""
        for slot in range(SLOTS):
            if self._offset(index, slot) + self._record_bytes <= os.fstat(self._open_file().fileno()).st_size:
                self._mapped(index, slot, "r+")[...] = 0
        os.fsync(self._open_file().fileno())

    def commit(self, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
        """Make everything that was written permanent, together with the tensors and the description."""
        os.fsync(self._open_file().fileno())
        tasks = [asdict(entry) for entry in self.entries]
        checkpoint.write(self.folder, self.kind, tensors, {**description, "tasks": tasks}, beside=(FILE,))
        self._committed = list(self.entries)

    def copy_to(self, folder: str | os.PathLike[str]) -> None:
        """Copy the last commit to a new folder; a copy to the store's own folder is already there."""
        target = Path(folder)
        if target.resolve() == self.folder.resolve():
            return
        if (target / checkpoint.DESCRIPTION).exists():
            raise CheckpointError(f"{target} already holds a checkpoint; give an empty or new folder")
        checkpoint.refuse_foreign(target, beside=(FILE,))
        target.mkdir(parents=True, exist_ok=True)
        with self.locked() if self._file is None else nullcontext():  # no commit between the two files
            shutil.copyfile(self.path, target / FILE)
            checkpoint.duplicate(self.folder, target, beside=(FILE,))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out; make the folder if necessary; on exit drop everything that was not committed."""
        checkpoint.refuse_foreign(self.folder, beside=(FILE,))
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)  # append mode would not reserve space
        with os.fdopen(descriptor, "r+b") as self._file:
            try:
                if fcntl is not None:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CheckpointError(
                    f"{self.folder} is being written by another process, or by another object of this one; wait "
                    "for it, or use another store"
                ) from None
            try:
                yield
            finally:
                self._file, self.entries = None, list(self._committed)

    def _open_file(self) -> IO[bytes]:
        if self._file is None:
            raise ValueError(f"the store {self.folder} is not locked for writing")
        return self._file

    def _offset(self, index: int, slot: int) -> int:
        return (index * SLOTS + slot) * self._record_bytes

    def _reserve(self, offset: int) -> None:
        """Reserve space for a record: writing through a map to a full disk would kill the process."""
        file = self._open_file()
        try:
            os.posix_fallocate(file.fileno(), offset, self._record_bytes)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in CANNOT_RESERVE:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            file.truncate(max(offset + self._record_bytes, os.fstat(file.fileno()).st_size))

    def _mapped(self, index: int, slot: int, mode: Any) -> npt.NDArray[Any]:
        return np.memmap(self.path, self._type, mode, self._offset(index, slot), self._shape)


def temporary_folder(owner: object) -> Path:
    """Return a new folder that is deleted with its owner."""
    folder = Path(tempfile.mkdtemp(prefix="metaprior-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder
