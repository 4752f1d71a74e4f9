r"""The last layer of a module, as linear weights over features.

A closed form needs outputs that are linear in the last layer's weights: $f(x) = o(x) + W\phi(x)$, with the features
$\phi$ that the layer is given (a constant 1 among them, for its bias) and an offset $o$ that does not depend on it,
such as a last frame to which a change is added. Where a layer stands in a network is found by running it: during a
``split`` the layer keeps its inputs and returns zeros, so that one pass gives features and offset.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from metaprior.inputs import Inputs, arguments, call, copied
from metaprior.network import BayesianNetwork, evaluation_mode

Layer = nn.Linear | nn.Conv2d
TRIES = 2
"""Random weights with which ``Head.check`` compares the split with the forward pass."""


class Split(NamedTuple):
    """What the trunk gives for N observations of P positions each (pixels; one for vectors)."""

    features: Tensor
    """Shape (N, P, d), the constant last."""
    offset: Tensor
    """The module's outputs without the last layer's part, in their own shape."""


@dataclass(frozen=True)
class Head:
    """The last layer of a network's module."""

    network: BayesianNetwork
    name: str

    @classmethod
    def of(cls, network: BayesianNetwork, name: str | None = None) -> "Head":
        """Return the layer with this name, by default the last ``Linear`` or ``Conv2d`` of the module."""
        layers = [own for own, part in network.module.named_modules() if isinstance(part, Layer)]
        kind = type(network.module).__name__
        if name is not None and name not in layers:
            there = ", ".join(layers) or "none"
            raise ValueError(f"head must be the name of a Linear or Conv2d, got {name!r}. The {kind} has {there}.")
        if not layers:
            raise ValueError(
                f"a closed form must find a Linear or Conv2d as last layer, got a {kind} with neither. Try another "
                "adaptation, such as Descent()."
            )
        head = cls(network, name or layers[-1])
        head._refuse_unknown_convolutions()
        return head

    @property
    def layer(self) -> Layer:
        """The layer itself."""
        found = self.network.module.get_submodule(self.name)
        assert isinstance(found, Layer)
        return found

    @property
    def size(self) -> int:
        """d, the number of features; the constant is one of them."""
        return prod(self.layer.weight.shape[1:]) + 1

    @property
    def outputs(self) -> int:
        """C, the number of outputs at each position."""
        return self.layer.weight.shape[0]

    @property
    def own_names(self) -> tuple[str, ...]:
        """Names of the layer's own parameters."""
        return tuple(f"{self.name}.{part}" for part, _ in self.layer.named_parameters(recurse=False))

    @property
    def weights(self) -> Tensor:
        """The layer's present weights, bias last, shape (C, d)."""
        weight, bias = self.layer.weight.detach().flatten(1), self.layer.bias
        return torch.cat([weight, weight.new_zeros(len(weight), 1) if bias is None else bias.detach()[:, None]], 1)

    def split(self, plain: Mapping[str, Tensor], x: Inputs) -> Split:
        """Return features and offset of inputs x with the trunk's parameters ``plain``."""
        given: list[Tensor] = []

        def keep(features: Tensor) -> Tensor:
            given.append(features)
            return features.new_zeros(self._shape(features))

        with _replaced_forward(self.layer, keep):
            offset = self._run(plain, x)
        if len(given) != 1:
            raise ValueError(
                f"the last layer must run once in a forward pass, but {self.name!r} ran {len(given)} times. "
                f"{self._advice()}"
            )
        return Split(self._rows(given[0]), offset)

    def to_rows(self, values: Tensor) -> Tensor:
        """Return (N, P, C) of values in the shape of outputs, (N, ..., C) or, of a convolution, (N, C, H, W)."""
        if isinstance(self.layer, nn.Conv2d):
            return values.flatten(2).mT
        return values.reshape(len(values), -1, values.shape[-1])

    def from_rows(self, rows: Tensor, like: Tensor) -> Tensor:
        """Return rows (..., N, P, C) as outputs (..., N, *) at the positions of outputs ``like``."""
        if isinstance(self.layer, nn.Conv2d):
            return rows.mT.reshape(*rows.shape[:-2], rows.shape[-1], *like.shape[2:])
        return rows.reshape(*rows.shape[:-2], *like.shape[1:-1], rows.shape[-1])

    def check(self, plain: Mapping[str, Tensor], x: Inputs) -> None:
        """Raise unless the module's outputs are the offset plus the last layer's, whatever its weights."""
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad(), evaluation_mode(self.network.module):
            features, offset = self.split(plain, x)
            for _ in range(TRIES):
                weights = torch.randn(self.weights.shape, generator=generator).to(features)
                given = {"weight": weights[:, :-1].reshape(self.layer.weight.shape), "bias": weights[:, -1]}
                if self.layer.bias is None:
                    given.pop("bias").zero_()
                outputs = self._run(plain, x, {f"{self.name}.{part}": value for part, value in given.items()})
                rows = features @ weights.mT
                linear = outputs.numel() == rows.numel() and torch.allclose(
                    self.from_rows(rows, offset) + offset, outputs, rtol=1e-3, atol=1e-3
                )
                if not linear:
                    raise ValueError(
                        f"the network's outputs must be those of its last layer {self.name!r} (plus, at most, "
                        "something that does not depend on it), but something else comes after it. " + self._advice(x)
                    )

    def _run(self, plain: Mapping[str, Tensor], x: Inputs, own: Mapping[str, Tensor] | None = None) -> Tensor:
        trunk = {name: plain[name] for name in self.network.plain_names if name not in self.own_names}
        values = {**self.network.constants, **trunk, **(own or {})}
        # A copy, because a first layer that works in place must not change the data.
        return functional_call(self.network.module, values, *arguments(copied(x)))  # type: ignore[no-any-return]

    def _rows(self, features: Tensor) -> Tensor:
        """Return the layer's inputs as rows (N, P, d): a patch for each position, and the constant."""
        layer = self.layer
        if isinstance(layer, nn.Linear):
            rows = features.reshape(len(features), -1, features.shape[-1])
        elif max(layer.kernel_size) == 1 and max(layer.stride) == 1 and max(_padding(layer)) == 0:
            rows = features.flatten(2).mT
        else:
            rows = F.unfold(features, layer.kernel_size, layer.dilation, _padding(layer), layer.stride).mT
        return torch.cat([rows, rows.new_ones(*rows.shape[:-1], 1)], -1)

    def _shape(self, features: Tensor) -> tuple[int, ...]:
        """Return the shape of the layer's outputs."""
        layer = self.layer
        if isinstance(layer, nn.Linear):
            return (*features.shape[:-1], self.outputs)
        sizes = zip(features.shape[2:], _padding(layer), layer.dilation, layer.kernel_size, layer.stride, strict=True)
        return (len(features), self.outputs, *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in sizes))

    def _advice(self, x: Inputs | None = None) -> str:
        """Return what to try: the layer that is called last, if it is another one."""
        called = [] if x is None else self._called(x)
        if called and called[-1] != self.name:
            return f"The last layer that is called is {called[-1]!r}: try head={called[-1]!r}."
        return "Try a network that ends with the layer, or another adaptation, such as Descent()."

    def _called(self, x: Inputs) -> list[str]:
        """Return the names of the linear and convolutional layers in the order in which a forward pass calls them."""
        called: list[str] = []
        layers = [(name, part) for name, part in self.network.module.named_modules() if isinstance(part, Layer)]
        hooks = [part.register_forward_hook(lambda *_, name=name: called.append(name)) for name, part in layers]
        try:
            call(self.network.module, copied(x))
        finally:
            for hook in hooks:
                hook.remove()
        return called

    def _refuse_unknown_convolutions(self) -> None:
        layer = self.layer
        if isinstance(layer, nn.Conv2d) and (layer.groups != 1 or layer.padding_mode != "zeros"):
            raise ValueError(
                f"the last layer {self.name!r} must be a convolution with groups=1 and padding_mode='zeros', got "
                f"{layer}. Try a 1x1 convolution behind it."
            )


def _padding(layer: nn.Conv2d) -> tuple[int, int]:
    """Return the zeros on each side, (rows, columns)."""
    if not isinstance(layer.padding, str):
        return layer.padding[0], layer.padding[1]
    reach = [dilation * (kernel - 1) for dilation, kernel in zip(layer.dilation, layer.kernel_size, strict=True)]
    if layer.padding == "same" and any(one % 2 for one in reach):
        raise ValueError(f"the last layer must have a kernel of odd size with padding='same', got {layer}")
    return (reach[0] // 2, reach[1] // 2) if layer.padding == "same" else (0, 0)


@contextmanager
def _replaced_forward(layer: nn.Module, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let a layer compute something else inside the ``with`` block."""
    before = vars(layer).get("forward")
    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward
        if before is not None:
            layer.forward = before
