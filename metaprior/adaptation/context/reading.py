r"""A module that reads a context vector c beside its inputs.

A layer's outputs h become, channel by channel,

$$h' = (1 + S c) \odot h + B c$$

("layers": linear and convolutional layers except the last; "norms": normalisation layers; FiLM, Perez et al. 2018), or
$h' = h + B c$ for the first linear or convolutional layer alone ("inputs": exactly what c as further inputs of that
layer would do). All S and B are parts of one matrix, which starts at zero: the module then is what it was. A module
with a method ``support_encoder`` says itself what c is, and takes it as its second argument ("argument").
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from metaprior.likelihoods import NOISE_RHO, Gaussian

Reading = Literal["auto", "inputs", "layers", "norms"]
READINGS = ("auto", "inputs", "layers", "norms")
ARGUMENT = "argument"
"""How a module with ``support_encoder`` reads a context, whatever reading is asked for."""
VALUE, NOISE = "context.value", "context.noise"
"""Names of the parameters that hold c, and the weights with which a noise scale reads it."""
LAYERS = nn.Linear | nn.modules.conv._ConvNd


class ConditionedModule(nn.Module):
    """A module whose layers read the parameter ``context.value``, with the parameters, and their names, of another.

    The value is one context, shape (size,), or a context for every row of the inputs, (rows, size), given by
    ``torch.func.functional_call`` like every parameter. ``noise`` adds the parameter ``context.noise``, for
    ``ContextNoise``.
    """

    def __init__(self, module: nn.Module, size: int, reading: Reading = "auto", *, noise: bool = False) -> None:
        super().__init__()
        if hasattr(module, "context"):
            raise ValueError(
                "a network that reads a context must have no part called 'context' itself. Try renaming it."
            )
        inside = copy.deepcopy(module, {id(p): p for p in (*module.parameters(), *module.buffers())})  # same tensors
        self.reading: str
        self.reading, places = _places(inside, reading)
        self._sizes = [place.channels * (1 if self.reading == "inputs" else 2) for place in places]
        self._reads: tuple[Tensor, ...] = ()
        self._has_read = False  # in this forward pass
        like, context = next(p for p in inside.parameters() if p.is_floating_point()), nn.Module()
        context.value = nn.Parameter(like.new_zeros(size))
        if noise:
            context.noise = nn.Parameter(like.new_zeros(size))
        if places:
            context.weight = nn.Parameter(like.new_zeros(sum(self._sizes), size))
        # What is inside is held here under its own names, its parameters in the same dictionary, whose
        # entries functional_call replaces.
        self._parameters, self._buffers = inside._parameters, inside._buffers
        self._modules = {**inside._modules, "context": context}
        object.__setattr__(self, "_inside", inside)  # not as a child, which would prefix its names
        for number, place in enumerate(places):
            place.layer.register_forward_hook(partial(self._modulated, number, place.axis))
        if self.reading == "inputs":
            for name, other in inside.named_modules():
                if isinstance(other, LAYERS) and other is not places[0].layer:
                    other.register_forward_pre_hook(partial(self._refuse_first, name))

    def forward(self, *positional: Any, **named: Any) -> Any:
        """Return the module's outputs for inputs x, or several, and the present ``context.value``."""
        context: Any = self._modules["context"]
        inside: Any = self._inside
        inside.training = self.training
        if self.reading == ARGUMENT:
            return inside(**named, context=context.value) if named else inside(*positional, context.value)
        self._reads, self._has_read = F.linear(context.value, context.weight).split(self._sizes, -1), False
        try:
            outputs = inside(*positional, **named)
        finally:
            self._reads = ()
        if not self._has_read:
            raise ValueError(
                f"forward must call a layer that reads the context (reading={self.reading!r}), got a "
                f"{type(inside).__name__} that calls none of them. Try another reading, or remove unused layers."
            )
        return outputs

    def _refuse_first(self, name: str, layer: nn.Module, inputs: Any) -> None:
        """Raise for a layer that receives the inputs before the one that reads the context beside them."""
        if not self._has_read:
            raise ValueError(
                "with reading='inputs' the network must register the layer that receives the inputs before others, "
                f"got {name!r} called before the one registered first. Try to assign the layers in the order "
                "of forward, or reading='layers'."
            )

    def _modulated(self, number: int, axis: int, layer: nn.Module, inputs: Any, outputs: Tensor) -> Tensor:
        """Return a layer's outputs with scale and shift along the axis of its channels (1, or counted from the end)."""
        read, self._has_read = self._reads[number], True
        behind = outputs.ndim - 1 - axis if axis > 0 else -1 - axis
        if read.ndim > 1:
            if len(read) != len(outputs):
                raise ValueError(
                    f"a layer that reads the context must have the observations on the first axis of its outputs, got "
                    f"{len(outputs)} rows of a {type(layer).__name__} for {len(read)} of them. Try another reading."
                )
            read = read.reshape(len(read), *[1] * (outputs.ndim - 2 - behind), -1)
        read = read.reshape(*read.shape, *[1] * behind)
        if self.reading == "inputs":
            return outputs + read
        scale, shift = read.chunk(2, -1 - behind)
        return outputs * (1 + scale) + shift


