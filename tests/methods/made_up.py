"""Small data and modules for the tests of Bayes by Backprop, in float64."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

import metaprior as mp


def plane(count: int = 30, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return three inputs and a target with noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, dtype=torch.float64, generator=generator)
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    return x, 4 + x @ weights + 0.5 * torch.randn(count, dtype=torch.float64, generator=generator)


def small_net(outputs: int = 1) -> nn.Module:
    """Return a network that is the same every time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs)).double()


def method(likelihood: mp.Likelihood | None = None, **settings: Any) -> mp.BayesByBackprop:
    """Return a method that has not been fitted."""
    return mp.BayesByBackprop(settings.pop("module", None) or small_net(), likelihood or mp.Gaussian(), **settings)


def assert_same_fit(one: mp.BayesByBackprop, other: mp.BayesByBackprop, **tolerance: float) -> None:
    """Assert that two fits have the same weights, noise scale and units."""
    first, second = one.posterior_, other.posterior_
    assert isinstance(first, mp.Posterior)
    assert isinstance(second, mp.Posterior)
    for name, value in first.weights.named().items():
        torch.testing.assert_close(second.weights.named()[name], value, **tolerance)  # type: ignore[call-overload]
    for mine, theirs in zip(first.target_scale, second.target_scale, strict=True):
        torch.testing.assert_close(theirs, mine, **tolerance)  # type: ignore[call-overload]


class Rows(Dataset[Any]):
    """Rows of tensors by index; ``asked`` counts how often."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.asked = x, y, 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.asked += 1
        return self.x[index], self.y[index]


class Stream(IterableDataset[Any]):
    """Rows of tensors, one after the other."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.x, self.y, strict=True)


class UsedUp(IterableDataset[Any]):
    """Rows of tensors that can be read once."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.rows = zip(x, y, strict=True)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.rows
