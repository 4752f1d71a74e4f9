r"""Predictive distributions from the outputs of S weight samples.

Every forecast is an equally weighted mixture over weight samples $\phi_1..\phi_S$. By the law of total variance

$$\mathrm{Var}[y] = \mathrm{Var}_\phi[E[y|\phi]] + E_\phi[\mathrm{Var}[y|\phi]],$$

an **epistemic** part (the weights are uncertain; it shrinks with data) and an **aleatoric** part (the data are noisy;
it does not). Both are given as standard deviations, so ``std**2 == epistemic**2 + aleatoric**2``. For real-valued
targets the epistemic variance has S - 1 in its denominator; for labels it has S, which makes the total p(1 - p).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior import mixture
from metaprior.checks import ArrayLike, as_tensor

QUANTILE_TOLERANCE = 1e-7
"""Largest last step of a quantile's search, in standard deviations of the forecast."""


@dataclass(frozen=True)
class Forecast(ABC):
    """What every likelihood's forecast offers; shapes are those of the targets."""

    _correction: ClassVar[int] = 1

    def __post_init__(self) -> None:
        given = next(iter(vars(self).values()))
        if len(given) < 2:
            raise ValueError(f"a forecast needs at least 2 weight samples for their spread, got {len(given)}")

    @cached_property
    @abstractmethod
    def samples(self) -> Tensor:
        """Expected target of each weight sample, (S, N, ...); for labels: the probabilities."""

    @cached_property
    @abstractmethod
    def aleatoric(self) -> Tensor:
        """Standard deviation because the data are noisy."""

    @cached_property
    def mean(self) -> Tensor:
        """Expected target (for classes: its one-hot code, so the class probabilities)."""
        return self.samples.mean(0)

    @cached_property
    def epistemic(self) -> Tensor:
        """Standard deviation because the weights are uncertain."""
        return self.samples.std(0, correction=self._correction)

    @cached_property
    def std(self) -> Tensor:
        """Total standard deviation of the target."""
        return (self.epistemic**2 + self.aleatoric**2).sqrt()

    @abstractmethod
    def quantile(self, level: float) -> Tensor:
        """Return the quantile at ``level`` in (0, 1)."""

    @abstractmethod
    def log_prob(self, targets: ArrayLike) -> Tensor:
        r"""Return $\log \frac1S \sum_s p(y_n|\phi_s)$, the log density (mass) of each observation, shape (N,)."""

    def squeezed(self) -> Self:
        """Return the forecast without a trailing axis of length one, for targets that had none."""
        return replace(self, **{field.name: getattr(self, field.name).squeeze(-1) for field in fields(self)})


def _targets(values: ArrayLike, expected: torch.Size, like: Tensor) -> Tensor:
    """Return targets as a finite tensor on the device of ``like``, in exactly the predictions' shape."""
    tensor = as_tensor(values, "y", device=like.device)
    check_shape(tensor, expected)
    return tensor


def check_shape(targets: Tensor, expected: torch.Size) -> None:
    """Raise unless targets have the predictions' shape: broadcasting would compare each with all predictions."""
    if targets.shape != expected:
        raise ValueError(f"the targets have shape {tuple(targets.shape)}, but the predictions have {tuple(expected)}")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")


def _log_mean_over_samples(log_density: Tensor) -> Tensor:
    """Return (N,) from elementwise (S, N, ...): summed over an observation's outputs, averaged over weight samples."""
    per_sample = log_density.reshape(*log_density.shape[:2], -1).sum(-1)
    return torch.logsumexp(per_sample, 0) - math.log(len(per_sample))


