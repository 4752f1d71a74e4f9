"""The one gate for what comes from outside: numbers are validated and data converted here, and trusted from then on."""

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metaprior.errors import NotFinite
from metaprior.inputs import Axes, Inputs, axes_of, map_parts, named_parts, rebuilt, size_of
from metaprior.missing import TargetCount, any_of_row

LARGE_INPUT = 30.0
FILL = "remove or fill those observations: nothing is replaced silently"
FILL_TARGETS = "remove those observations, or mark the targets as missing with NaN: nothing is replaced silently"

ENCODE = {
    "x": "pandas.get_dummies(frame), which makes columns of 0 and 1 of a column of text",
    "y": "numpy.unique(y, return_inverse=True)[1], which numbers the labels",
}
"""How numbers are made of text, by what it is."""


class DataFrameLike(Protocol):
    """A data frame, or a column of one: of pandas, polars, or anything else that NumPy arrays can be made of."""

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return the values as an array."""

    def __len__(self) -> int:
        """Return the number of rows."""


ArrayLike = Tensor | npt.NDArray[np.generic] | DataFrameLike
InputsLike = ArrayLike | tuple[ArrayLike, ...] | Mapping[str, ArrayLike]
"""Inputs x of one kind, or of several: those of a tuple and of a dictionary are arguments of the network."""

# --- settings ---------------------------------------------------------------------------------------------------------


def check_integer(name: str, value: object, least: int) -> None:
    """Raise ValueError unless a value is an integer of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_counts(**counts: object) -> None:
    """Raise ValueError unless every value is an integer of at least 1."""
    for name, count in counts.items():
        check_integer(name, count, 1)


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless a value is finite and above zero."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value!r}")


def keep_positive(settings: object) -> None:
    """Store all fields of a frozen dataclass as plain floats; raise ValueError unless they are positive."""
    for name, value in dict(vars(settings)).items():
        check_positive(name, float(value))
        object.__setattr__(settings, name, float(value))


def check_not_negative(name: str, value: float) -> None:
    """Raise ValueError unless a value is finite and at least zero."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")


def check_share(name: str, value: float) -> None:
    """Raise ValueError unless a value lies between 0 and 1, both included."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")


def warn_caller(message: str) -> None:
    """Warn with the place of the first caller outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_back.f_globals.get("__name__", "")).partition(".")[0] == "metaprior":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level + 1)


def all_true(flags: Sequence[Tensor]) -> bool:
    """Return whether all flags (tensors of one Boolean) are true. They are read together: a GPU is waited for once."""
    if len({flag.device for flag in flags}) == 1:
        return bool(torch.stack([*flags]).all())
    return all(map(bool, flags))


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device. A copy from the CPU to a GPU is queued there, and the CPU does not wait for it."""
    return tensor.to(device, non_blocking=tensor.device.type == "cpu" != device.type)


def checked_device(device: object, name: str = "device") -> torch.device:
    """Return a device; raise ValueError for what is none, and for a GPU where torch sees none."""
    try:
        found = torch.device(device)  # type: ignore[call-overload]
    except (RuntimeError, TypeError):
        raise ValueError(f"{name} must be a device such as 'cpu' or 'cuda', got {device!r}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"{name} must be a device of this machine, got {str(found)!r}, but torch sees no GPU. Try 'cpu', or a "
            "build of torch for your GPU"
        )
    return found  # type: ignore[no-any-return]


# --- data -------------------------------------------------------------------------------------------------------------


def as_tensor(values: object, name: str, *, device: torch.device) -> Tensor:
    """Return a tensor on ``device`` of real, finite numbers, at least one observation long."""
    tensor = _real(values, name)
    refuse_non_finite(tensor, name)
    return moved(tensor, device)


def targets(y: object, *, device: torch.device) -> Tensor:
    """Return targets on ``device``, real numbers or labels; NaN, a missing target, passes, an infinite one raises."""
    tensor = _real(y, "y")
    refuse_infinite(tensor, "y", FILL_TARGETS)
    return moved(tensor, device)


def _real(values: object, name: str, least: int = 1) -> Tensor:
    tensor = as_plain_tensor(values, name)
    if tensor.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}")
    if tensor.ndim == 0 or (tensor.numel() == 0 and (least or len(tensor))):
        raise ValueError(f"{name} is empty (shape {tuple(tensor.shape)}); its first axis must be the observations")
    return tensor


