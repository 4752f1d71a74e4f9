"""A file for the vectors of a meta-gradient: its memory then does not grow with the number of inner steps.

The file has no name (it is unlinked while it is open), so nothing is left behind, however the process ends. It is read
and written at positions, in parts; mapped into memory, its pages would count as the process's own.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from metaprior.errors import ScratchError
from metaprior.metagrad.inner_step import DataGradient, Iterate
from metaprior.metagrad.vectors import Index, Moving, Vector, parts
from metaprior.weights import Parameters

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
MOUNTS = Path("/proc/mounts")


Folder = str | Path | None
"""A folder for scratch files; None is the system's temporary one."""


@dataclass(frozen=True)
class Scratch:
    """Where scratch files are made."""

    folder: Folder = None


def scratch_folder(folder: Folder) -> Path:
    """Return the folder of scratch files."""
    return Path(tempfile.gettempdir() if folder is None else folder)


def free_disk(folder: Folder) -> float:
    """Return the bytes that scratch files may take; none in a folder that cannot be looked at."""
    try:
        return shutil.disk_usage(scratch_folder(folder)).free
    except OSError:
        return 0.0


def is_in_memory(folder: Path) -> bool:
    """Return whether files in a folder lie in memory, as those of a tmpfs do."""
    if not MOUNTS.exists():  # not Linux
        return False
    points = [line.split()[1:3] for line in MOUNTS.read_text().splitlines()]
    inside = [(point, kind) for point, kind in points if folder.resolve().is_relative_to(point)]
    return bool(inside) and max(inside, key=lambda found: len(found[0]))[1] in MEMORY_FILE_SYSTEMS


