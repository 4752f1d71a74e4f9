"""What a network returns, and the errors about what it cannot take: the checks of ``BayesianNetwork.check_forward``."""

from typing import Any

import torch
from torch import Tensor

from metaprior.inputs import Inputs, form_of, has_parts, named_parts, parts_of


def refuse_no_observations(output: Any, observations: int) -> None:
    """Raise unless a network's output, or every part of it, is a tensor with a row for each observation."""
    for part in parts_of(output) if isinstance(output, Tensor) or has_parts(output) else (None,):
        if not isinstance(part, Tensor):
            raise TypeError(
                "the network must return a tensor, or a tuple or dictionary of tensors, got "
                f"{type(output).__name__}{'' if part is None else f' with a {type(part).__name__} in it'}"
            )
        if part.ndim == 0 or len(part) != observations:
            raise ValueError(
                f"the network turned {observations} observations into an output of shape {tuple(part.shape)}; "
                "its first axis has to be the observations"
            )


def not_taken(x: Inputs, error: Exception) -> Exception:
    """Return an error that says which inputs the network failed on."""
    named = named_parts(x)
    integers = {name: part.dtype for name, part in named.items() if not part.is_floating_point()}
    if integers and not isinstance(error, TypeError):
        name = next(iter(integers))
        return TypeError(
            f"{name} holds integers ({integers[name]}), and the network cannot take them ({error}); "
            f"convert {name} to floating point, unless its first layer is an Embedding"
        )
    shapes = ", ".join(f"{name} {tuple(part.shape[1:])}" for name, part in named.items())
    what = f"of shape {shapes.removeprefix('x ')}" if isinstance(x, Tensor) else f"with the parts {shapes}"
    text = f"the network cannot take an observation {what}: {error}"
    if not isinstance(error, TypeError):
        one_number = isinstance(x, Tensor) and x.ndim == 1
        return ValueError(f"{text}. Try x[:, None], if each observation is one number" if one_number else text)
    how = "The parts of a tuple x are positional arguments of forward, and those of a dictionary keyword arguments."
    return TypeError(f"{text}. {how}")


def all_close(one: Inputs, other: Inputs, rtol: float, atol: float) -> bool:
    """Return whether two outputs are equal up to rounding, with NaN in the same places."""
    return form_of(one) == form_of(other) and all(
        torch.allclose(*pair, rtol=rtol, atol=atol, equal_nan=True)
        for pair in zip(parts_of(one), parts_of(other), strict=True)
    )


def refuse_dependence_on_others(output: Tensor, alone: Tensor, again: Tensor) -> None:
    """Raise if an observation's output depends on the others in its batch, from the last one's output alone."""
    if alone.shape[1:] != output.shape[1:]:
        raise ValueError(
            f"the network's outputs have shape {tuple(output.shape)} for {len(output)} observations, but "
            f"{tuple(alone.shape)} for one; a squeeze() without an axis does that: name the axis"
        )
    reproducible = torch.allclose(output, again, rtol=1e-4, atol=1e-6)
    if reproducible and not torch.allclose(output[-1:], alone, rtol=0.05, atol=0.01 * float(output.abs().max())):
        raise ValueError(
            "the network's output for an observation changes with the other observations in its batch, so it has "
            "no likelihood of its own. A recurrent layer or attention without batch_first=True does that"
        )
