"""What can be chosen about a closed form."""

import math
from dataclasses import dataclass
from typing import Literal

from metaprior.checks import check_integer, check_positive

FULL_RANK = 64
"""Most features for which the covariance of the last layer's weights is full by default."""
LOW_RANK = 16
"""Rank of the covariance, beside its diagonal, for more features."""
SEVERAL = 4
"""Components of the mixture for vectors of numbers by default."""


@dataclass(frozen=True)
class ClosedForm:
    r"""The exact posterior of the last layer under a meta-learned mixture of Gaussians; the other layers are shared.

    Args:
        rank: r, columns of L in the prior covariance of the last layer's d weights for an output: $L L^T$ if r = d,
            $\mathrm{diag}(\sigma^2) + L L^T$ if r < d (0: the diagonal alone). None is d up to 64, and 16 above.
        components: K, Gaussians in the mixture: many where tasks are of several kinds, or differ in more than a last
            layer can express. None is 4 for vectors of numbers, whose weights seldom have a Gaussian distribution over
            tasks, and 1 for images and labels.
        head: name of the last layer; None is the last ``Linear`` or ``Conv2d`` of the module.
        temperature: the power tau of the support set's likelihood: a number, or "learned". Neighbouring pixels are not
            independent observations, and tau < 1 makes up for that. None is "learned" for images, 1 for vectors.
        labels: what a class label means. "arbitrary": class 3 of one task has nothing to do with that of another; one
            prior is shared by all classes, and tasks may have any number of classes up to the network's outputs.
            "fixed": the same in all tasks; every class has a prior of its own.
        component_noise: whether every component multiplies the likelihood's noise scale by a factor of its own.
    """

    rank: int | None = None
    components: int | None = None
    head: str | None = None
    temperature: float | Literal["learned"] | None = None
    labels: Literal["arbitrary", "fixed"] = "arbitrary"
    component_noise: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", self.head or None)
        object.__setattr__(self, "component_noise", bool(self.component_noise))
        if self.rank is not None:
            check_integer("rank", self.rank, 0)
        if self.components is not None:
            check_integer("components", self.components, 1)
        if self.labels not in ("arbitrary", "fixed"):
            raise ValueError(f"labels must be 'arbitrary' or 'fixed', got {self.labels!r}")
        if isinstance(self.temperature, str):
            if self.temperature != "learned":
                raise ValueError(f"temperature must be a positive number, 'learned' or None, got {self.temperature!r}")
        elif self.temperature is not None:
            check_positive("temperature", self.temperature)

    def rank_of(self, features: int) -> int:
        """Return r for a last layer of d ``features``."""
        chosen = self.rank if self.rank is not None else features if features <= FULL_RANK else LOW_RANK
        return min(chosen, features)

    def components_of(self, *, numbers: bool, images: bool) -> int:
        """Return K for targets that are ``numbers`` or labels, of ``images`` or vectors."""
        return self.components if self.components is not None else SEVERAL if numbers and not images else 1

    def log_temperature(self, *, images: bool) -> float | None:
        """Return the logarithm of a fixed temperature; None if it is learned."""
        if self.temperature is None:
            return None if images else 0.0
        return None if isinstance(self.temperature, str) else math.log(self.temperature)
