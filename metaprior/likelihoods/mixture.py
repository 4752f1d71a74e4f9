"""A mixture of Gaussians for one target: for errors that are not Gaussian."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.checks import check_integer, check_positive
from metaprior.forecasts import GaussianForecast
from metaprior.likelihoods.gaussian import HALF_LOG_2PI
from metaprior.likelihoods.likelihood import Likelihood, match_continuous, refuse_broadcast, shape


@dataclass(frozen=True)
class GaussianMixture(Likelihood):
    r"""$p(y|f) = \sum_k w_k\, N(y; m_k, s_k^2)$ for one target, where the network gives weights, means and scales.

    A mixture density network (Bishop 1994): tails of any weight, two peaks, errors that are skewed near a limit. The
    network has 3K outputs: K logits of the weights, K means, and K raw scales, $s = \mathrm{softplus}(\text{raw}) +
    s_{\min}$, as in ``HeteroscedasticGaussian``.
    """

    components: int = 3
    min_scale: float = 1e-3

    continuous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_integer("components", self.components, 1)
        check_positive("min_scale", self.min_scale)

    @property
    def outputs_per_target(self) -> int:
        """Number of the network's outputs: a weight, a mean and a scale of every component."""
        return 3 * self.components

    def num_outputs(self, targets: int) -> int:
        """Return the number of the network's outputs, for the one target that there may be."""
        if targets != 1:
            raise ValueError(f"a GaussianMixture has one target, got targets={targets}. Try a network for each.")
        return self.outputs_per_target

    def parts(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logarithms of the weights, means and scales, each (..., K), from outputs (..., 3K)."""
        logits, means, raw = outputs.chunk(3, -1)
        return logits.log_softmax(-1), means, F.softplus(raw) + self.min_scale

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log density of each target, (N, 1)."""
        refuse_broadcast(targets, outputs[:, :1])
        log_weights, means, scales = self.parts(outputs)
        log_density = -0.5 * ((targets - means) / scales) ** 2 - scales.log() - HALF_LOG_2PI
        return -torch.logsumexp(log_weights + log_density, -1, keepdim=True)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> GaussianForecast:
        """Return the mixture of the components of all weight samples."""
        log_weights, means, scales = (part.movedim(-1, 1).flatten(0, 1) for part in self.parts(outputs))  # (S K, N)
        return GaussianForecast(means.unsqueeze(-1), scales.unsqueeze(-1), weights=log_weights.exp())

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets of shape (N, 1), or raise."""
        if tuple(output_shape[1:]) != (self.outputs_per_target,):
            raise ValueError(
                f"the network must have {self.outputs_per_target} outputs for a mixture of {self.components} "
                f"components of one target (weights, means, scales), got outputs of shape {shape(output_shape)}"
            )
        return match_continuous(targets, (1,), " (weights, means and scales of a mixture)")
