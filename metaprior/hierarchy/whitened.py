r"""Theta of the collapsed hierarchy as a vector z of independent standard normal numbers.

Theta holds all parameters of the trunk, the noise, and the prior over a task's last layer, $w = w_0 + a\,(L u + b\,v)$
with standard normal u (rank r) and v (an isotropic floor), and with a size a of the task: 1/2, 1 or 2. Few tasks say
little about how large others are, and a new task's own data decide about its size. Theta itself is inferred as if all
tasks had size 1, which is three times cheaper. A tensor t of theta is

$$t = c + s\,e^{\omega z'}\,z,\qquad z', z \sim N(0, 1)$$

with a centre, a scale that keeps features and outputs of order one, and a log scale $\omega z'$ of its own; positive
numbers are $s\,e^{\omega z}$. In z the prior is the same in all directions: $\log p(\theta) = -|z|^2/2$ + constant.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.adaptation.closed_form.conjugate import HeadPrior
from metaprior.checks import check_counts, check_positive
from metaprior.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from metaprior.weights import inverse_softplus

TASK_SIZES, TASK_SHARES = (0.5, 1.0, 2.0), (0.25, 0.5, 0.25)
"""Sizes of tasks, and how often they are expected."""
HEAD = "head."
"""Prefix of the names of everything that is not a parameter of the trunk."""


@dataclass(frozen=True)
class CollapsedHyperprior:
    r"""p(theta) of a hierarchy whose local posteriors are in closed form; scales are medians, in the network's units.

    Args:
        weights: standard deviation of the trunk's weights, times the root of the number of inputs of a unit.
        biases: standard deviation of the trunk's biases (and of norm layers' weights around 1).
        rank: r, the number of directions in which the last layer may vary strongly between tasks.
        shared: root mean square of the function that all tasks have in common, for features of size one.
        between: root mean square of what the r directions add to it.
        floor: root mean square of what all directions together add to it.
        noise: noise scale, where it is learned.
        log_scale_std: omega, the standard deviation of the logarithm of every scale.
    """

    weights: float = 1.0
    biases: float = 1.0
    rank: int = 8
    shared: float = 0.3
    between: float = 1.0
    floor: float = 0.3
    noise: float = 0.2
    log_scale_std: float = 0.8

    def __post_init__(self) -> None:
        check_counts(rank=self.rank)
        for name, value in vars(self).items():
            check_positive(name, value)


class Theta(NamedTuple):
    """K draws of theta."""

    trunk: dict[str, Tensor]
    """Parameters of the trunk by name, (K, ...)."""
    mean: Tensor
    """w0, (K, C, d)."""
    factor: Tensor
    """[L, b I], (K, C, d, r + d)."""
    noise: Tensor
    """Noise scales (K, C); with a scale for each input the weights of its logit, (K, C, d)."""

    def head(self, *, sizes: bool = True) -> HeadPrior:
        """Return the prior of the last layer: K draws, an axis of length one for tasks, a component for every size.

        With ``sizes=False`` there is one component, of size 1.
        """
        if not sizes:
            return HeadPrior(self.mean[:, None, None], self.factor[:, None, None], self.mean.new_zeros(1))
        scale, shares = self.mean.new_tensor(TASK_SIZES), self.mean.new_tensor(TASK_SHARES)
        mean, factor = (value[:, None, None] for value in (self.mean, self.factor))
        mean = mean.expand(-1, -1, len(scale), -1, -1)
        return HeadPrior(mean, factor * scale[:, None, None, None], shares.log())


class _Normal(NamedTuple):
    """A tensor around a centre; its log scale is the first number of its part of z."""

    name: str
    shape: tuple[int, ...]
    centre: float
    spread: float

    @property
    def length(self) -> int:
        return 1 + math.prod(self.shape)

    def value(self, z: Tensor, omega: float) -> Tensor:
        scale = self.spread * (omega * z[:, :1]).exp()
        return (self.centre + scale * z[:, 1:]).reshape(len(z), *self.shape)


class _Positive(NamedTuple):
    """Positive numbers around a median."""

    name: str
    length: int
    median: float

    def value(self, z: Tensor, omega: float) -> Tensor:
        return self.median * (omega * z).exp()


@dataclass(frozen=True)
class Whitening:
    """The map from z to theta.

    Args:
        hyperprior: p(theta).
        likelihood: the likelihood in the network's units, which decides what is learned about the noise.
        trunk: shapes of the trunk's parameters by name.
        features: d, the number of inputs of the last layer, the constant of its bias included.
        outputs: C, the number of targets of an observation.
    """

    hyperprior: CollapsedHyperprior
    likelihood: Gaussian | HeteroscedasticGaussian
    trunk: Mapping[str, Sequence[int]]
    features: int
    outputs: int

    @cached_property
    def parts(self) -> list[_Normal | _Positive]:
        """What z consists of, in its order."""
        prior, unit, size = self.hyperprior, 1 / math.sqrt(self.features), (self.outputs, self.features)
        parts: list[_Normal | _Positive] = [_trunk_part(name, tuple(s), prior) for name, s in self.trunk.items()]
        parts.append(_Normal(HEAD + "mean", size, 0.0, prior.shared * unit))
        parts.append(_Normal(HEAD + "factor", (*size, prior.rank), 0.0, prior.between * unit / math.sqrt(prior.rank)))
        parts.append(_Positive(HEAD + "floor", 1, prior.floor * unit))
        if isinstance(self.likelihood, HeteroscedasticGaussian):
            parts.append(_Normal(HEAD + "noise", size, 0.0, unit))
        elif self.likelihood.noise is None:
            parts.append(_Positive(HEAD + "noise", self.outputs if self.likelihood.per_channel else 1, prior.noise))
        return parts

    @property
    def dimension(self) -> int:
        """Length of z."""
        return sum(part.length for part in self.parts)

    def theta(self, z: Tensor) -> Theta:
        """Return the thetas of z, shape (K, dimension)."""
        cut = z.split([part.length for part in self.parts], 1)
        omega = self.hyperprior.log_scale_std
        values = {part.name: part.value(own, omega) for part, own in zip(self.parts, cut, strict=True)}
        identity = torch.eye(self.features, dtype=z.dtype, device=z.device)
        floor = (values[HEAD + "floor"][:, :, None, None] * identity).expand(-1, self.outputs, -1, -1)
        factor = torch.cat([values[HEAD + "factor"], floor], -1)
        noise = values.get(HEAD + "noise", z.new_tensor(getattr(self.likelihood, "noise", None) or 0.0))
        if not isinstance(self.likelihood, HeteroscedasticGaussian):
            noise = noise.expand(len(z), self.outputs)
        return Theta({name: values[name] for name in self.trunk}, values[HEAD + "mean"], factor, noise)

    def scales(self, theta: Theta, features: Tensor) -> Tensor:
        """Return noise scales that broadcast to (K, N, C), at features (K, N, d)."""
        if not isinstance(self.likelihood, HeteroscedasticGaussian):
            return theta.noise.unsqueeze(1)
        centre = inverse_softplus(features.new_tensor(self.hyperprior.noise))
        return F.softplus(centre + features @ theta.noise.mT) + self.likelihood.min_scale


def _trunk_part(name: str, shape: tuple[int, ...], prior: CollapsedHyperprior) -> _Normal:
    """Return the prior of a parameter: weights shrink with the number of inputs; norm layers' weights are about one."""
    if len(shape) > 1:
        return _Normal(name, shape, 0.0, prior.weights / math.sqrt(math.prod(shape[1:])))
    return _Normal(name, shape, 1.0 if name.endswith("weight") else 0.0, prior.biases)


def conjugate(likelihood: Likelihood) -> Gaussian | HeteroscedasticGaussian:
    """Return the likelihood itself; raise TypeError unless a posterior of the last layer has a closed form under it."""
    if type(likelihood) in (Gaussian, HeteroscedasticGaussian):
        return likelihood  # type: ignore[return-value]
    raise TypeError(
        'likelihood must be Gaussian() or HeteroscedasticGaussian() with local="closed_form", whose posteriors need '
        f'Gaussian noise, got {type(likelihood).__name__}. Try local="explicit"'
    )
