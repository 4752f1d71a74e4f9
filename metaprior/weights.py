"""The parameters of a network with random weights, and the distribution that they define."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

PLAIN = "plain."
"""Prefix of the names of plain parameters in ``Parameters.named``."""


def inverse_softplus(x: Tensor) -> Tensor:
    r"""Return the $\rho$ with $\mathrm{softplus}(\rho) = x$, for $x > 0$: $\rho = x + \log(1 - e^{-x})$."""
    return x + torch.log(-torch.expm1(-x))


@dataclass(frozen=True, eq=False)
class Parameters:
    r"""$(\mu, \rho, \text{plain}, \log\alpha)$, or anything with one number for each of theirs: a gradient, a velocity.

    Args:
        mu: means of the D random weights, shape (..., D); a stack of tasks has an axis in front, here and below.
        rho: their scales before the softplus, shape (..., D).
        plain: the parameters that are not random, by name.
        log_lr: logarithms of the learned inner step sizes; None where step sizes are not learned.
    """

    mu: Tensor
    rho: Tensor
    plain: dict[str, Tensor] = field(default_factory=dict)
    log_lr: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return the container of ``function`` applied to every tensor."""
        plain = {name: function(value) for name, value in self.plain.items()}
        log_lr = None if self.log_lr is None else function(self.log_lr)
        return type(self)(function(self.mu), function(self.rho), plain, log_lr)

    def zip_map(self, function: Callable[..., Tensor], *others: "Parameters") -> Self:
        """Return the container of ``function(own, *theirs)`` for every tensor and its counterparts in ``others``."""
        named = [other.named() for other in others]
        return self.from_named({key: function(own, *(n[key] for n in named)) for key, own in self.named().items()})

    def named(self) -> dict[str, Tensor]:
        """Return every tensor by name: "mu", "rho", "plain.NAME", "log_lr"."""
        step_sizes = {} if self.log_lr is None else {"log_lr": self.log_lr}
        plain = {PLAIN + name: value for name, value in self.plain.items()}
        return {"mu": self.mu, "rho": self.rho, **plain, **step_sizes}

    @classmethod
    def from_named(cls, named: Mapping[str, Tensor]) -> Self:
        """Return the inverse of ``named``."""
        plain = {name.removeprefix(PLAIN): value for name, value in named.items() if name.startswith(PLAIN)}
        return cls(named["mu"], named["rho"], plain, named.get("log_lr"))

    def tensors(self) -> list[Tensor]:
        """Return every tensor, in the order of ``named``."""
        return list(self.named().values())

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other fields; tensors are shared."""
        return dataclasses.replace(self, **changes)

    def clone(self) -> Self:
        """Return a copy of every tensor."""
        return self.map(torch.clone)

    def detached(self) -> Self:
        """Return a copy of every tensor without its graph."""
        return self.map(lambda value: value.detach().clone())

    def zeros(self) -> "Parameters":
        """Return zeros in the same shapes."""
        return Parameters(self.mu, self.rho, self.plain, self.log_lr).map(torch.zeros_like)


class WeightDistribution(Parameters):
    r"""Diagonal Gaussian $q(\phi) = \prod_j N(\phi_j; \mu_j, \sigma_j^2)$ with $\sigma = \mathrm{softplus}(\rho)$.

    In the letters of the method pages this is theta (as a prior) or lambda (as a posterior).
    """

    @property
    def sigma(self) -> Tensor:
        """Standard deviations, shape (..., D)."""
        return F.softplus(self.rho)

    def sample(self, noise: Tensor) -> Tensor:
        r"""Return the reparameterised draw $\phi = \mu + \sigma \epsilon$, in the shape of the noise, (..., D)."""
        if noise.ndim == 2 and len(noise) == 1:  # without broadcasting, whose backward pass would sum over one row
            return self.sample(noise[0]).unsqueeze(0)
        return self.mu + self.sigma * noise

    def kl_from(self, q: "WeightDistribution", phi: Tensor | None = None) -> Tensor:
        """Return KL(q || self), summed over weights, in closed form; ``phi`` is not needed and ignored."""
        return kl_divergence(q, self)

    def signal_to_noise(self) -> Tensor:
        r"""Return $|\mu_j| / \sigma_j$ for every weight, shape (D,); zero where mu is (Blundell et al. 2015, 5.1)."""
        return torch.where(self.mu == 0, 0.0, self.mu.abs() / self.sigma)


def kl_divergence(q: WeightDistribution, p: WeightDistribution) -> Tensor:
    r"""Return $KL(q\|p) = \sum_j \log\frac{\sigma_{p,j}}{\sigma_{q,j}}
    + \frac{\sigma_{q,j}^2 + (\mu_{q,j}-\mu_{p,j})^2}{2\sigma_{p,j}^2} - \frac12$, **summed** over weights.

    Plain parameters have no distribution and do not enter.
    """
    sigma_q, sigma_p = q.sigma, p.sigma
    return (torch.log(sigma_p / sigma_q) + (sigma_q**2 + (q.mu - p.mu) ** 2) / (2 * sigma_p**2) - 0.5).sum()


@dataclass(frozen=True)
class Layout:
    """The place of each named tensor in the flat vector phi."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def sizes(self) -> list[int]:
        """Numbers of entries of the tensors."""
        return [prod(shape) for shape in self.shapes]

    @property
    def dimension(self) -> int:
        """D, the length of phi."""
        return sum(self.sizes)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """Return views of a flat vector (D,) by name, in the tensors' shapes."""
        pieces = flat.split(self.sizes)
        return {name: piece.view(shape) for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)}

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """Return the flat vector of named tensors, the inverse of ``split``."""
        return torch.cat([named[name].reshape(-1) for name in self.names])
