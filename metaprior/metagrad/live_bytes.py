"""How much memory a computation needs, without doing it: torch's fake tensors have shapes and no numbers."""

import weakref
from collections.abc import Callable
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


class Footprint(NamedTuple):
    """Bytes of tensors made by a computation: the most alive at one time, and those alive when it returns."""

    peak: int
    kept: int


def footprint(function: Callable[..., Any], *arguments: Any, fake: bool = True) -> Footprint:
    """Run ``function`` on fakes of the arguments; what the arguments themselves take is not counted.

    Fakes cost about a tenth of a millisecond an operation, so what is small is quicker for real (``fake=False``). A
    network whose operations depend on the numbers themselves cannot be run on fakes: it is run for real too.
    """
    if not fake:
        return _measured(function, arguments)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            return _measured(function, tree_map(lambda leaf: _fake(mode, leaf), arguments))
    except (DynamicOutputShapeException, DataDependentOutputException, UnsupportedFakeTensorException):
        return _measured(function, arguments)


def _fake(mode: FakeTensorMode, leaf: Any) -> Any:
    return mode.from_tensor(leaf) if isinstance(leaf, Tensor) else leaf


def _measured(function: Callable[..., Any], arguments: Any) -> Footprint:
    with _LiveBytes() as live:
        live.inputs(arguments)
        result = function(*arguments)
        kept = live.now
        del result
    return Footprint(live.peak, kept)


class _LiveBytes(TorchDispatchMode):
    """Adds up the storages that operations make, and takes them off again when they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: set[int] = set()

    def inputs(self, arguments: Any) -> None:
        """Do not count what is there already."""
        self._known |= {leaf.untyped_storage()._cdata for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)}

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
