"""What every likelihood's forecast offers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from metaprior import checks, mixture
from metaprior.checks import ArrayLike
from metaprior.missing import present_numbers

Member = TypeVar("Member")
"""A forecast, or one in NumPy arrays."""


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
        traced = torch.compiler.is_compiling()  # numbers are not known, only shapes
        if weights.shape not in ((len(given), 1), given.shape[:2]) or not (traced or bool((weights >= 0).all())):
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

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the central interval that holds the target with probability ``level``."""
        levels_of(level)
        low, high = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return low, high

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

    @staticmethod
    def mixture(forecasts: Sequence[Member], weights: Sequence[float] | Tensor | None = None) -> Member:
        r"""Return the mixture of forecasts of the same targets, such as an ensemble of Bayesian networks gives:

        $$p(y) = \sum_i w_i\, p_i(y),\qquad
        \mathrm{Var}[y] = \sum_i w_i\,\big(\mathrm{Var}_i[y] + (E_i[y] - E[y])^2\big)$$

        The epistemic part includes the differences between the members. Components keep their weights within a member
        and are the whole distribution, so variances are those of the mixture, without S - 1 in a denominator.

        Args:
            forecasts: of one kind, of the same targets, in the same units. If one is in NumPy arrays, the mixture is.
            weights: a number >= 0 for each forecast, divided by their sum; None are equal weights.
        """
        from metaprior.forecasts.merging import merged  # which imports this module

        return merged(forecasts, weights)  # type: ignore[no-any-return]

    @classmethod
    def _joined(cls, members: Sequence[Self], weights: Tensor) -> Self:
        """Return the forecast that has the components of all members, with these weights."""
        from metaprior.forecasts.merging import joined_field  # which imports this module

        counts, axes = [len(one.samples) for one in members], members[0].samples.ndim
        joined: dict[str, Any] = {}
        for name, value in members[0]._fields().items():
            own = [one._fields()[name] for one in members]
            if name == "weights":
                joined[name] = weights
            elif isinstance(value, Tensor):
                joined[name] = joined_field(own, counts, axes)
            elif all(other == value for other in own):
                joined[name] = value
            else:
                raise ValueError(f"all forecasts must have the same {name}, got {own}")
        return cls(**joined)

    def rescaled(self, loc: Tensor, scale: Tensor) -> Self:
        """Return the forecast of ``loc + scale * target``; a family that cannot change its units raises TypeError."""
        if torch.compiler.is_compiling() or (bool((loc == 0).all()) and bool((scale == 1).all())):
            return self  # nothing reads numbers while a program is traced
        raise TypeError(
            f"{type(self).__name__} cannot be put back into the units of the targets, which were standardised. Try "
            "standardize=False, a likelihood with continuous = False, or a forecast with a method rescaled(loc, scale)."
        )

    def squeezed(self) -> Self:
        """Return the forecast without a trailing axis of length one, for targets that had none."""
        tensors = {name: value for name, value in self._fields().items() if isinstance(value, Tensor)}
        return replace(self, **{name: value.squeeze(-1) for name, value in tensors.items()})

    def _fields(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


def targets_like(values: ArrayLike, expected: torch.Size, like: Tensor) -> Tensor:
    """Return targets on the device of ``like``, in exactly the predictions' shape; missing ones pass."""
    tensor = checks.targets(values, device=like.device)
    check_shape(tensor, expected)
    return tensor


def check_shape(targets: Tensor, expected: torch.Size) -> None:
    """Raise unless targets have the predictions' shape: broadcasting would compare each with all predictions."""
    if targets.shape != expected:
        raise ValueError(f"the targets have shape {tuple(targets.shape)}, but the predictions have {tuple(expected)}")


def levels_of(level: float | Sequence[float]) -> list[float]:
    """Return one or several levels as a list; raise unless they lie strictly between 0 and 1."""
    levels = list(level) if isinstance(level, Sequence) else [level]
    for one in levels:
        if not 0 < one < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {one}")
    return levels


def log_mean_over_samples(log_density: Tensor, weights: Tensor | None, present: Tensor) -> Tensor:
    """Return (N,) from elementwise (S, N, ...): summed over an observation's present targets, averaged over S."""
    if not bool(present.all()):
        log_density = torch.where(present, log_density, torch.zeros_like(log_density))
    per_sample = log_density.reshape(*log_density.shape[:2], -1).sum(-1)
    return mixture.log_average(per_sample, None if weights is None else weights.flatten(1))


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
