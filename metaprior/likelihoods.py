r"""Likelihoods p(y | network output).

A likelihood is a small frozen description. What it learns (a noise scale) are *plain parameters*, passed to it by name
beside the network's own. An **observation** is one entry of the first axis; its negative log-likelihood is the sum over
everything behind that axis (channels, pixels), never a mean. Targets that are **missing** (NaN, for class labels -100)
are left out of that sum by ``Masked``, which ``masking`` adds where there are any.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.checks import keep_positive
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast
from metaprior.missing import MISSING_LABEL, mean_of_present, present_labels, present_numbers
from metaprior.registry import Registry
from metaprior.weights import inverse_softplus

NOISE_RHO = "likelihood.rho"  # plain parameter: noise scale = softplus(rho)
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _per_observation(elementwise: Tensor) -> Tensor:
    """Return the sum over all axes but the first: (N, ...) -> (N,)."""
    return elementwise.reshape(len(elementwise), -1).sum(-1)


def _gaussian_nll(mean: Tensor, scale: Tensor, targets: Tensor) -> Tensor:
    r"""Return $\frac12 (y_c - f_c)^2/s_c^2 + \log s_c + \frac12\log 2\pi$ for each target."""
    _refuse_broadcast(targets, mean)
    return 0.5 * ((targets - mean) / scale) ** 2 + scale.log() + HALF_LOG_2PI


class Likelihood(ABC):
    """p(y | network output); the module's docstring has the conventions."""

    continuous: ClassVar[bool]
    """Whether targets are real numbers, which may be standardised, and not labels."""

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the plain parameters that the likelihood learns."""
        return ()

    @abstractmethod
    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log-likelihood of each target, in the targets' shape."""

    def nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log-likelihood of each observation, shape (N,): the sum over its targets."""
        return _per_observation(self.elementwise_nll(outputs, targets, parameters))

    def present(self, targets: Tensor) -> Tensor:
        """Return where targets are not missing, a Boolean tensor of their shape."""
        return present_numbers(targets)

    def masking(self, *targets: Tensor) -> "Likelihood":
        """Return the likelihood itself, or, if some of the targets are missing, ``Masked`` with it."""
        return self if all(bool(self.present(own).all()) for own in targets) else Masked(self)

    @abstractmethod
    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> Forecast:
        """Return the predictive distribution from the outputs of S weight samples, shape (S, N, ...)."""

    @abstractmethod
    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets in the type and shape that ``nll`` trusts, or raise; ``output_shape`` is of any batch.

        Missing targets pass, as they are.
        """

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Return first values of the learned plain parameters, for (standardised) targets of this shape."""
        return {}

    def in_units_of(self, scale: Tensor) -> "Likelihood":
        """Return the same likelihood for targets divided by ``scale``."""
        return self


def _shape(shape: Sequence[int]) -> str:
    """Return text such as ``(N, 3, 4)`` for a shape whose first axis is the observations."""
    return f"({', '.join(['N', *map(str, shape[1:])])}{',' if len(shape) == 1 else ''})"


def _match_continuous(targets: Tensor, expected: tuple[int, ...], what: str) -> Tensor:
    """Return targets of shape (N, *expected); a missing axis of length one is added."""
    if targets.ndim == 1 and expected == (1,):
        return targets.unsqueeze(-1)
    if tuple(targets.shape[1:]) != expected:
        raise ValueError(
            f"the network predicts targets of shape {_shape((0, *expected))}{what}, "
            f"but the targets have shape {tuple(targets.shape)}"
        )
    return targets


def _refuse_broadcast(targets: Tensor, outputs: Tensor) -> None:
    """Raise if targets have another shape: broadcasting would repeat them silently."""
    if targets.shape != outputs.shape:
        raise ValueError(
            f"targets must have the predictions' shape {tuple(outputs.shape)}, got {tuple(targets.shape)}. Try "
            "check_targets (for a task: problem.check), which converts them or raises with the reason."
        )


@dataclass(frozen=True)
class Gaussian(Likelihood):
    r"""$p(y|f) = \prod_c N(y_c; f_c, s_c^2)$, where the network gives the mean f.

    ``noise`` is a fixed standard deviation $s$ in the targets' own units, one number or one for each output channel. By
    default s is learned, one for all outputs or (``per_channel=True``) one for each channel (axis 1). Mean squared
    error is this likelihood with a fixed noise: see ``docs/conventions.md``.
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
            raise ValueError(f"noise, a standard deviation, must be positive, got {self.noise}")
        object.__setattr__(self, "noise", values if several else values[0])

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The name of the noise scale, unless it is fixed."""
        return (NOISE_RHO,) if self.noise is None else ()

    def scale(self, ndim: int, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the noise scale, to broadcast against targets of ``ndim`` axes."""
        fixed = None if self.noise is None else torch.tensor(self.noise, dtype=torch.float64)
        values = F.softplus(parameters[NOISE_RHO]) if fixed is None else fixed
        return values.reshape(-1, *[1] * (ndim - 2)) if values.ndim and ndim > 2 else values  # (C,) -> (C, 1, ...)

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log density with the learned or the fixed noise."""
        return _gaussian_nll(outputs, self.scale(targets.ndim, parameters).to(outputs), targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> GaussianForecast:
        """Return the mixture over weight samples with the same noise around each."""
        scale = self.scale(outputs.ndim - 1, parameters).to(outputs)
        return GaussianForecast(outputs, scale.reshape(*[1] * (outputs.ndim - scale.ndim), *scale.shape))

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets in the outputs' shape, or raise."""
        targets = _match_continuous(targets, tuple(output_shape[1:]), "")
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

    def in_units_of(self, scale: Tensor) -> "Gaussian":
        """Return the likelihood with a fixed noise divided by the targets' scale (one number, or one per channel)."""
        if self.noise is None:
            return self
        noise = (torch.tensor(self.noise, dtype=torch.float64) / scale.double().cpu().flatten()).tolist()
        return replace(self, noise=noise[0] if len(noise) == 1 else tuple(noise))


