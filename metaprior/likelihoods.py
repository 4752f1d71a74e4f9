r"""How likely data are, given a network's outputs.

A likelihood is a small frozen description. What it learns (a noise scale) are *plain parameters*, handed to it by name,
so that they live beside the network's own. An **observation** is one entry of the first axis; its negative
log-likelihood is the sum over everything behind that axis (channels, pixels), never a mean.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast
from metaprior.registry import Registry
from metaprior.weights import inverse_softplus

NOISE = "likelihood.rho"  # plain parameter: noise scale = softplus(rho)
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _per_observation(elementwise: Tensor) -> Tensor:
    """Sum over all axes but the first: (N, ...) -> (N,)."""
    return elementwise.reshape(len(elementwise), -1).sum(-1)


def _along_channels(values: Tensor, ndim: int) -> Tensor:
    """Shape (C,) to (C, 1, ...), to broadcast against (N, C, ...) of ``ndim`` axes."""
    return values.reshape(-1, *[1] * (ndim - 2)) if values.ndim and ndim > 2 else values


class Likelihood(ABC):
    """p(y | network output); see the module's text for the conventions."""

    continuous: ClassVar[bool]
    """Whether targets are real numbers, which may be standardised, or labels."""

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Plain parameters that the likelihood learns."""
        return ()

    @abstractmethod
    def nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Negative log-likelihood of each observation, shape (N,)."""

    @abstractmethod
    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> Forecast:
        """Predictive summary from the outputs of S weight samples, shape (S, N, ...)."""

    @abstractmethod
    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Targets in the type and shape that ``nll`` trusts, or an error; ``output_shape`` is that of any batch."""

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Plain parameters that the likelihood learns, for (standardised) targets of this shape."""
        return {}

    def in_units_of(self, scale: Tensor) -> "Likelihood":
        """The same likelihood for targets divided by ``scale``."""
        return self


def _shape(shape: Sequence[int]) -> str:
    """``(N, 3, 4)`` for a shape whose first axis is the observations."""
    return f"({', '.join(['N', *map(str, shape[1:])])}{',' if len(shape) == 1 else ''})"


def _match_continuous(targets: Tensor, expected: tuple[int, ...], what: str) -> Tensor:
    """Targets of shape (N, *expected); a missing axis of length one is added."""
    if targets.ndim == 1 and expected == (1,):
        return targets.unsqueeze(-1)
    if tuple(targets.shape[1:]) != expected:
        raise ValueError(
            f"the network predicts targets of shape {_shape((0, *expected))}{what}, "
            f"but the targets have shape {tuple(targets.shape)}"
        )
    return targets


def _refuse_broadcast(targets: Tensor, outputs: Tensor) -> None:
    """Targets of another shape would be repeated silently, and the sum be another one."""
    if targets.shape != outputs.shape:
        raise ValueError(
            f"targets of shape {tuple(targets.shape)} do not belong to predictions of shape {tuple(outputs.shape)}; "
            "check_targets (for a task: problem.check) brings them into shape or says why not"
        )


