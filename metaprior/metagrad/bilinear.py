r"""Convolutions and linear layers whose second derivatives compute only what is read.

Both are bilinear, $y = B(x, w) + b$, and a Hessian product needs the derivative of $\langle\partial\ell/\partial w,
u\rangle$, not the gradient $\partial\ell/\partial w = B_w(x, \bar y)$ itself. torch computes this gradient and throws
it away, and differentiates it by a slower algorithm than that of a backward pass. Here the gradient is a placeholder
without numbers where nobody reads it, its derivative $\bar y \mapsto B(x, u)$, $x \mapsto B_x(\bar y, u)$ is that of
the layer, and the weight's cotangents are added in place: a product costs 8 in place of 9 forward passes, and autograd
holds no copies of weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

SMALLEST = 2**12
"""Numbers of a weight from which a linear layer is computed here; for smaller ones torch's own nodes cost less."""


class Bilinear(Protocol):
    """A map B(x, w), linear in both, and its adjoints."""

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return B(x, w), plus the bias."""

    def for_input(self, x: Tensor, weight: Tensor, along: Tensor) -> Tensor:
        """Return the adjoint in x, applied to ``along``; only the shape of x matters."""

    def for_weight(self, x: Tensor, weight: Tensor, along: Tensor) -> Tensor:
        """Return the adjoint in w, applied to ``along``; only the shape of the weight matters."""

    def for_bias(self, along: Tensor) -> Tensor:
        """Return the adjoint in b."""


class Linear:
    """The map of ``F.linear``."""

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x w^T + b."""
        return F.linear(x, weight, bias)

    def for_input(self, x: Tensor, weight: Tensor, along: Tensor) -> Tensor:
        """Return the adjoint in x."""
        return along @ weight

    def for_weight(self, x: Tensor, weight: Tensor, along: Tensor) -> Tensor:
        """Return the adjoint in w."""
        return along.reshape(-1, along.shape[-1]).t() @ x.reshape(-1, x.shape[-1])

    def for_bias(self, along: Tensor) -> Tensor:
        """Return the adjoint in b."""
        return along.sum(tuple(range(along.ndim - 1)))


@dataclass(frozen=True)
class Convolution:
    """The map of ``torch.convolution``."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    @property
    def _settings(self) -> tuple[Any, ...]:
        return (self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups)

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the convolution."""
        return torch.convolution(x, weight, bias, *self._settings)

    def for_input(self, x: Tensor, weight: Tensor, along: Tensor) -> Tensor:
        """Return the adjoint in x."""
        return self._backward(x, weight, along, (True, False, False))[0]

    def for_weight(self, x: Tensor, weight: Tensor, along: Tensor) -> Tensor:
        """Return the adjoint in w."""
        return self._backward(x, weight, along, (False, True, False))[1]

    def for_bias(self, along: Tensor) -> Tensor:
        """Return the adjoint in b."""
        return along.sum((0, *range(2, along.ndim)))

    def _backward(self, x: Tensor, weight: Tensor, along: Tensor, wanted: tuple[bool, bool, bool]) -> Sequence[Tensor]:
        return tuple(torch.ops.aten.convolution_backward(along, x, weight, None, *self._settings, wanted))


@dataclass
class WeightUse:
    """What becomes of the derivatives by a weight."""

    differentiated: bool
    """Whether the first backward pass asks for the gradient by the weight."""
    read: bool
    """Whether the numbers of this gradient are read."""
    into: Tensor | None = None
    """What the second backward pass adds the weight's cotangents to; set before it starts."""

    def add(self, cotangent: Tensor) -> None:
        """Add a cotangent of the weight."""
        if self.into is None:
            raise AssertionError("a second backward pass needs a place for the weight's cotangents")
        self.into.add_(cotangent)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    return function.apply(*arguments)  # type: ignore[no-any-return]


