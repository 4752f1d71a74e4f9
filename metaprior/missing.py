"""Missing targets: NaN among numbers, the label -100 among classes. Whoever asks where targets are asks here."""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

MISSING_LABEL = -100
"""Class label of a missing target, the ``ignore_index`` of torch's cross-entropy."""


def present_numbers(targets: Tensor) -> Tensor:
    """Return where targets are numbers, and not NaN: a Boolean tensor of their shape."""
    return ~targets.isnan() if targets.is_floating_point() else torch.ones_like(targets, dtype=torch.bool)


def present_labels(targets: Tensor) -> Tensor:
    """Return where targets are class labels, and not -100: a Boolean tensor of their shape."""
    return targets != MISSING_LABEL


def any_of_row(flags: Tensor) -> Tensor:
    """Return which observations have at least one true flag (where targets are present: at least one target), (N,)."""
    return flags.flatten(1).any(1) if flags.ndim > 1 else flags


def mean_of_present(values: Tensor, axes: list[int]) -> Tensor:
    """Return the mean over some axes of what is not NaN (NaN if nothing is); without NaN, ``values.mean(axes)``."""
    missing = values.isnan()
    return values.nanmean(axes) if bool(missing.any()) else values.mean(axes)


@dataclass(frozen=True)
class TargetCount:
    """How many targets there were, and how many of them are missing."""

    missing: int = 0
    targets: int = 0

    def __add__(self, other: "TargetCount") -> "TargetCount":
        return TargetCount(self.missing + other.missing, self.targets + other.targets)

    @classmethod
    def of(cls, present: Tensor) -> "TargetCount":
        """Return the count of some targets from where they are."""
        return cls(int((~present).sum()), present.numel())

    def warn(self, stacklevel: int = 3) -> None:
        """Warn once of targets that were left out, if there are any; by default in the name of the caller's caller."""
        if self.missing:
            text = f"{self.missing} of {self.targets} targets are missing and were left out"
            warnings.warn(text, stacklevel=stacklevel)


NO_TARGETS = TargetCount()