@dataclass(frozen=True)
class Gaussian(Likelihood):
    r"""$p(y|f) = \prod_c N(y_c; f_c, s_c^2)$: the network gives the mean.

    ``noise`` is the standard deviation $s$ in the targets' own units, one number or one for each output channel, held
    fixed; without it the scale is learned, one for all outputs or (``per_channel=True``) one for each channel (axis 1).
    Mean squared error is this likelihood with a fixed noise: see ``docs/conventions.md``.
    """

    noise: float | tuple[float, ...] | None = None
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
        several = hasattr(self.noise, "__len__")
        values = tuple(map(float, self.noise)) if several else (float(self.noise),)  # type: ignore[arg-type]
        if not values or not all(math.isfinite(value) and value > 0 for value in values):
            raise ValueError(f"noise is a standard deviation and has to be positive, got {self.noise}")
        object.__setattr__(self, "noise", values if several else values[0])

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The noise scale, unless it is fixed."""
        return (NOISE,) if self.noise is None else ()

    def scale(self, ndim: int, parameters: Mapping[str, Tensor]) -> Tensor:
        """Noise scale, to broadcast against targets of ``ndim`` axes."""
        if self.noise is None:
            return _along_channels(F.softplus(parameters[NOISE]), ndim)
        return _along_channels(torch.tensor(self.noise, dtype=torch.float64), ndim)

    def nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        r"""$\sum_c \frac12 (y_c - f_c)^2/s_c^2 + \log s_c + \frac12\log 2\pi$."""
        _refuse_broadcast(targets, outputs)
        scale = self.scale(targets.ndim, parameters).to(outputs)
        return _per_observation(0.5 * ((targets - outputs) / scale) ** 2 + scale.log() + HALF_LOG_2PI)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> GaussianForecast:
        """Mixture over weight samples with the same noise around each."""
        scale = self.scale(outputs.ndim - 1, parameters).to(outputs)
        return GaussianForecast(outputs, scale.reshape(*[1] * (outputs.ndim - scale.ndim), *scale.shape))

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Targets have the outputs' shape."""
        targets = _match_continuous(targets, tuple(output_shape[1:]), "")
        channels = targets.shape[1] if targets.ndim > 1 else 1
        if isinstance(self.noise, tuple) and len(self.noise) != channels:
            raise ValueError(f"noise has {len(self.noise)} entries, but the targets have {channels} channels")
        return targets

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """The learned scale starts at the targets' root mean square, as if nothing were explained yet."""
        if self.noise is not None:
            return {}
        axes = [axis for axis in range(targets.ndim) if axis != 1 or not self.per_channel]
        scale = targets.square().mean(axes).sqrt()
        return {NOISE: inverse_softplus(torch.where(scale > 0, scale, 1.0))}

    def in_units_of(self, scale: Tensor) -> "Gaussian":
        """A fixed noise divided by the targets' scale (one number, or one for each channel)."""
        if self.noise is None:
            return self
        noise = (torch.tensor(self.noise, dtype=torch.float64) / scale.double().cpu().flatten()).tolist()
        return replace(self, noise=noise[0] if len(noise) == 1 else tuple(noise))


@dataclass(frozen=True)
class HeteroscedasticGaussian(Likelihood):
    r"""The network gives mean and scale: 2C output channels for C target channels (axis 1), means first.

    $s = \mathrm{softplus}(\text{raw}) + s_{\min}$, where ``min_scale`` is in the units the network is trained in
    (standard deviations of the targets, if they are standardised) and keeps a perfect fit from an infinite density.
    """

    min_scale: float = 1e-3

    continuous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.min_scale) and self.min_scale > 0):
            raise ValueError(f"min_scale has to be positive, got {self.min_scale}")
        object.__setattr__(self, "min_scale", float(self.min_scale))

    def _mean_and_scale(self, outputs: Tensor, channel_axis: int) -> tuple[Tensor, Tensor]:
        mean, raw = outputs.chunk(2, channel_axis)
        return mean, F.softplus(raw) + self.min_scale

    def nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        r"""$\sum_c \frac12 (y_c - f_c)^2/s_c^2 + \log s_c + \frac12\log 2\pi$, with the network's $s$."""
        mean, scale = self._mean_and_scale(outputs, 1)
        _refuse_broadcast(targets, mean)
        return _per_observation(0.5 * ((targets - mean) / scale) ** 2 + scale.log() + HALF_LOG_2PI)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> GaussianForecast:
        """Mixture over weight samples, each with its own mean and noise."""
        return GaussianForecast(*self._mean_and_scale(outputs, 2))

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """The outputs have twice the targets' channels."""
        if len(output_shape) < 2 or output_shape[1] % 2:
            raise ValueError(
                "HeteroscedasticGaussian takes means and scales from the network, so its outputs need an even number "
                f"of channels on axis 1; they have shape {_shape(output_shape)}"
            )
        expected = (output_shape[1] // 2, *output_shape[2:])
        return _match_continuous(targets, expected, " (half of its outputs are scales)")


@dataclass(frozen=True)
class CRPSGaussian(HeteroscedasticGaussian):
    r"""Mean and scale from the network, as in ``HeteroscedasticGaussian``, but judged by the CRPS and not by $-\log p$:

    $$w\sum_c s_c\Big[z_c\,(2\Phi(z_c) - 1) + 2\varphi(z_c) - \frac{1}{\sqrt\pi}\Big],\qquad
      z_c = (y_c - f_c)/s_c$$

    A loss in place of a log-likelihood makes a generalised posterior (Bissiri, Holmes & Walker 2016); the CRPS of a
    Gaussian is proper, and its closed form is that of Gneiting & Raftery (2007). Its derivatives are bounded: a target
    that the network was too sure about moves the weights no more than any other one does, where the likelihood's
    gradient grows with $1/s^2$ and makes few steps on few examples diverge. ``weight`` is $w$, how many nats a
    unit of CRPS counts; the forecast is the same Gaussian (mixture).
    """

    weight: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"weight has to be positive, got {self.weight}")
        object.__setattr__(self, "weight", float(self.weight))

    def nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """The weighted CRPS of each observation, shape (N,)."""
        mean, scale = self._mean_and_scale(outputs, 1)
        _refuse_broadcast(targets, mean)
        z = (targets - mean) / scale
        density = torch.exp(-0.5 * z**2 - HALF_LOG_2PI)
        crps = scale * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))
        return _per_observation(self.weight * crps)


