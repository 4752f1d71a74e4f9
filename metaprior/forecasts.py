r"""Predictive distributions from the outputs of S weight samples, or of S weighted components.

A forecast is a mixture: over samples $\phi_1..\phi_S$ of the weights, each with weight 1/S, or, where ``weights`` are
given, over components that are the whole distribution (the exact posterior of a closed form). By the law of total
variance

$$\mathrm{Var}[y] = \mathrm{Var}_\phi[E[y|\phi]] + E_\phi[\mathrm{Var}[y|\phi]],$$

an **epistemic** part (the weights are uncertain; it shrinks with data) and an **aleatoric** part (the data are noisy;
it does not). Both are given as standard deviations, so ``std**2 == epistemic**2 + aleatoric**2``. For real-valued
targets the epistemic variance of samples has S - 1 in its denominator; for labels it has S, which makes the total
p(1 - p).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior import checks, mixture
from metaprior.checks import ArrayLike
from metaprior.missing import present_labels, present_numbers

QUANTILE_TOLERANCE = 1e-7
"""Largest last step of a quantile's search, in standard deviations of the forecast."""


@dataclass(frozen=True, repr=False)
class Forecast(ABC):
    """What every likelihood's forecast offers; shapes are those of the targets.

    ``weights`` of the components, (S,) or (S, N), are divided by their sum; None are equally probable samples.
    """

    _correction: ClassVar[int] = 1
    weights: Tensor | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        given: Tensor = next(getattr(self, one.name) for one in fields(self) if not one.kw_only)
        if self.weights is None:
            if len(given) < 2:
                raise ValueError(
                    f"a forecast needs at least 2 weight samples for their spread, got {len(given)}. "
                    "Try weights=torch.ones(1) for one component that is the whole distribution."
                )
            return
        weights = self.weights.to(given).flatten(1) if self.weights.ndim > 1 else self.weights.to(given)[:, None]
        if weights.shape not in ((len(given), 1), given.shape[:2]) or not bool((weights >= 0).all()):
            raise ValueError(
                f"weights must be {len(given)} numbers >= 0 (or have shape {tuple(given.shape[:2])}), one for each "
                f"component, got shape {tuple(self.weights.shape)}, smallest {self.weights.min()}"
            )
        weights = (weights / weights.sum(0)).reshape(*weights.shape, *[1] * (given.ndim - 2))
        object.__setattr__(self, "weights", weights)

    def __repr__(self) -> str:
        """Return shapes, and the ranges of mean and standard deviation."""
        (low, high), (least, most) = ((float(v.min()), float(v.max())) for v in (self.mean, self.std))
        shape = tuple(self.mean.shape)
        ranges = f"mean {low:.3g} to {high:.3g}, std {least:.3g} to {most:.3g}"
        return f"{type(self).__name__}(components: {len(self.samples)}, shape {shape}, {ranges})"

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
        return mixture.average(self.samples, self.weights)

    @cached_property
    def epistemic(self) -> Tensor:
        """Standard deviation because the weights are uncertain."""
        if self.weights is None:
            return self.samples.std(0, correction=self._correction)
        return mixture.spread(self.samples, self.weights).sqrt()

    @cached_property
    def std(self) -> Tensor:
        """Total standard deviation of the target."""
        return (self.epistemic**2 + self.aleatoric**2).sqrt()

    @abstractmethod
    def quantile(self, level: float | Sequence[float]) -> Tensor:
        """Return the quantile at ``level`` in (0, 1); for several levels, one after the other on a first axis."""

    @abstractmethod
    def log_prob(self, targets: ArrayLike) -> Tensor:
        r"""Return $\log \frac1S \sum_s p(y_n|\phi_s)$, the log density (mass) of each observation, shape (N,).

        An observation's missing targets (NaN, for class labels -100) are left out; without any target it is 0.
        """

    @staticmethod
    def present(targets: Tensor) -> Tensor:
        """Return where targets are not missing, a Boolean tensor of their shape."""
        return present_numbers(targets)

    @abstractmethod
    def widened(self, factor: float | Tensor) -> "Forecast":
        """Return the forecast with ``factor`` times the spread around the same mean; for labels, logits / factor."""

    def squeezed(self) -> Self:
        """Return the forecast without a trailing axis of length one, for targets that had none."""
        tensors = {name: value for name, value in self._fields().items() if isinstance(value, Tensor)}
        return replace(self, **{name: value.squeeze(-1) for name, value in tensors.items()})

    def _fields(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


def _targets(values: ArrayLike, expected: torch.Size, like: Tensor) -> Tensor:
    """Return targets on the device of ``like``, in exactly the predictions' shape; missing ones pass."""
    tensor = checks.targets(values, device=like.device)
    check_shape(tensor, expected)
    return tensor


def check_shape(targets: Tensor, expected: torch.Size) -> None:
    """Raise unless targets have the predictions' shape: broadcasting would compare each with all predictions."""
    if targets.shape != expected:
        raise ValueError(f"the targets have shape {tuple(targets.shape)}, but the predictions have {tuple(expected)}")


def _levels(level: float | Sequence[float]) -> list[float]:
    """Return one or several levels as a list; raise unless they lie strictly between 0 and 1."""
    levels = list(level) if isinstance(level, Sequence) else [level]
    for one in levels:
        if not 0 < one < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {one}")
    return levels


def _log_mean_over_samples(log_density: Tensor, weights: Tensor | None, present: Tensor) -> Tensor:
    """Return (N,) from elementwise (S, N, ...): summed over an observation's present targets, averaged over S."""
    if not bool(present.all()):
        log_density = torch.where(present, log_density, torch.zeros_like(log_density))
    per_sample = log_density.reshape(*log_density.shape[:2], -1).sum(-1)
    return mixture.log_average(per_sample, None if weights is None else weights.flatten(1))


@dataclass(frozen=True, repr=False)
class GaussianForecast(Forecast):
    """A mixture of S Gaussians per target.

    Args:
        means: shape (S, N, ...).
        scales: standard deviations of the components, in a shape that broadcasts.
        weights: the components' weights; None for weight samples.
        task_scales: the part of the scales because the weights are uncertain within a component; the noise is the rest,
            scales^2 - task_scales^2. None where a component is one sample of the weights: its scale is noise.
        thetas: number of draws of theta; components are consecutive equal groups, one group for each draw.
    """

    means: Tensor
    scales: Tensor
    task_scales: Tensor | None = field(default=None, kw_only=True)
    thetas: int = field(default=1, kw_only=True)

    @property
    def samples(self) -> Tensor:
        """The means."""
        return self.means

    @cached_property
    def aleatoric(self) -> Tensor:
        """Root mean square of the components' noise scales."""
        squares = self.scales.square()
        if self.task_scales is not None:
            squares = (squares - self.task_scales.square()).clamp_min(0.0)
        return mixture.average(squares, self.weights).sqrt().expand(self.means.shape[1:])

    @cached_property
    def epistemic(self) -> Tensor:
        """Standard deviation because the weights are uncertain: between components, and within each of them."""
        if self.task_scales is None:
            return super().epistemic
        within = mixture.average(self.task_scales.square(), self.weights)
        return (mixture.spread(self.means, self.weights) + within).sqrt()

    @property
    def parts(self) -> dict[str, Tensor]:
        r"""Standard deviations by what is uncertain, whose squares add up to the variance.

        $$\mathrm{Var}[y] = \underbrace{\mathrm{Var}_\theta E[y|\theta]}_{\text{prior}}
        + \underbrace{E_\theta \mathrm{Var}_\phi E[y|\phi]}_{\text{task}}
        + \underbrace{E\,\mathrm{Var}[y|\phi]}_{\text{data}}$$

        The prior part is zero where there is one theta.
        """
        grouped = self.means.unflatten(0, (self.thetas, -1))
        if self.weights is None:
            centres, shares = (
                grouped.mean(1),
                self.means.new_full((self.thetas, *[1] * self.mean.ndim), 1 / self.thetas),
            )
        else:
            own = self.weights.unflatten(0, (self.thetas, -1))
            shares = own.sum(1)
            centres = (own * grouped).sum(1) / shares.clamp_min(torch.finfo(shares.dtype).tiny)
        prior = torch.minimum(mixture.spread(centres, shares), self.epistemic.square())
        task = (self.epistemic.square() - prior).sqrt()
        return {"prior": prior.sqrt(), "task": task, "data": self.aleatoric}

    def components(self) -> mixture.Components:
        """Return the mixtures of all M targets, flat, as ``mixture`` takes them."""
        weights = self.weights
        if weights is not None:
            weights = (weights if weights.shape[1] == 1 else weights.expand_as(self.means)).flatten(1)
        return mixture.Components(self.means.flatten(1), self.scales.expand_as(self.means).flatten(1), weights)

    def cdf(self, targets: ArrayLike) -> Tensor:
        """Return the probability of a value at or below each target, elementwise; NaN for a missing target."""
        y = _targets(targets, self.mean.shape, self.means)
        return mixture.cumulative(self.means, self.scales, y, self.weights)

    def quantile(self, level: float | Sequence[float]) -> Tensor:
        """Return the quantile of the mixture at ``level``, or at several (Q, N, ...), computed in double precision."""
        levels = _levels(level)
        means, scales, weights = self.components().part(slice(None))
        found = mixture.quantiles(means, scales, levels, weights, tolerance=QUANTILE_TOLERANCE)
        found = found.reshape(len(levels), *self.mean.shape).to(self.means.dtype)
        return found if isinstance(level, Sequence) else found[0]

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the central interval that holds the target with probability ``level``."""
        _levels(level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def log_prob(self, targets: ArrayLike) -> Tensor:
        """Return the log density of each observation, the product of the densities of its outputs."""
        y = _targets(targets, self.mean.shape, self.means)
        log_density = mixture.component_log_density(self.means, self.scales, y)
        return _log_mean_over_samples(log_density, self.weights, self.present(y))

    def rescaled(self, loc: Tensor, scale: Tensor) -> "GaussianForecast":
        """Return the forecast of ``loc + scale * target``, in the type of ``loc``."""
        means, scales = torch.addcmul(loc, self.means.to(loc), scale), self.scales.to(loc) * scale
        return replace(self, means=means, scales=scales, task_scales=self._task_scales_times(scale.to(loc)))

    def widened(self, factor: float | Tensor) -> "GaussianForecast":
        """Return the forecast whose whole spread around its mean is multiplied by a factor."""
        means = self.mean + factor * (self.means - self.mean)
        return replace(self, means=means, scales=self.scales * factor, task_scales=self._task_scales_times(factor))

    def _task_scales_times(self, factor: float | Tensor) -> Tensor | None:
        if self.task_scales is None:
            return None
        return (self.task_scales.to(factor) if isinstance(factor, Tensor) else self.task_scales) * factor


@dataclass(frozen=True, repr=False)
class _LabelForecast(Forecast):
    """A forecast of labels; ``logits`` are the network's outputs, one set for each weight sample."""

    _correction = 0
    logits: Tensor

    def widened(self, factor: float | Tensor) -> Self:
        """Return the forecast with its logits divided by a factor: a temperature, which keeps their order."""
        return replace(self, logits=self.logits / factor)

    @cached_property
    def aleatoric(self) -> Tensor:
        """Spread of the 0/1 outcome when the weights are known: root of the mean of p(1 - p)."""
        return mixture.average(self.samples * (1 - self.samples), self.weights).sqrt()

    def quantile(self, level: float | Sequence[float]) -> Tensor:
        """Return the quantile of the *probability* over weight samples (that of a 0/1 outcome is 0 or 1).

        Among weighted components it is the smallest probability at or below which their weights reach ``level``.
        """
        levels = _levels(level)
        if self.weights is None:
            found = torch.stack([self.samples.quantile(one, dim=0) for one in levels])
        else:
            ordered, order = self.samples.sort(0)
            reached = self.weights.expand_as(self.samples).gather(0, order).cumsum(0)
            index = [(reached < one).sum(0, keepdim=True).clamp(max=len(reached) - 1) for one in levels]
            found = torch.cat([ordered.gather(0, one) for one in index])
        return found if isinstance(level, Sequence) else found[0]

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Raise TypeError: only real-valued targets have an interval."""
        raise TypeError(
            f"interval must be asked of a forecast of real-valued targets, got a {type(self).__name__}. Try "
            f"probabilities, and quantile({(1 - level) / 2:.3g}) and quantile({(1 + level) / 2:.3g}) of them"
        )

    @abstractmethod
    def _entropy(self, p: Tensor, class_axis: int) -> Tensor: ...

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of the predicted label in nats: total uncertainty."""
        return self._entropy(self.mean, 1)

    @cached_property
    def mutual_information(self) -> Tensor:
        """Mutual information of weights and label in nats: epistemic uncertainty."""
        weights = self.weights
        if weights is not None and weights.ndim > self.entropy.ndim + 1:
            weights = weights.squeeze(-1)
        return self.entropy - mixture.average(self._entropy(self.samples, 2), weights)


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
        classes, present = self.logits.shape[2], self.present(labels)
        labels = torch.where(present, labels, 0)
        if labels.min() < 0 or labels.max() >= classes:
            raise ValueError(f"labels must be 0..{classes - 1}, got {labels.min()} to {labels.max()}")
        index = labels.expand(len(self.logits), *labels.shape).unsqueeze(2)
        log_mass = self.logits.log_softmax(2).gather(2, index).squeeze(2)
        return _log_mean_over_samples(log_mass, self.weights, present)

    @staticmethod
    def present(targets: Tensor) -> Tensor:
        """Return where labels are not -100."""
        return present_labels(targets)

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
        labels = _targets(targets, self.mean.shape, self.logits)
        log_mass = F.logsigmoid(torch.where(labels > 0.5, self.logits, -self.logits))
        return _log_mean_over_samples(log_mass, self.weights, self.present(labels))


def concatenated(parts: Sequence[Forecast]) -> Forecast:
    """Return one forecast of the observations of several, which have the same components."""
    if len(parts) == 1:
        return parts[0]
    fields_of = [part._fields() for part in parts]
    joined = {
        name: torch.cat([own[name] for own in fields_of], 1)
        for name, value in fields_of[0].items()
        if isinstance(value, Tensor) and value.shape[1] == len(parts[0].mean) and name != "weights"
    }
    return replace(parts[0], **joined)
