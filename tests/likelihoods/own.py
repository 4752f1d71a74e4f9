"""Likelihoods of a user's own, in a module that can be imported."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

import metaprior as mp
from metaprior.forecasts import GaussianForecast


@dataclass(frozen=True)
class Asymmetric(mp.Gaussian):
    """A Gaussian whose positive errors count more."""

    factors: tuple[float, ...] = (1.0, 2.0)

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        nll = super().elementwise_nll(outputs, targets, parameters)
        return nll * self.factors[0] + nll * (self.factors[1] - 1) * (targets > outputs)


@dataclass(frozen=True)
class Named(mp.Gaussian):
    """A likelihood with a field that files need for themselves."""

    name: str = "mine"


class Plain(mp.Gaussian):
    """A subclass that is a dataclass by inheritance alone."""


class Wrong(mp.Gaussian):
    """A likelihood whose results have another shape, or kind, than they must have."""

    what = "pairs"

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        if self.what == "pairs":
            return (outputs[:, 0] - targets).square()
        nll = super().elementwise_nll(outputs, targets, parameters)
        return nll.sum(1) if self.what == "sums" else nll.mean() if self.what == "mean" else nll

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> GaussianForecast:
        found = super().forecast(outputs, parameters)
        return found.mean if self.what == "no forecast" else found  # type: ignore[return-value]


class Outside:
    """No likelihood at all."""
