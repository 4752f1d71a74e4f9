"""Targets in the network's units (standardised) and in the user's."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.missing import present_numbers


class TargetMoments(NamedTuple):
    """Number, mean and variance of each channel (axis 1) of some targets, in float64; NaN (missing) does not count."""

    size: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, targets: Tensor, weights: Tensor | None = None) -> "TargetMoments":
        """Return the moments of targets (N, C, ...); observation n counts as ``weights[n]`` of them."""
        if weights is not None:
            return cls._weighted(targets, weights)
        axes = [0, *range(2, targets.ndim)]
        wide, present = targets.double(), present_numbers(targets)
        size = present.sum(axes, dtype=torch.float64)
        if bool(present.all()):
            return cls(size, wide.mean(axes), wide.var(axes, correction=0))
        mean = torch.where(size > 0, wide.nansum(axes) / size, 0.0)
        away = wide - mean.reshape(-1, *[1] * (wide.ndim - 2)) if wide.ndim > 1 else wide - mean
        return cls(size, mean, torch.where(size > 0, away.square().nansum(axes) / size, 0.0))

    @classmethod
    def _weighted(cls, targets: Tensor, weights: Tensor) -> "TargetMoments":
        axes, wide = [0, *range(2, targets.ndim)], targets.double()
        counted = present_numbers(targets) * weights.double().reshape(-1, *[1] * (targets.ndim - 1))
        total = counted.sum(axes)

        def average(values: Tensor) -> Tensor:
            return (counted * values.nan_to_num(0.0)).sum(axes) / total  # a missing target has no weight

        mean = average(wide)
        away = wide - mean.reshape(-1, *[1] * (wide.ndim - 2)) if wide.ndim > 1 else wide - mean
        return cls(present_numbers(targets).sum(axes, dtype=torch.float64), mean, average(away.square()))

    def two_targets(self, like: Tensor) -> Tensor:
        """Return two targets (2, C, ...) of these means and variances, with the type and the axes of ``like``."""
        spread = self.variance.sqrt()
        pair = torch.where(self.size > 0, torch.stack([self.mean + spread, self.mean - spread]), torch.nan)
        return pair.reshape(*pair.shape, *[1] * (like.ndim - pair.ndim)).expand(2, *like.shape[1:]).to(like)

    @classmethod
    def pooled(cls, parts: Sequence["TargetMoments"]) -> "TargetMoments":
        """Return the moments of several sets of targets taken together."""
        if len(parts) == 1:
            return parts[0]
        total = sum((part.size for part in parts), torch.zeros_like(parts[0].size))
        shares = [torch.where(total > 0, part.size / total, 0.0) for part in parts]
        mean = sum((part.mean * share for part, share in zip(parts, shares, strict=True)), torch.zeros_like(total))
        squares = (s * (part.variance + (part.mean - mean) ** 2) for part, s in zip(parts, shares, strict=True))
        return cls(total, mean, sum(squares, torch.zeros_like(mean)))


class TargetScale(NamedTuple):
    """``user = loc + scale * internal``; both of shape (C, 1, ...) or (), to broadcast against targets."""

    loc: Tensor
    scale: Tensor

    @classmethod
    def identity(cls, like: Tensor) -> "TargetScale":
        """Return the scale that changes nothing."""
        return cls(torch.zeros((), dtype=like.dtype, device=like.device), torch.ones((), dtype=like.dtype).to(like))

    @property
    def is_identity(self) -> bool:
        """Whether the scale changes nothing."""
        return bool((self.loc == 0).all()) and bool((self.scale == 1).all())

    @classmethod
    def standardising(cls, targets: Tensor, weights: Tensor | None = None, *, keep_zero: bool = False) -> "TargetScale":
        """Return the scale that gives each channel (axis 1) of ``targets`` mean 0 and standard deviation 1.

        Observation n counts as ``weights[n]`` of them. With ``keep_zero`` targets are not centred: a zero stays a zero,
        and their root mean square becomes 1.
        """
        return cls.from_moments(TargetMoments.of(targets, weights), targets, keep_zero=keep_zero)

    @classmethod
    def from_moments(cls, moments: TargetMoments, like: Tensor, *, keep_zero: bool = False) -> "TargetScale":
        """Return the standardising scale for targets of these moments, with the type and the axes of ``like``."""
        if bool((moments.size < 2).any()):
            least = int(moments.size.min())
            raise ValueError(
                f"{'one target has' if least else 'a channel without targets has'} no spread to standardise by; pass "
                "standardize=False"
            )
        loc, scale = moments.mean, moments.variance.sqrt()
        if keep_zero:
            loc, scale = torch.zeros_like(loc), (moments.variance + moments.mean.square()).sqrt()
        if bool((scale <= 1e-12 * loc.abs()).any()):
            raise ValueError(
                "the targets (or one of their channels) are constant, so they have no scale to standardise by; "
                "pass standardize=False to fit them as they are"
            )
        shape = (-1, *[1] * (like.ndim - 2)) if like.ndim > 2 else loc.shape
        return cls(loc.reshape(shape).to(like), scale.reshape(shape).to(like))

    def to_internal(self, targets: Tensor) -> Tensor:
        """Return targets in the network's units."""
        return (targets - self.loc) / self.scale
