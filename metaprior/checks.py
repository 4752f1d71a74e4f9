"""The door: what comes from outside is checked and converted here once, and trusted from then on."""

import warnings

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metaprior.errors import NotFinite

LARGE_INPUT = 30.0
FILL = "remove or fill those observations: nothing is replaced silently"


ArrayLike = Tensor | npt.NDArray[np.generic]


def as_tensor(values: object, name: str, *, device: torch.device) -> Tensor:
    """A tensor on ``device``, at least one observation long, of real numbers that are all finite."""
    tensor = as_plain_tensor(values, name)
    if tensor.is_complex():
        raise TypeError(f"{name} has to hold real numbers, got {tensor.dtype}")
    if tensor.ndim == 0 or tensor.numel() == 0:
        raise ValueError(f"{name} is empty (shape {tuple(tensor.shape)}); its first axis has to be the observations")
    refuse_non_finite(tensor, name)
    return tensor.to(device)


def as_plain_tensor(values: object, name: str) -> Tensor:
    """A tensor or an array of numbers as a tensor, whatever is in it."""
    if isinstance(values, Tensor):
        return values.detach()
    if isinstance(values, np.ndarray):
        return _from_numpy(values, name)
    raise TypeError(
        f"{name} has to be a torch tensor or a NumPy array, got {type(values).__name__}; "
        "numpy.asarray(...) makes one of a list or a data frame"
    )


def _from_numpy(values: npt.NDArray[np.generic], name: str) -> Tensor:
    if values.dtype.kind not in "fiub":
        raise TypeError(f"{name} has to hold numbers, got an array of dtype {values.dtype}")
    if values.dtype.itemsize > 8:
        raise TypeError(f"{name} has dtype {values.dtype}, which torch does not know; convert it to float64")
    masked = int(np.ma.getmaskarray(values).sum()) if isinstance(values, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(f"{name} has {masked} masked values out of {values.size}; {FILL}")
    native = np.asarray(values).astype(values.dtype.newbyteorder("="))  # also a copy: the caller's array stays his own
    if native.dtype.kind == "u":
        if native.size and int(native.max()) > np.iinfo(np.int64).max:
            raise ValueError(f"{name} holds {native.max()}, too large for a signed 64-bit integer; use float64")
        native = native.astype(np.int64)
    return torch.from_numpy(native)


def refuse_non_finite(tensor: Tensor, name: str, remedy: str = FILL) -> None:
    """Raise ``NotFinite``, with the number and the place of NaN and infinite values."""
    finite = torch.isfinite(tensor)
    if bool(finite.all()):
        return
    bad = ~finite
    first = tuple(bad.nonzero()[0].tolist())
    raise NotFinite(
        f"{name} has {int(bad.sum())} NaN or infinite values out of {tensor.numel()}, the first at index {first}; "
        f"{remedy}"
    )


def as_float(tensor: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    """Converted to the network's floating-point type; a value too large for it is an error."""
    converted = tensor.to(dtype)
    refuse_non_finite(converted, f"{name} (converted to {dtype})")
    return converted


def inputs(x: object, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Network inputs: floats in the network's type; integers stay integers (for embeddings)."""
    tensor = as_tensor(x, "x", device=device)
    return as_float(tensor, "x", dtype) if tensor.is_floating_point() else tensor


def warn_of_scale(x: Tensor) -> None:
    """Warn of inputs that a network in its usual initialisation cannot learn from."""
    if not x.is_floating_point():
        return
    size = float(x.double().square().mean().sqrt())
    if size > LARGE_INPUT:
        warnings.warn(
            f"the inputs x have a root mean square of {size:.3g}; networks learn from inputs of about mean 0 and "
            "standard deviation 1, so standardise each feature first",
            stacklevel=3,
        )


def at_least_single(targets: Tensor) -> Tensor:
    """Real-valued targets in a type that can be standardised: integers as float64, half precision as float32."""
    if not targets.is_floating_point():
        return targets.double()
    return targets.float() if targets.dtype in (torch.float16, torch.bfloat16) else targets


def same_length(x: Tensor, y: Tensor) -> None:
    """Raise unless both have the same number of observations."""
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} observations and y has {len(y)}; they have to be pairs")
