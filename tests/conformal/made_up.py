"""Forecasts that are told, for targets whose distribution is known."""

import torch
from torch import Tensor

from metaprior.forecasts import BernoulliForecast, CategoricalForecast, GaussianForecast


def normal(mean: Tensor, std: Tensor | float = 1.0) -> GaussianForecast:
    """One Gaussian, in two equal components."""
    means = torch.stack([mean, mean])
    return GaussianForecast(means, torch.zeros_like(means) + std)


def classes(probabilities: Tensor) -> CategoricalForecast:
    """Class probabilities (N, C, ...), in two equal components."""
    return CategoricalForecast(torch.stack([probabilities.log()] * 2))


def bits(probabilities: Tensor) -> BernoulliForecast:
    """Probabilities of a one, in two equal components."""
    return BernoulliForecast(torch.stack([probabilities.logit()] * 2))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in double precision."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def drawn_labels(probabilities: Tensor, seed: int = 0) -> Tensor:
    """Labels (N,) of class probabilities (N, C)."""
    return probabilities.multinomial(1, generator=torch.Generator().manual_seed(seed))[:, 0]
