"""Memory: what the process holds (on a GPU: its tensors), what it may take, and what a computation would need."""

import ctypes
import math
import os
import re
import resource
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

Memory = str | int | float
"""A budget for the whole process ("4GiB", or bytes), or a fraction of what is free (0.5)."""


class Budget(NamedTuple):
    """What computing gradients may take: memory, and a folder for files in place of memory."""

    memory: Memory = 0.5
    scratch: str | Path | None = None
    """Folder of scratch files; None is the system's temporary one."""


CPU = torch.device("cpu")


class DeviceMemory(NamedTuple):
    """Bytes on a device: what the process holds there, and what it could still take."""

    in_use: float
    available: float


def is_measured(device: torch.device) -> bool:
    """Return whether ``memory_of`` knows this kind of device."""
    return device.type in ("cpu", "cuda")


def memory_of(device: torch.device) -> DeviceMemory:
    """Return the memory of a device: of the CPU that of the whole process, of a GPU that of its tensors alone.

    torch keeps freed blocks of a GPU for itself and uses them again, so they count as available.
    """
    if device.type == "cpu":
        return DeviceMemory(in_use(), available())
    if not is_measured(device):
        raise ValueError(f"device must be a CPU or a CUDA device for its memory to be known, got {device}. Try engine=")
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_allocated(device)
    return DeviceMemory(float(held), float(free + torch.cuda.memory_reserved(device) - held))


def bytes_of(memory: Memory, *, processes: int = 1, device: torch.device = CPU) -> float:
    """Return a budget in bytes, of a device; ``processes`` on one machine share what is free, but for GPUs."""
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", memory)
        if match and not match[2] and 0 < float(match[1]) <= 1:
            return bytes_of(float(match[1]), processes=processes, device=device)
        if not match or match[2].upper() not in UNITS:
            raise ValueError(
                f"memory must be an amount such as '4GiB' or '500MB' (units {', '.join(UNITS)}), got {memory!r}"
            )
        return float(match[1]) * UNITS[match[2].upper()]
    if isinstance(memory, float) and 0 < memory <= 1:
        if not is_measured(device):
            return math.inf
        found = memory_of(device)
        return found.in_use + memory * found.available / (processes if device.type == "cpu" else 1)
    if memory <= 1:
        raise ValueError(f"memory must be an amount ('4GiB', bytes) or a fraction of what is free (0.5), got {memory}")
    return float(memory)


def give_back_free_memory() -> None:
    """Give the system what the process has freed and the C library keeps: after large tasks, a gigabyte."""
    with suppress(OSError, AttributeError):  # other systems than Linux with glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def in_use() -> float:
    """Return the bytes that the process holds now (where the system does not tell: the most that it ever held)."""
    statm = Path("/proc/self/statm")
    return float(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else peak_memory()


def peak_memory(device: torch.device = CPU) -> float:
    """Return the most bytes that the process ever held; on a GPU, that its tensors ever held."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def available() -> float:
    """Return the bytes that the process could still take from the machine, or from its container."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        found = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())
        free = float(found[1]) * 1024 if found else float("inf")
    else:
        free = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) - in_use()
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and limit.read_text().strip().isdigit():
        used = Path("/sys/fs/cgroup/memory.current")
        free = min(free, float(limit.read_text()) - (float(used.read_text()) if used.exists() else in_use()))
    return free


def text(amount: float) -> str:
    """Return an amount of bytes as text."""
    return f"{amount / 2**30:.2f} GiB" if amount >= 2**30 else f"{amount / 2**20:.0f} MiB"


class Footprint(NamedTuple):
    """Bytes of tensors made by a computation: the most allocated at one time, and those left when it returns."""

    peak: int
    kept: int


def footprint(function: Callable[..., Any], *arguments: Any, fake: bool = True) -> Footprint:
    """Return the memory that ``function`` needs beyond its arguments, by running it on torch's fake tensors.

    Fakes have shapes and no numbers. They cost about 0.1 ms an operation, so small computations are quicker on the real
    tensors (``fake=False``); networks whose operations depend on the numbers themselves always run on those.
    """
    if not fake:
        return _measured(function, arguments)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fakes = tree_map(lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, Tensor) else leaf, arguments)
            return _measured(function, fakes)
    except (DynamicOutputShapeException, DataDependentOutputException, UnsupportedFakeTensorException):
        return _measured(function, arguments)


def _measured(function: Callable[..., Any], arguments: Any) -> Footprint:
    with _LiveBytes(arguments) as live:
        result = function(*arguments)
        kept = live.now
        del result
    return Footprint(live.peak, kept)


class _LiveBytes(TorchDispatchMode):
    """Count the bytes of the storages that operations allocate, until they are freed; arguments are not counted."""

    def __init__(self, arguments: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known = {leaf.untyped_storage()._cdata for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size