def plain_inputs(x: object, name: str = "x", where: str = "") -> Any:
    """Return inputs as tensors, whatever is in them: one, or a tuple or dictionary; messages end names by ``where``."""
    named = named_parts(x, name)
    if not named:
        raise ValueError(f"{name} must have at least one part, got an empty {type(x).__name__}")
    if isinstance(x, Mapping) and not all(isinstance(key, str) for key in x):
        raise TypeError(f"{name} must have names of forward's arguments as keys, got {list(x)}")
    if isinstance(x, list) and any(hasattr(part, "shape") for part in x):
        raise TypeError(
            f"{name} must be a tensor, an array, a data frame, or a tuple or dictionary of them, got a list of "
            f"{len(x)}. Try tuple(...) for the {len(x)} arguments of a network, or torch.stack(...) for {len(x)} "
            "observations."
        )
    return rebuilt(x, [as_plain_tensor(part, own + where) for own, part in named.items()])


def refuse_other_axes(x: Inputs, expected: Axes | None) -> None:
    """Raise unless inputs have the same parts as those of a fit, with as many axes (None: any)."""
    found = axes_of(x)
    if expected is None or found == expected:
        return
    if isinstance(expected, int) and isinstance(x, Tensor):
        raise ValueError(f"x must have {expected} axes as in fit, got the shape {tuple(x.shape)}")

    def said(axes: Axes) -> str:
        return ", ".join(f"{name} with {own} axes" for name, own in named_parts(axes).items())

    def kind(axes: Axes) -> str:
        return "one tensor" if isinstance(axes, int) else f"a {'tuple' if isinstance(axes, tuple) else 'dictionary'}"

    raise ValueError(f"x must be {kind(expected)} as in fit ({said(expected)}), got {kind(found)} ({said(found)})")


