"""Distributions around a location that the network gives, with a noise scale: fixed, learned, or from the network."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.likelihoods.likelihood import Likelihood, match_continuous, shape
from metaprior.missing import mean_of_present
from metaprior.scaling import TargetScale
from metaprior.weights import inverse_softplus

NOISE_RHO = "likelihood.rho"  # plain parameter: noise scale = softplus(rho)
NETWORK: Literal["network"] = "network"
LEAST_SCALE = 1e-3
"""Added to a scale from the network, in the network's units: it keeps a perfect fit from an infinite density."""


def filled(values: float | tuple[float, ...], like: Tensor) -> Tensor:
    """Return numbers as a tensor, made where it is needed: a copy from the CPU would make it wait for a GPU."""
    if isinstance(values, tuple):
        return torch.stack([filled(value, like) for value in values])
    return torch.full((), values, dtype=like.dtype, device=like.device)


def along_channels(values: Tensor, ndim: int) -> Tensor:
    """Return one number, or one for each channel (axis 1), to broadcast against targets of ``ndim`` axes."""
    return values.reshape(-1, *[1] * (ndim - 2)) if values.ndim and ndim > 2 else values  # (C,) -> (C, 1, ...)


def number_or_several(values: object) -> float | tuple[float, ...]:
    """Return a number as float, and several as a tuple of them."""
    return tuple(map(float, values)) if hasattr(values, "__iter__") else float(values)  # type: ignore[arg-type]


def in_other_units(values: Tensor) -> float | tuple[float, ...]:
    """Return converted numbers as fields hold them: one, or one for each channel."""
    found = values.flatten().tolist()
    return found[0] if len(found) == 1 else tuple(found)


@dataclass(frozen=True)
class LocationScale(Likelihood):
    """What likelihoods with a location and a noise scale share; ``noise`` is as ``Gaussian`` says.

    With ``noise="network"`` the network has 2C output channels for C target channels (axis 1), locations first, and
    $s = \\mathrm{softplus}(\\text{raw}) + 0.001$ in its own units.
    """

    noise: float | tuple[float, ...] | Literal["network"] | None = None
    per_channel: bool = False

    continuous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_channel", bool(self.per_channel))
        if self.noise is None:
            return
        if self.per_channel:
            raise ValueError(
                "per_channel=True asks for learned noise scales; for fixed ones give noise=(s_1, s_2, ...)"
            )
        if self.noise == NETWORK:
            return
        noise = number_or_several(self.noise)
        values = noise if isinstance(noise, tuple) else (noise,)
        if not values or not all(math.isfinite(value) and value > 0 for value in values):
            raise ValueError(f"noise, a standard deviation, must be positive, got {self.noise}")
        object.__setattr__(self, "noise", noise)

    @property
    def outputs_per_target(self) -> int:
        """Two where the network gives the scale, else one."""
        return 2 if self.noise == NETWORK else 1

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The name of the noise scale, if it is learned."""
        return (NOISE_RHO,) if self.noise is None else ()

    def scale(self, ndim: int, parameters: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Return a learned or fixed scale in the type of ``like``, to broadcast against targets of ``ndim`` axes."""
        if self.noise is None:
            return along_channels(F.softplus(parameters[NOISE_RHO]).to(like), ndim)
        assert not isinstance(self.noise, str)
        return along_channels(filled(self.noise, like), ndim)

    def location_and_scale(
        self, outputs: Tensor, parameters: Mapping[str, Tensor], channel_axis: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Return location and noise scale; ``channel_axis`` is 1 for outputs (N, C, ...), 2 for (S, N, C, ...)."""
        if self.noise == NETWORK:
            location, raw = outputs.chunk(2, channel_axis)
            return location, F.softplus(raw) + LEAST_SCALE
        return outputs, self.scale(outputs.ndim - channel_axis + 1, parameters, outputs)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets in the outputs' shape (with scales from the network: half of them), or raise."""
        if self.noise == NETWORK:
            return match_channels(self, targets, output_shape, "a location and a scale")
        targets = match_continuous(targets, tuple(output_shape[1:]), "")
        channels = targets.shape[1] if targets.ndim > 1 else 1
        if isinstance(self.noise, tuple) and len(self.noise) != channels:
            raise ValueError(f"noise has {len(self.noise)} entries, but the targets have {channels} channels")
        return targets

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Return the targets' root mean square as the first noise scale, as if nothing were explained yet."""
        if self.noise is not None:
            return {}
        axes = [axis for axis in range(targets.ndim) if axis != 1 or not self.per_channel]
        scale = mean_of_present(targets.square(), axes).sqrt()
        return {NOISE_RHO: inverse_softplus(torch.where(scale > 0, scale, 1.0))}

    def in_units_of(self, units: TargetScale) -> Self:
        """Return the likelihood with a fixed noise divided by the targets' scale (one number, or one per channel)."""
        if self.noise is None or isinstance(self.noise, str):
            return self
        noise = torch.tensor(self.noise, dtype=torch.float64) / units.scale.double().cpu().flatten()
        return replace(self, noise=in_other_units(noise))


def match_channels(likelihood: Likelihood, targets: Tensor, output_shape: torch.Size, what: str) -> Tensor:
    """Return targets for outputs with several channels (axis 1) for each of theirs, or raise."""
    each = likelihood.outputs_per_target
    if len(output_shape) < 2 or output_shape[1] % each:
        even = "an even number of channels" if each == 2 else f"a number of channels that {each} divides"
        raise ValueError(
            f"{type(likelihood).__name__} takes {what} of each target from the network, so its outputs must have "
            f"{even} on axis 1, got shape {shape(output_shape)}. Try mp.MLP(inputs, hidden, outputs=likelihood)."
        )
    expected = (output_shape[1] // each, *output_shape[2:])
    return match_continuous(targets, expected, f" ({each} outputs for each: {what})")