@dataclass(frozen=True)
class Categorical(Likelihood):
    """Class labels 0..C-1; the network gives C logits on axis 1."""

    continuous: ClassVar[bool] = False

    def nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Cross-entropy of the logits."""
        return _per_observation(F.cross_entropy(outputs, targets, reduction="none"))

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> CategoricalForecast:
        """Softmax of each weight sample's logits."""
        return CategoricalForecast(outputs)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Integer labels within the number of logits."""
        if targets.is_floating_point() or targets.dtype == torch.bool:
            raise TypeError(
                f"class labels have to be integers 0..C-1, got {targets.dtype}; "
                "y.argmax(1) makes them of one-hot codes, y.astype(int) of whole numbers"
            )
        if len(output_shape) < 2 or targets.shape[1:] != output_shape[2:]:
            raise ValueError(
                f"for logits of shape {_shape(output_shape)} the labels need shape {_shape((0, *output_shape[2:]))}, "
                f"got {tuple(targets.shape)}; y.argmax(1) makes labels of one-hot codes, y.ravel() of a single column"
            )
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= output_shape[1]:
            raise ValueError(f"labels run from {low} to {high}, but the network has {output_shape[1]} logits (0..C-1)")
        return targets.long()


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Labels 0 or 1, independent for each output; the network gives one logit for each."""

    continuous: ClassVar[bool] = False

    def nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        r"""$\mathrm{softplus}(f) - y f$, the cross-entropy of a logit."""
        _refuse_broadcast(targets, outputs)
        return _per_observation(F.softplus(outputs) - targets * outputs)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> BernoulliForecast:
        """Sigmoid of each weight sample's logits."""
        return BernoulliForecast(outputs)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Zeros and ones in the outputs' shape."""
        targets = _match_continuous(targets, tuple(output_shape[1:]), "")
        if not bool(((targets == 0) | (targets == 1)).all()):
            raise ValueError(f"labels have to be 0 or 1, but they run from {targets.min()} to {targets.max()}")
        return targets.double()


LIKELIHOODS = Registry(
    "likelihood.kind",
    {
        "gaussian": Gaussian,
        "heteroscedastic": HeteroscedasticGaussian,
        "crps": CRPSGaussian,
        "categorical": Categorical,
        "bernoulli": Bernoulli,
    },
)