class _Layer(torch.autograd.Function):
    """B(x, w) + b; the first backward pass has a graph, the second one has none."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, layer: Bilinear, use: WeightUse) -> Tensor:
        return layer.output(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, ctx.layer, ctx.use = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, along: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), layer, use = ctx.saved_tensors, ctx.layer, ctx.use
        of_x, of_weight, of_bias = ctx.needs_input_grad[:3]
        grad_x = grad_weight = None
        if torch.is_grad_enabled():
            grad_x = _apply(_InputGradient, along, weight, x, layer, use) if of_x else None
            if of_weight and use.differentiated:
                grad_weight = _apply(_WeightGradient, x, along, weight, layer, use.read)
        else:
            grad_x = layer.for_input(x, weight, along) if of_x else None
            if of_weight:
                use.add(layer.for_weight(x, weight, along))
        return grad_x, grad_weight, layer.for_bias(along) if of_bias else None, None, None


class _InputGradient(torch.autograd.Function):
    """The adjoint in x, applied to ``along``: linear in this and in the weight."""

    @staticmethod
    def forward(along: Tensor, weight: Tensor, x: Tensor, layer: Bilinear, use: WeightUse) -> Tensor:
        return layer.for_input(x, weight, along)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        along, weight, _, ctx.layer, ctx.use = inputs
        ctx.save_for_backward(along, weight)

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        (along, weight), layer = ctx.saved_tensors, ctx.layer
        if ctx.needs_input_grad[1]:
            ctx.use.add(layer.for_weight(direction, weight, along))
        return layer.output(direction, weight) if ctx.needs_input_grad[0] else None, None, None, None, None


class _WeightGradient(torch.autograd.Function):
    """The adjoint in w, applied to ``along``: linear in this and in x. Without numbers unless they are read."""

    @staticmethod
    def forward(x: Tensor, along: Tensor, weight: Tensor, layer: Bilinear, read: bool) -> Tensor:
        return layer.for_weight(x, weight, along) if read else weight.new_zeros(()).expand(weight.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, along, _, ctx.layer, _ = inputs
        ctx.save_for_backward(x, along)

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        (x, along), layer = ctx.saved_tensors, ctx.layer
        grad_x = layer.for_input(x, direction, along) if ctx.needs_input_grad[0] else None
        grad_along = layer.output(x, direction) if ctx.needs_input_grad[1] else None
        return grad_x, grad_along, None, None, None


class LeanLayers(TorchFunctionMode):
    """Compute linear layers and convolutions with the given weights as in this module, inside a ``with`` block.

    A layer whose weight is a function of a given one (weight normalisation) is torch's own: its first gradient is read.
    """

    def __init__(self, uses: Mapping[Tensor, WeightUse]) -> None:
        """Store the uses of weights, leaves of the graph that the block makes; a tensor is found by its identity."""
        super().__init__()
        self._uses = uses

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._uses and func in _LAYERS:
            x, weight, bias, layer = _LAYERS[func](*args, **kwargs)
            use = self._uses.get(weight)
            if layer is not None and use is not None:
                return _apply(_Layer, x, weight, bias, layer, use)
        return func(*args, **kwargs)


Found = tuple[Tensor, Tensor, Tensor | None, Bilinear | None]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Found:
    return input, weight, bias, Linear() if input.ndim > 1 and weight.numel() >= SMALLEST else None


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Found:
    return _any_convolution(input, weight, bias, stride, padding, dilation, False, 0, groups)


def _transposed_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Found:
    return _any_convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def _any_convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Found:
    """Return the layer; None for an observation without a batch, and for a padding in words."""
    stride, padding, dilation, transposed, output_padding, groups = settings
    if x.ndim != weight.ndim or isinstance(padding, str):
        return x, weight, bias, None
    axes = weight.ndim - 2

    def each(value: int | Sequence[int]) -> tuple[int, ...]:
        values = (value,) if isinstance(value, int) else tuple(value)
        return values * axes if len(values) == 1 else values

    layer = Convolution(each(stride), each(padding), each(dilation), transposed, each(output_padding), groups)
    return x, weight, bias, layer


_LAYERS: dict[Callable[..., Any], Callable[..., Found]] = {
    F.linear: _linear,
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), _convolution),
    **dict.fromkeys((torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d), _transposed_convolution),
}