def as_plain_tensor(values: object, name: str) -> Tensor:
    """Return a tensor or an array of numbers as a tensor, whatever is in it."""
    if isinstance(values, Tensor):
        return values.detach()
    if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray) and not hasattr(values, "to_numpy"):
        shared: Tensor = torch.utils.dlpack.from_dlpack(values)
        return shared.clone()
    values = array_of(values, name)
    if values.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must hold numbers, got {_held(values)}. Try {ENCODE.get(name.partition('[')[0], 'numbers')}."
        )
    if values.dtype.itemsize > 8:
        raise TypeError(f"{name} has dtype {values.dtype}, which torch does not know; convert it to float64")
    masked = int(np.ma.getmaskarray(values).sum()) if isinstance(values, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(
            f"{name} has {masked} masked values out of {values.size}; {FILL}. A missing target is NaN: try "
            "y.filled(numpy.nan)."
        )
    native = np.asarray(values).astype(values.dtype.newbyteorder("="))  # a copy: the caller's array is not shared
    if native.dtype.kind == "u":
        if native.size and int(native.max()) > np.iinfo(np.int64).max:
            raise ValueError(f"{name} holds {native.max()}, too large for a signed 64-bit integer; use float64")
        native = native.astype(np.int64)
    return torch.from_numpy(native)


def array_of(values: object, name: str) -> npt.NDArray[np.generic]:
    """Return a NumPy array as it is, and a data frame or one of its columns as an array (missing numbers as NaN)."""
    if isinstance(values, np.ndarray):
        return values
    if not hasattr(values, "to_numpy"):
        raise TypeError(
            f"{name} must be a torch tensor, a NumPy array or a data frame, got {type(values).__name__}. "
            "numpy.asarray(...) makes an array of a list."
        )
    array: npt.NDArray[np.generic] = values.to_numpy()
    if array.dtype != object:
        return array
    missing = [value is None or type(value).__name__ == "NAType" for value in array.ravel().tolist()]
    plain = np.where(np.reshape(missing, array.shape), np.nan, array)
    return plain.astype(np.float64) if all(isinstance(value, Real) for value in plain.ravel().tolist()) else array


def _held(values: npt.NDArray[np.generic]) -> str:
    """Return what an array that does not hold numbers holds, with the first text in it."""
    text = next((value for value in values.ravel().tolist() if isinstance(value, str)), None)
    return f"an array of dtype {values.dtype}" if text is None else f"text such as {text!r}"


def refuse_non_finite(tensor: Tensor, name: str, remedy: str = FILL) -> None:
    """Raise ``NotFinite``, with the number and the place of NaN and infinite values."""
    _refuse(~torch.isfinite(tensor), name, "NaN or infinite", remedy)


def refuse_infinite(tensor: Tensor, name: str, remedy: str = FILL) -> None:
    """Raise ``NotFinite``, with the number and the place of infinite values; NaN passes."""
    _refuse(torch.isinf(tensor), name, "infinite", remedy)


def _refuse(bad: Tensor, name: str, what: str, remedy: str) -> None:
    if bool(bad.any()):
        first = tuple(bad.nonzero()[0].tolist())
        raise NotFinite(
            f"{name} has {int(bad.sum())} {what} values out of {bad.numel()}, the first at index {first}; {remedy}"
        )


def as_float(tensor: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    """Return a tensor in the network's floating-point type; a value too large for it raises, NaN passes."""
    converted = tensor.to(dtype)
    refuse_infinite(converted, f"{name} (converted to {dtype})")
    return converted


def inputs(x: object, *, dtype: torch.dtype, device: torch.device) -> Any:
    """Return network inputs: floats in the network's type; integers stay integers (for embeddings).

    Inputs with several parts, a tuple or a dictionary, stay what they are; all parts have the same observations.
    """

    def checked(part: Tensor, name: str) -> Tensor:
        tensor = as_tensor(part, name, device=device)
        return as_float(tensor, name, dtype) if tensor.is_floating_point() else tensor

    return real_inputs(plain_inputs(x), "x", checked)


def real_inputs(x: Inputs, name: str, check: Callable[[Tensor, str], Tensor]) -> Any:
    """Return what ``check`` makes of every part of x; raise unless the parts have the same number of observations."""
    named = {own: check(part, own) for own, part in named_parts(x, name).items()}
    first = next(iter(named))
    for own, part in named.items():
        if len(part) != len(named[first]):
            raise ValueError(
                f"{own} has {len(part)} observations and {first} has {len(named[first])}; all parts of {name} must "
                "have the same observations"
            )
    return rebuilt(x, [*named.values()])


def warn_of_scale(x: Inputs) -> None:
    """Warn of inputs that a network in its usual initialisation cannot learn from."""
    for name, part in named_parts(x).items():
        size = float(part.double().square().mean().sqrt()) if part.is_floating_point() else 0.0
        if size > LARGE_INPUT:
            warnings.warn(
                f"the inputs {name} have a root mean square of {size:.3g}; networks learn from inputs of about mean 0 "
                "and standard deviation 1, so standardise each feature first",
                stacklevel=3,
            )


def at_least_single(targets: Tensor) -> Tensor:
    """Return real-valued targets in a type that can be standardised: integers as float64, half precision as float32."""
    if not targets.is_floating_point():
        return targets.double()
    return targets.float() if targets.dtype in (torch.float16, torch.bfloat16) else targets


def observation_weights(values: object, count: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return weights of ``count`` observations, finite and not negative; raise if all are zero."""
    weights = as_float(moved(_real(values, "sample_weight"), device), "sample_weight", dtype)
    refuse_non_finite(weights, "sample_weight", "give every observation a weight")
    if weights.shape != (count,):
        raise ValueError(
            f"sample_weight must have one weight for each of {count} observations, got the shape {tuple(weights.shape)}"
        )
    if bool((weights < 0).any()) or not bool((weights > 0).any()):
        low, high = float(weights.min()), float(weights.max())
        raise ValueError(f"sample_weight must be at least 0, and above 0 somewhere, got {low} to {high}")
    return weights


def same_length(x: Inputs, y: Tensor) -> None:
    """Raise unless both have the same number of observations."""
    if size_of(x) != len(y):
        raise ValueError(f"x has {size_of(x)} observations and y has {len(y)}; they must be pairs")


class _Network(Protocol):
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...
    def check_forward(self, x: Inputs) -> Any: ...


class _Likelihood(Protocol):
    @property
    def several_outputs(self) -> bool: ...
    def check_targets(self, targets: Tensor, output_shape: Any) -> Tensor: ...
    def check_results(self, targets: Tensor, output_shape: Any) -> None: ...
    def present(self, targets: Tensor) -> Tensor: ...


def targets_of(likelihood: _Likelihood, y: Tensor, output_shape: Any) -> Tensor:
    """Return targets in the type and shape that a likelihood trusts, given what ``check_forward`` found; or raise."""
    if not isinstance(output_shape, torch.Size) and not likelihood.several_outputs:
        kind = "dictionary" if isinstance(output_shape, Mapping) else "tuple"
        raise TypeError(
            f"the network must return one tensor for this likelihood, got a {kind} of {len(output_shape)}. "
            "Try torch.cat of its tensors, or a likelihood of your own with several_outputs = True."
        )
    return likelihood.check_targets(y, output_shape)


def drop_rows_without_targets(x: Any, y: Tensor, present: Tensor) -> tuple[Any, Tensor, TargetCount]:
    """Return the observations that have at least one target, and the count of all targets that were given."""
    if bool(present.all()):
        return x, y, TargetCount(0, y.numel())
    rows = any_of_row(present)
    return map_parts(lambda part: part[rows.to(part.device)], x), y[rows], TargetCount.of(present)


class PairChecker:
    """Bring inputs and targets into the types and shapes that a network and its likelihood take.

    The network is run on the first inputs of every kind (whether they are real numbers, and the shape of one).
    Observations without any target are left out; ``count`` is of all targets so far, and of those that are missing.
    """

    def __init__(self, network: _Network, likelihood: _Likelihood) -> None:
        self._network, self._likelihood = network, likelihood
        self.count = TargetCount()
        self._output_shapes: dict[object, Any] = {}

    def knows(self, x: Inputs) -> bool:
        """Return whether the network was run on inputs of this kind."""
        return _kind(x) in self._output_shapes

    def __call__(self, x: object, y: object, what: str, *, finite: bool = True, least: int = 1) -> tuple[Any, Tensor]:
        """Return the pair (x, y) converted; an error starts with ``what``.

        ``finite=False`` lets NaN in x and infinite values pass, for callers that look for them later; ``least=0``
        lets a pair without observations pass.
        """
        return self.several([(x, y, what, least)], finite=finite)[0]

    def several(self, pairs: Iterable[tuple[object, object, str, int]], *, finite: bool) -> list[tuple[Any, Tensor]]:
        """Return pairs converted, each given as (x, y, what, least); where targets are missing is read at once.

        Data are checked where they are, and then moved to the network's device.
        """
        given = [(*self._shaped(*pair, finite=finite), pair[2]) for pair in pairs]
        complete = all_true([present.all() for _, _, present, _ in given])
        return [self._moved(x, y, None if complete else present, what, finite) for x, y, present, what in given]

    def _shaped(self, x: object, y: object, what: str, least: int, *, finite: bool) -> tuple[Any, Tensor, Tensor]:
        """Return inputs in the network's type, targets in the likelihood's shape, and where targets are present."""
        try:

            def checked(part: Tensor, name: str) -> Tensor:
                part = _real(part, name, least)
                if finite:
                    refuse_non_finite(part, name)
                return part

            inputs_, own = real_inputs(plain_inputs(x), "x", checked), _real(y, "y", least)
            if finite:
                refuse_infinite(own, "y", FILL_TARGETS)
            same_length(inputs_, own)
            inputs_ = real_inputs(inputs_, "x", lambda part, name: self._converted(part, name, finite))
            first = not self.knows(inputs_)
            if first and size_of(inputs_):
                tried = with_zeros(map_parts(lambda part: moved(part, self._network.device), inputs_))
                self._output_shapes[_kind(inputs_)] = self._network.check_forward(tried)
            shape = self._output_shapes.get(_kind(inputs_))
            if shape is None:  # no observation to try the network with
                two = map_parts(lambda part: part.new_zeros(2, *part.shape[1:], device=self._network.device), inputs_)
                shape = self._network.check_forward(two)
            own = targets_of(self._likelihood, own, shape)
            if first:
                self._likelihood.check_results(own, shape)
            return inputs_, own, self._likelihood.present(own)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{what}: {error}") from error

    def _moved(self, x: Any, y: Tensor, present: Tensor | None, what: str, finite: bool) -> tuple[Any, Tensor]:
        """Return a pair on the network's device, without observations that have no target (None: all are present)."""
        try:
            if present is None:
                count = TargetCount(0, y.numel())
            else:
                x, y, count = drop_rows_without_targets(x, y, present)
            self.count += count
            y = self._converted(y, "y", finite)
            return map_parts(lambda part: moved(part, self._network.device), x), moved(y, self._network.device)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{what}: {error}") from error

    def _converted(self, tensor: Tensor, name: str, finite: bool) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        return as_float(tensor, name, self._network.dtype) if finite else tensor.to(self._network.dtype)


def _kind(x: Inputs) -> object:
    """Return what inputs have in common for which a network is tried once, a dictionary's key."""
    return tuple((name, part.is_floating_point(), part.shape[1:]) for name, part in named_parts(x).items())


def with_zeros(x: Any) -> Any:
    """Return tensors with zeros for what is not finite: only to try shapes, never to train or predict with."""
    return map_parts(lambda part: part.nan_to_num(0.0, 0.0, 0.0) if part.is_floating_point() else part, x)


def with_repeats(targets: Tensor) -> Tensor:
    """Return targets with the first finite one (else zero) for what is not finite: valid ones, only to try shapes."""
    if not targets.is_floating_point():
        return targets
    known = targets[targets.isfinite()]
    value = float(known[0]) if len(known) else 0.0
    return targets.nan_to_num(value, value, value)