@dataclass(frozen=True)
class HeteroscedasticGaussian(Likelihood):
    r"""$p(y|f) = \prod_c N(y_c; f_c, s_c^2)$, where the network gives the mean f and the scale s.

    It has 2C output channels for C target channels (axis 1), means first, and $s = \mathrm{softplus}(\text{raw}) +
    s_{\min}$. ``min_scale``, in the units the network is trained in (standard deviations of the targets, if they are
    standardised), keeps a perfect fit from an infinite density.
    """

    min_scale: float = 1e-3

    continuous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        keep_positive(self)

    def mean_and_scale(self, outputs: Tensor, channel_axis: int) -> tuple[Tensor, Tensor]:
        """Return the two halves of the outputs' channels, the second as scales."""
        mean, raw = outputs.chunk(2, channel_axis)
        return mean, F.softplus(raw) + self.min_scale

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log density with the network's own scale."""
        return _gaussian_nll(*self.mean_and_scale(outputs, 1), targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> GaussianForecast:
        """Return the mixture over weight samples, each with its own mean and noise."""
        return GaussianForecast(*self.mean_and_scale(outputs, 2))

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets with half the outputs' channels, or raise."""
        if len(output_shape) < 2 or output_shape[1] % 2:
            raise ValueError(
                f"{type(self).__name__} takes means and scales from the network, so its outputs must have an even "
                f"number of channels on axis 1, got shape {_shape(output_shape)}"
            )
        expected = (output_shape[1] // 2, *output_shape[2:])
        return _match_continuous(targets, expected, " (half of its outputs are scales)")


@dataclass(frozen=True)
class CRPSGaussian(HeteroscedasticGaussian):
    r"""A Gaussian whose mean and scale the network gives, with the CRPS as its loss in place of $-\log p$:

    $$w\sum_c s_c\Big[z_c\,(2\Phi(z_c) - 1) + 2\varphi(z_c) - \frac{1}{\sqrt\pi}\Big],\qquad
      z_c = (y_c - f_c)/s_c$$

    A loss in place of a log-likelihood gives a generalised posterior (Bissiri, Holmes & Walker 2016). The CRPS of a
    Gaussian is proper, with the closed form of Gneiting & Raftery (2007), and its derivatives are bounded: the gradient
    of the likelihood grows with $1/s^2$, so few steps on few examples diverge where the network was too certain.
    ``weight`` is $w$, the nats that a unit of CRPS counts; the forecast is the same Gaussian (mixture).
    """

    weight: float = 10.0

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted CRPS of each target."""
        mean, scale = self.mean_and_scale(outputs, 1)
        _refuse_broadcast(targets, mean)
        z = (targets - mean) / scale
        density = torch.exp(-0.5 * z**2 - HALF_LOG_2PI)
        crps = scale * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))
        return self.weight * crps


@dataclass(frozen=True)
class Categorical(Likelihood):
    """Class labels 0..C-1; the network gives C logits on axis 1."""

    continuous: ClassVar[bool] = False

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the cross-entropy of the logits."""
        return F.cross_entropy(outputs, targets, reduction="none")

    def present(self, targets: Tensor) -> Tensor:
        """Return where labels are not -100."""
        return present_labels(targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> CategoricalForecast:
        """Return the forecast with the softmax of each weight sample's logits."""
        return CategoricalForecast(outputs)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return integer labels within the number of logits, or raise."""
        if targets.is_floating_point() or targets.dtype == torch.bool:
            raise TypeError(
                f"class labels must be integers 0..C-1, got {targets.dtype}. "
                "Try y.argmax(1) for one-hot codes, y.astype(int) for numbers."
            )
        if len(output_shape) < 2 or targets.shape[1:] != output_shape[2:]:
            raise ValueError(
                f"labels must have shape {_shape((0, *output_shape[2:]))} for logits of shape {_shape(output_shape)}, "
                f"got {tuple(targets.shape)}. Try y.argmax(1) for one-hot codes, y.ravel() for a single column."
            )
        labels = targets[self.present(targets)]
        low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, 0)
        if low < 0 or high >= output_shape[1]:
            raise ValueError(
                f"labels must be 0..{output_shape[1] - 1}, one for each logit, got {low} to {high}. Try "
                f"{MISSING_LABEL} for a label that is missing."
            )
        return targets.long()


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Labels 0 or 1, independent for each output; the network gives one logit for each output."""

    continuous: ClassVar[bool] = False

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        r"""Return $\mathrm{softplus}(f) - y f$, the cross-entropy of a logit."""
        _refuse_broadcast(targets, outputs)
        return F.softplus(outputs) - targets * outputs

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> BernoulliForecast:
        """Return the forecast with the sigmoid of each weight sample's logits."""
        return BernoulliForecast(outputs)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return zeros and ones in the outputs' shape, or raise."""
        targets = _match_continuous(targets, tuple(output_shape[1:]), "")
        labels = targets[self.present(targets)]
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise ValueError(
                f"labels must be 0 or 1, got {labels.min()} to {labels.max()}. Try NaN for a label that is missing."
            )
        return targets.double()


@dataclass(frozen=True)
class Masked(Likelihood):
    r"""A likelihood that leaves missing targets out: $-\log p(y_n|f_n) = -\sum_{c\ \text{present}} \log p(y_{nc}|f_n)$.

    Nothing is rescaled: an observation of which half the targets are missing informs half as much.
    """

    likelihood: Likelihood

    @property
    def continuous(self) -> bool:  # type: ignore[override]
        """Whether targets are real numbers."""
        return self.likelihood.continuous

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the plain parameters that the likelihood learns."""
        return self.likelihood.parameter_names

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log-likelihood of each target, zero for missing ones."""
        present = self.present(targets)
        filled = torch.where(present, targets, torch.zeros_like(targets))  # any number: NaN would reach the gradient
        losses = self.likelihood.elementwise_nll(outputs, filled, parameters)
        return torch.where(present, losses, torch.zeros_like(losses))

    def present(self, targets: Tensor) -> Tensor:
        """Return where targets are not missing."""
        return self.likelihood.present(targets)

    def masking(self, *targets: Tensor) -> "Masked":
        """Return the likelihood itself."""
        return self

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> Forecast:
        """Return the forecast of all targets."""
        return self.likelihood.forecast(outputs, parameters)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets in the type and shape that ``nll`` trusts, or raise."""
        return self.likelihood.check_targets(targets, output_shape)

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Return first values of the learned plain parameters."""
        return self.likelihood.initial_parameters(targets)

    def in_units_of(self, scale: Tensor) -> "Masked":
        """Return the same likelihood for targets divided by ``scale``."""
        return Masked(self.likelihood.in_units_of(scale))


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
