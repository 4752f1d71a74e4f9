"""A device called "mirror" for machines without a GPU: its tensors are not on the CPU, and their numbers are real.

torch treats a mirror tensor as one of another device: it has its own dispatch key, modules move to it, factories make
tensors on it, autograd and ``torch.func`` pass through it. Every operation is executed by the CPU on numbers that
belong to the tensor, so results can be compared with those of the CPU. What would be wrong or slow on a GPU is recorded
with its place in the package: operands on two devices, and everything that makes the CPU wait for the device.

Registering a device is global and cannot be undone, so only processes of ``tests.devices.lane`` import this module.
"""

import linecache
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Literal
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import metaprior
from metaprior.noise import Noise

NAME = "mirror"
_setup_privateuseone_for_python_backend(NAME)
MIRROR = torch.device(NAME, 0)
IN_TORCH, IN_PACKAGE = (f"{Path(package.__file__).parent}{os.sep}" for package in (torch, metaprior))
ROOT = Path(metaprior.__file__).parents[1]

aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._unsafe_index.Tensor}
WAITING = {
    aten._local_scalar_dense.default,
    aten._linalg_check_errors.default,
    aten._linalg_eigh.default,
    aten._unique2.default,
    aten.allclose.default,
    aten.bincount.default,
    aten.equal.default,
    aten.masked_select.default,
    aten.nonzero.default,
    aten.repeat_interleave.Tensor,
    aten.unique_consecutive.default,
    aten.unique_dim.default,
}
"""Operations that read a number of the device: a scalar, or the shape of their result."""

Kind = Literal["mix", "to the CPU", "to the device", "queued copy", "wait"]


@dataclass(frozen=True)
class Event:
    """An operation that a GPU refuses, or for which the CPU waits (not for a queued copy); ``place`` is its line."""

    kind: Kind
    operation: str
    place: str


@dataclass
class Events:
    """What was recorded within ``watched``."""

    found: list[Event] = field(default_factory=list)

    def note(self, kind: Kind, func: Any) -> None:
        self.found.append(Event(kind, str(func), _place()))


def _place() -> str:
    """Return the innermost line of the package, or else of its caller, that led here."""
    frame: FrameType | None = sys._getframe(1)
    caller = None
    while frame is not None and not frame.f_code.co_filename.startswith(IN_PACKAGE):
        foreign = frame.f_code.co_filename.startswith(IN_TORCH) or frame.f_code.co_filename == __file__
        caller, frame = (frame if caller is None and not foreign else caller), frame.f_back
    found = frame or caller
    assert found is not None, "a call has a caller"
    code, line = found.f_code, linecache.getline(found.f_code.co_filename, found.f_lineno).strip()
    return f"{Path(code.co_filename).relative_to(ROOT)}:{found.f_lineno} {code.co_name}: {line}"


class MirrorTensor(Tensor):
    """A tensor of the device; ``host`` has its numbers."""

    host: Tensor
    events: ClassVar[Events] = Events()
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor) -> "MirrorTensor":
        options = {"strides": host.stride(), "storage_offset": host.storage_offset(), "dtype": host.dtype}
        made = Tensor._make_wrapper_subclass(cls, host.shape, device=MIRROR, **options)
        made.host = host
        return made

    def __init__(self, host: Tensor) -> None:
        pass

    def __repr__(self) -> str:
        return f"MirrorTensor({self.host!r})"

    def tolist(self) -> Any:
        return self.cpu().tolist()  # one copy, as torch does it

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return _run(func, args, kwargs or {})
        except Exception:
            if torch._C._current_graph_task_id() != -1:  # torch ends the process on errors in a backward pass
                traceback.print_exc()
            raise


class _Factories(TorchDispatchMode):
    """Make tensors on the device where one is asked for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return _run(func, args, kwargs) if _is_mirror(kwargs.get("device")) else func(*args, **kwargs)


def _is_mirror(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the CPU; refusing nothing, so that all that is wrong is found at once."""
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    mine = [leaf for leaf in leaves if isinstance(leaf, MirrorTensor)]
    asked = kwargs.get("device")
    here = bool(mine) if asked is None else _is_mirror(asked)
    _record(func, args, kwargs, leaves, asked, here)
    if torch.Tag.inplace_view in func.tags:  # the outer tensor's own shape changes, too
        with no_dispatch():
            func(*args, **kwargs)
    if asked is not None and here:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if func is aten._efficientzerotensor.default:  # which has no numbers
        func = aten.zeros.default
    on_host = tree_map(lambda leaf: leaf.host if isinstance(leaf, MirrorTensor) else leaf, (args, kwargs))
    with _disable_current_modes():
        result = func(*on_host[0], **on_host[1])
    known = {id(leaf.host): leaf for leaf in mine}  # an operation in place returns its argument

    def outer(value: Any) -> Any:
        if not here or not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else MirrorTensor(value)

    if func is aten.copy_.default:
        return args[0]
    return tree_map(outer, result)


def _record(func: Any, args: Any, kwargs: dict[str, Any], leaves: list[Tensor], asked: Any, here: bool) -> None:
    events, elsewhere = MirrorTensor.events, [leaf for leaf in leaves if not isinstance(leaf, MirrorTensor)]
    if func in COPIES:
        target = isinstance(args[0], MirrorTensor) if func is aten.copy_.default else here
        source = isinstance(args[1 if func is aten.copy_.default else 0], MirrorTensor)
        if target != source and asked != torch.device("meta"):  # autograd looks at shapes there
            queued = target and (
                kwargs.get("non_blocking") or (func is aten.copy_.default and len(args) > 2 and args[2])
            )
            events.note("queued copy" if queued else "to the device" if target else "to the CPU", func)
        return
    if func in INDEXING and isinstance(args[0], MirrorTensor):
        indices = [index for index in args[1] if index is not None]
        if any(not isinstance(index, MirrorTensor) for index in indices):
            events.note("to the device", func)
        elif any(index.dtype == torch.bool for index in indices):
            events.note("wait", func)
        elsewhere = [leaf for leaf in elsewhere if not any(leaf is index for index in indices) and leaf.ndim]
    elif torch.Tag.pointwise in func.tags:
        elsewhere = [leaf for leaf in elsewhere if leaf.ndim]  # a number on the CPU is an argument of the kernel
    if elsewhere and len(elsewhere) < len(leaves):
        events.note("mix", func)
    if func in WAITING:
        events.note("to the CPU" if func is aten._local_scalar_dense.default else "wait", func)


@contextmanager
def mirror_device() -> Iterator[None]:
    """Within the block tensors can be made on and moved to the device.

    The backward pass runs in this thread, as on the CPU. Noise is that of the CPU, so that results can be compared.
    """
    generator = Noise.generator
    lifting = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=...) makes a tensor on the CPU and moves it
    try:
        with (
            torch.autograd.set_multithreading_enabled(False),
            patch.object(Noise, "generator", lambda noise, device="cpu": generator(noise, "cpu")),
            _Factories(),
        ):
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifting)


@contextmanager
def watched() -> Iterator[Events]:
    """Record what happens within the block."""
    before, MirrorTensor.events = MirrorTensor.events, Events()
    try:
        yield MirrorTensor.events
    finally:
        MirrorTensor.events = before