@dataclass(frozen=True)
class ContextNoise(Gaussian):
    r"""A Gaussian whose learned noise scale reads the context: $s = \mathrm{softplus}(\rho + v^T c)$.

    Few examples then mean wide forecasts. ``parameters`` hold c, one (size,) or one for each row, and v.
    """

    def check_results(self, targets: Tensor, output_shape: Any) -> None:
        """Raise nothing: the results are a Gaussian's, and there is no context yet to compute them with."""

    def scale(self, ndim: int, parameters: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Return the noise scale in the type of ``like``, to broadcast against targets of ``ndim`` axes."""
        rho, shift = parameters[NOISE_RHO], parameters[VALUE] @ parameters[NOISE]
        if shift.ndim == 0:
            return super().scale(ndim, {NOISE_RHO: rho + shift}, like)
        rows = rho + shift.unsqueeze(-1)  # (rows, 1 or channels)
        return F.softplus(rows.reshape(len(rows), *[-1] * (ndim > 1), *[1] * (ndim - 2))).to(like)


class _Place(NamedTuple):
    layer: nn.Module
    channels: int
    axis: int


def reads_argument(module: nn.Module) -> bool:
    """Return whether a module encodes support sets itself, and takes their contexts as its second argument."""
    return callable(getattr(type(module), "support_encoder", None))


def _places(module: nn.Module, reading: Reading) -> tuple[str, list[_Place]]:
    """Return how the context is read ("auto" decided by what there is), and the layers that read it."""
    if reads_argument(module):
        return ARGUMENT, []
    found = [place for part in module.modules() if (place := _place(part))]
    norms = [place for place in found if not isinstance(place.layer, LAYERS)]
    layers = [place for place in found if place not in norms]
    reading = reading if reading != "auto" else "norms" if norms else "layers"
    places = {"norms": norms, "layers": layers[:-1] or layers, "inputs": layers[:1]}[reading]
    if not places:
        what, other = "Linear or convolutional layer", "another adaptation, such as Descent()"
        if reading == "norms":
            what, other = "normalisation layer (GroupNorm, LayerNorm, ...)", "reading='layers'"
        raise ValueError(
            f"reading={reading!r} must find a {what} that reads the context, got a {type(module).__name__} without. "
            f"Try {other}, or a network with one."
        )
    return reading, places


def _place(layer: nn.Module) -> _Place | None:
    """Return the channels of a layer's outputs, if it is one that can read a context."""
    if isinstance(layer, nn.Linear):
        return _Place(layer, layer.out_features, -1)
    if isinstance(layer, nn.modules.conv._ConvNd):
        return _Place(layer, layer.out_channels, 1)
    if isinstance(layer, nn.GroupNorm):
        return _Place(layer, layer.num_channels, 1)
    if isinstance(layer, nn.modules.batchnorm._NormBase):  # BatchNorm (in eval mode), InstanceNorm
        return _Place(layer, layer.num_features, 1)
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        return _Place(layer, layer.normalized_shape[0], -len(layer.normalized_shape))
    return None