@dataclass(frozen=True)
class GaussianForecast(Forecast):
    """A mixture of S Gaussians per target; ``means`` have shape (S, N, ...), ``scales`` one that broadcasts."""

    means: Tensor
    scales: Tensor

    @property
    def samples(self) -> Tensor:
        """The means."""
        return self.means

    @cached_property
    def aleatoric(self) -> Tensor:
        """Root mean square of the weight samples' noise scales."""
        return self.scales.square().mean(0).sqrt().expand(self.means.shape[1:])

    def cdf(self, targets: ArrayLike) -> Tensor:
        """Return the probability of a value at or below each target, elementwise."""
        return mixture.cumulative(self.means, self.scales, _targets(targets, self.mean.shape, self.means))

    def quantile(self, level: float) -> Tensor:
        """Return the quantile of the mixture at ``level``, computed in double precision."""
        _check_level(level)
        means = self.means.double().flatten(1)
        scales = self.scales.double().expand_as(self.means).flatten(1)
        found = mixture.quantiles(means, scales, [level], tolerance=QUANTILE_TOLERANCE)
        return found.reshape(self.mean.shape).to(self.means.dtype)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the central interval that holds the target with probability ``level``."""
        _check_level(level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def log_prob(self, targets: ArrayLike) -> Tensor:
        """Return the log density of each observation, the product of the densities of its outputs."""
        y = _targets(targets, self.mean.shape, self.means)
        return _log_mean_over_samples(mixture.component_log_density(self.means, self.scales, y))

    def rescaled(self, loc: Tensor, scale: Tensor) -> "GaussianForecast":
        """Return the forecast of ``loc + scale * target``, in the type of ``loc``."""
        return GaussianForecast(torch.addcmul(loc, self.means.to(loc), scale), self.scales.to(loc) * scale)


@dataclass(frozen=True)
class _LabelForecast(Forecast):
    """A forecast of labels; ``logits`` are the network's outputs, one set for each weight sample."""

    _correction = 0
    logits: Tensor

    @cached_property
    def aleatoric(self) -> Tensor:
        """Spread of the 0/1 outcome when the weights are known: root of the mean of p(1 - p)."""
        return (self.samples * (1 - self.samples)).mean(0).sqrt()

    def quantile(self, level: float) -> Tensor:
        """Return the quantile of the *probability* over weight samples (that of a 0/1 outcome is 0 or 1)."""
        _check_level(level)
        return self.samples.quantile(level, dim=0)

    @abstractmethod
    def _entropy(self, p: Tensor, class_axis: int) -> Tensor: ...

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of the predicted label in nats: total uncertainty."""
        return self._entropy(self.mean, 1)

    @cached_property
    def mutual_information(self) -> Tensor:
        """Mutual information of weights and label in nats: epistemic uncertainty."""
        return self.entropy - self._entropy(self.samples, 2).mean(0)


class CategoricalForecast(_LabelForecast):
    """Class probabilities; ``logits`` has shape (S, N, C, ...)."""

    @cached_property
    def samples(self) -> Tensor:
        """Class probabilities of each weight sample, shape (S, N, C, ...)."""
        return self.logits.softmax(2)

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities, shape (N, C, ...)."""
        return self.mean

    @property
    def labels(self) -> Tensor:
        """The most probable class."""
        return self.mean.argmax(1)

    def _entropy(self, p: Tensor, class_axis: int) -> Tensor:
        return torch.special.entr(p).sum(class_axis)  # type: ignore[no-any-return]

    def log_prob(self, targets: ArrayLike) -> Tensor:
        """Return the log probability of the labels of each observation."""
        labels = _targets(targets, self.labels.shape, self.logits).long()
        classes = self.logits.shape[2]
        if labels.min() < 0 or labels.max() >= classes:
            raise ValueError(f"labels must be 0..{classes - 1}, got {labels.min()} to {labels.max()}")
        index = labels.expand(len(self.logits), *labels.shape).unsqueeze(2)
        return _log_mean_over_samples(self.logits.log_softmax(2).gather(2, index).squeeze(2))

    def squeezed(self) -> Self:
        """Return the forecast itself: labels have no trailing axis."""
        return self


class BernoulliForecast(_LabelForecast):
    """Probability of a one; ``logits`` has shape (S, N, ...)."""

    @cached_property
    def samples(self) -> Tensor:
        """Probability of a one of each weight sample, shape (S, N, ...)."""
        return self.logits.sigmoid()

    @property
    def probabilities(self) -> Tensor:
        """Probabilities of zero and of one, on a new last axis."""
        return torch.stack([1 - self.mean, self.mean], -1)

    @property
    def labels(self) -> Tensor:
        """The more probable of 0 and 1."""
        return (self.mean > 0.5).long()

    def _entropy(self, p: Tensor, class_axis: int) -> Tensor:
        return torch.special.entr(torch.stack([1 - p, p], -1)).sum(-1)  # type: ignore[no-any-return]

    def log_prob(self, targets: ArrayLike) -> Tensor:
        """Return the log probability of the labels of each observation."""
        ones = _targets(targets, self.mean.shape, self.logits) > 0.5
        return _log_mean_over_samples(F.logsigmoid(torch.where(ones, self.logits, -self.logits)))


def as_numpy(value: Any) -> Any:
    """Return tensors as NumPy arrays, also inside tuples; everything else as it is."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, tuple):
        arrays = map(as_numpy, value)
        return type(value)(*arrays) if hasattr(value, "_fields") else tuple(arrays)
    return value


class NumpyForecast:
    """A forecast whose attributes and methods return NumPy arrays; ``tensors`` is the forecast itself."""

    def __init__(self, tensors: Forecast) -> None:
        self.tensors = tensors

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "tensors":
            raise AttributeError(name)
        value = getattr(self.tensors, name)
        if not callable(value):
            return as_numpy(value)
        return wraps(value)(lambda *arguments, **options: as_numpy(value(*arguments, **options)))

    def __repr__(self) -> str:
        return f"NumpyForecast({type(self.tensors).__name__})"
