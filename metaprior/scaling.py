"""Targets in the network's units (standardised) and in the user's."""

from typing import NamedTuple

import torch
from torch import Tensor


class TargetScale(NamedTuple):
    """``user = loc + scale * internal``; both of shape (C, 1, ...) or (), to broadcast against targets."""

    loc: Tensor
    scale: Tensor

    @classmethod
    def identity(cls, like: Tensor) -> "TargetScale":
        """No change."""
        return cls(torch.zeros((), dtype=like.dtype, device=like.device), torch.ones((), dtype=like.dtype).to(like))

    @classmethod
    def standardising(cls, targets: Tensor) -> "TargetScale":
        """Mean zero and standard deviation one for each channel (axis 1)."""
        if len(targets) < 2:
            raise ValueError("one observation has no spread to standardise by; pass standardize=False")
        axes = [0, *range(2, targets.ndim)]
        wide = targets.double()
        loc, scale = wide.mean(axes), wide.std(axes, correction=0)
        if bool((scale <= 1e-12 * loc.abs()).any()):
            raise ValueError(
                "the targets (or one of their channels) are constant, so they have no scale to standardise by; "
                "pass standardize=False to fit them as they are"
            )
        shape = (-1, *[1] * (targets.ndim - 2)) if targets.ndim > 2 else loc.shape
        return cls(loc.reshape(shape).to(targets), scale.reshape(shape).to(targets))

    def to_internal(self, targets: Tensor) -> Tensor:
        """From the user's units."""
        return (targets - self.loc) / self.scale
