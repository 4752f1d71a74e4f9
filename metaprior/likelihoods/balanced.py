"""A Gaussian with a scale from the network, trained so that no observation is given up as noise."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.checks import check_positive, check_share
from metaprior.likelihoods.gaussian import HALF_LOG_2PI, HeteroscedasticGaussian
from metaprior.likelihoods.likelihood import refuse_broadcast


@dataclass(frozen=True)
class BalancedGaussian(HeteroscedasticGaussian):
    r"""A Gaussian whose mean and scale the network gives; observations are weighted by their scale in its loss:

    $$-\sum_c w_{nc} \log N(y_{nc}; f_{nc}, s_{nc}^2),\qquad w_{nc} = s_{nc}^{2\beta} / \overline{s_c^{2\beta}}$$

    The gradient of a likelihood by the mean is divided by $s^2$, so that observations that are fitted badly at first
    are called noise and never learned. The weights, which are not differentiated, undo a part of that (Seitzer et al.
    2022, "On the Pitfalls of Heteroscedastic Uncertainty Estimation"); here their mean over a batch is 1 (the bar), so
    that data and prior keep their balance. ``balance`` is $\beta$: 0 is the likelihood, 1 weighs errors alike. A loss
    in place of a log-likelihood gives a generalised posterior; the forecast is the same Gaussian (mixture).
    """

    balance: float = 0.5

    def __post_init__(self) -> None:
        check_positive("min_scale", self.min_scale)
        check_share("balance", self.balance)

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted negative log density of each target."""
        return self.counted_nll(outputs, targets, parameters, torch.ones_like(targets))

    def total_nll(
        self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor], counts: Tensor | None = None
    ) -> Tensor:
        """Return the sum over observations, of which each counts as often in the mean of the weights, too."""
        if counts is None:
            return super().total_nll(outputs, targets, parameters)
        each = counts.reshape(-1, *[1] * (outputs.ndim - 1)).expand(targets.shape)
        return (self.counted_nll(outputs, targets, parameters, each) * each).sum()

    def counted_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor], counts: Tensor) -> Tensor:
        """Return the weighted negative log density of each target, given how often each one counts."""
        mean, scale = self.mean_and_scale(outputs, 1)
        refuse_broadcast(targets, mean)
        weights = scale.detach() ** (2 * self.balance)
        axes = [axis for axis in range(weights.ndim) if axis != 1]
        total = (weights * counts).sum(axes, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        weights = weights * counts.sum(axes, keepdim=True) / total
        return weights * (0.5 * ((targets - mean) / scale) ** 2 + torch.log(scale) + HALF_LOG_2PI)
