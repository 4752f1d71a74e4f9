"""Forecasts that are mixtures of Gaussians."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import ArrayLike
from metaprior.forecasts.forecast import Forecast, levels_of, log_mean_over_samples, targets_like


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

    @classmethod
    def _joined(cls, members: Sequence[Self], weights: Tensor) -> Self:
        """Return the forecast of all components, in which draws of theta remain groups where all are equally large."""
        sizes = {len(one.means) // one.thetas for one in members}
        thetas = sum(one.thetas for one in members) if len(sizes) == 1 and any(one.thetas > 1 for one in members) else 1
        alike = [replace(one, thetas=1) for one in members]
        if any(one.task_scales is not None for one in members):  # the others' scales are all noise
            none = members[0].scales.new_zeros(())
            alike = [replace(one, task_scales=none if one.task_scales is None else one.task_scales) for one in alike]
        return replace(super()._joined(alike, weights), thetas=thetas)

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
        y = targets_like(targets, self.mean.shape, self.means)
        return self._of_parts(mixture.cumulative, y)

    def _of_parts(self, function: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor], y: Tensor) -> Tensor:
        """Return ``function(means, scales, y, weights)`` of all observations, computed in parts that stay in cache."""

        def rows(values: Tensor, part: slice) -> Tensor:
            return values[:, part] if values.ndim == self.means.ndim and values.shape[1] > 1 else values

        found = []
        for part in mixture.parts(self.means):
            weights = None if self.weights is None else rows(self.weights, part)
            found.append(function(self.means[:, part], rows(self.scales, part), y[part], weights))
        return torch.cat(found)

    def quantile(self, level: float | Sequence[float]) -> Tensor:
        """Return the quantile of the mixture at ``level``, or at several (Q, N, ...), computed in double precision."""
        levels = levels_of(level)
        means, scales, weights = self.components()
        found = mixture.quantiles(means, scales, levels, weights)
        found = found.reshape(len(levels), *self.mean.shape).to(self.means.dtype)
        return found if isinstance(level, Sequence) else found[0]

    def log_prob(self, targets: ArrayLike) -> Tensor:
        """Return the log density of each observation, the product of the densities of its outputs."""
        y = targets_like(targets, self.mean.shape, self.means)

        def of_part(means: Tensor, scales: Tensor, values: Tensor, weights: Tensor | None) -> Tensor:
            log_density = mixture.component_log_density(means, scales, values)
            return log_mean_over_samples(log_density, weights, self.present(values))

        return self._of_parts(of_part, y)

    def rescaled(self, loc: Tensor, scale: Tensor) -> Self:
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