class ScratchFile:
    """A file without a name in a folder, for ``size`` bytes."""

    def __init__(self, folder: Folder, size: float) -> None:
        self.folder, self.written, self.reserved = scratch_folder(folder), 0, 0
        with self._failures_explained("made"):
            free = shutil.disk_usage(self.folder).free
            if free < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the file, which deletes it."""
        self._file.close()

    def reserve(self, size: int) -> int:
        """Return the position of ``size`` bytes that nothing else uses; they are zero until they are written."""
        position, self.reserved = self.reserved, self.reserved + size
        return position

    def read(self, position: int, into: Tensor) -> Tensor:
        """Fill a contiguous tensor on the CPU, and return it."""
        left = _bytes_of(into)
        with self._failures_explained("read"):
            self._file.seek(position)
            while left and (count := self._file.readinto(left)):
                left = left[count:]
            if left:  # never written: the end of the file, or a hole
                left[:] = bytes(len(left))
        return into

    def write(self, position: int, values: Tensor) -> None:
        """Write a contiguous tensor on the CPU."""
        left = _bytes_of(values)
        self.written += len(left)
        with self._failures_explained("written"):
            self._file.seek(position)
            while left:
                left = left[self._file.write(left) :]

    @contextmanager
    def _failures_explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise ScratchError(
                f"the scratch file of the meta-gradient in {self.folder} could not be {what}: {error.strerror}. "
                + ("Free some space, or try" if full else "Try")
                + " another folder (scratch=, --scratch), or a larger memory budget, with which no file is needed"
            ) from error


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


@dataclass(frozen=True)
class FileVector:
    """A vector (..., D) in a file; it may be read at one place and written at another, where the next value will be."""

    file: ScratchFile
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    source: int
    target: int

    @classmethod
    def zeros(cls, file: ScratchFile, like: Tensor) -> "FileVector":
        """Return zeros like a tensor."""
        place = file.reserve(like.numel() * like.element_size())
        return cls(file, like.shape, like.dtype, like.device, place, place)

    def moving(self) -> "FileVector":
        """Return the vector with a new place for what is written."""
        place = self.file.reserve(self.shape.numel() * self.dtype.itemsize)
        return FileVector(self.file, self.shape, self.dtype, self.device, self.source, place)

    def moved(self) -> "FileVector":
        """Return the vector that was written."""
        return FileVector(self.file, self.shape, self.dtype, self.device, self.target, self.target)

    def __getitem__(self, index: Index) -> Tensor:
        """Return a part."""
        part = index[-1]
        found = torch.empty((*self.shape[:-1], part.stop - part.start), dtype=self.dtype)
        for row, numbers in enumerate(found.view(-1, found.shape[-1])):
            self.file.read(self._position(self.source, row, part), numbers)
        return found.to(self.device)

    def __setitem__(self, index: Index, value: Tensor) -> None:
        """Overwrite a part."""
        part = index[-1]
        shape = (*self.shape[:-1], part.stop - part.start)
        for row, numbers in enumerate(value.detach().cpu().expand(shape).reshape(-1, shape[-1])):
            self.file.write(self._position(self.target, row, part), numbers.contiguous())

    def _position(self, start: int, row: int, part: slice) -> int:
        start += (row * self.shape[-1] + part.start) * self.dtype.itemsize
        return start


class FileTensors(MutableMapping[str, Tensor]):
    """Named tensors in a file, each read and written whole."""

    def __init__(self, vectors: dict[str, FileVector], shapes: dict[str, torch.Size]) -> None:
        self._vectors, self._shapes = vectors, shapes

    @classmethod
    def zeros(cls, file: ScratchFile, like: dict[str, Tensor]) -> "FileTensors":
        """Return zeros like named tensors."""
        flat = {name: FileVector.zeros(file, value.reshape(-1)) for name, value in like.items()}
        return cls(flat, {name: value.shape for name, value in like.items()})

    def moving(self) -> "FileTensors":
        """Return the tensors with new places for what is written."""
        return FileTensors({name: vector.moving() for name, vector in self._vectors.items()}, self._shapes)

    def moved(self) -> "FileTensors":
        """Return the tensors that were written."""
        return FileTensors({name: vector.moved() for name, vector in self._vectors.items()}, self._shapes)

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor."""
        vector, shape = self._vectors[name], self._shapes[name]
        return vector[..., slice(0, shape.numel())].view(shape)

    def __setitem__(self, name: str, value: Tensor) -> None:
        """Overwrite a tensor."""
        self._vectors[name][..., slice(0, value.numel())] = value.reshape(-1)

    def __delitem__(self, name: str) -> None:
        """Raise: the names are fixed."""
        raise AssertionError("tensors in a file cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._vectors)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._vectors)


@dataclass(frozen=True)
class FileParameters:
    """What moves in the inner loop, in a file."""

    mu: FileVector
    rho: FileVector
    plain: FileTensors

    def moving(self) -> "FileParameters":
        """Return it with new places for what is written."""
        return FileParameters(self.mu.moving(), self.rho.moving(), self.plain.moving())

    def moved(self) -> "FileParameters":
        """Return what was written."""
        return FileParameters(self.mu.moved(), self.rho.moved(), self.plain.moved())


class InFile:
    """Storage in a file; ``like`` has the shapes of everything that moves, with a stack's tasks in front."""

    def __init__(self, file: ScratchFile, like: Parameters) -> None:
        self.file, self._like = file, like

    def vector(self) -> FileVector:
        """Return zeros of shape (..., D)."""
        return FileVector.zeros(self.file, self._like.mu)

    def zeros(self) -> FileParameters:
        """Return zeros for everything that moves."""
        return FileParameters(self.vector(), self.vector(), FileTensors.zeros(self.file, self._like.plain))

    def keep(self, gradient: DataGradient) -> DataGradient:
        """Return a gradient whose vectors lie in the file."""
        plain = FileTensors.zeros(self.file, dict(gradient.plain))
        plain.update(gradient.plain)
        return DataGradient(self._kept(gradient.g), None if gradient.e is None else self._kept(gradient.e), plain)

    def _kept(self, vector: Vector) -> FileVector:
        if isinstance(vector, FileVector):
            return vector
        copy = self.vector()
        for part in parts(copy):
            copy[..., part] = vector[..., part]
        return copy


def moving(iterate: Iterate[Moving]) -> Iterate[Moving]:
    """Return an iterate in a file with new places for the next one, which a step writes."""
    velocity = iterate.velocity
    return Iterate(_in_file(iterate.lambda_).moving(), None if velocity is None else _in_file(velocity).moving())


def moved(iterate: Iterate[Moving]) -> Iterate[Moving]:
    """Return the iterate that was written."""
    velocity = iterate.velocity
    return Iterate(_in_file(iterate.lambda_).moved(), None if velocity is None else _in_file(velocity).moved())


def _in_file(values: Moving) -> FileParameters:
    if not isinstance(values, FileParameters):
        raise AssertionError("these values are not in a file")
    return values


@contextmanager
def lent(parameters: Iterable[nn.Parameter], file: ScratchFile) -> Iterator[None]:
    """Keep parameters in the file inside the ``with`` block, in which nobody reads them: theta has their values.

    Parameters whose memory others share, or that do not lie row by row, are left alone.
    """
    places = [(p, file.reserve(p.nbytes)) for p in parameters if _is_its_own(p)]
    for parameter, place in places:
        file.write(place, parameter.data)
    try:
        for parameter, _ in places:
            parameter.data = parameter.data.new_zeros(()).expand(parameter.shape)
        yield
    finally:
        for parameter, place in places:
            parameter.data = file.read(place, torch.empty(parameter.shape, dtype=parameter.dtype))


def _is_its_own(parameter: nn.Parameter) -> bool:
    whole = parameter.is_contiguous() and parameter.untyped_storage().nbytes() == parameter.nbytes
    return whole and parameter.device.type == "cpu" and not parameter.is_shared()
