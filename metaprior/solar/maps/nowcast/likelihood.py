"""The distribution of nowcasts as a likelihood, with the CRPS as its loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import keep_positive
from metaprior.likelihoods.likelihood import Likelihood, match_continuous, refuse_broadcast, shape
from metaprior.solar.maps.nowcast.distribution import OUTPUTS, NowcastForecast, components


@dataclass(frozen=True)
class NowcastLikelihood(Likelihood):
    r"""Two Gaussians of equal weight for each target, see ``distribution.py``, with the loss $w\,\mathrm{CRPS}$.

    The network has four output channels for each target channel (axis 1). As in ``CRPSGaussian``, a loss in place of
    $-\log p$ gives a generalised posterior, and ``weight`` is $w$, the nats that a unit of CRPS counts.
    """

    weight: float = 10.0

    continuous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        keep_positive(self)

    @property
    def outputs_per_target(self) -> int:
        """Four: mean, distance from it, two scales."""
        return OUTPUTS

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted CRPS of each target."""
        means, scales = components(outputs)
        refuse_broadcast(targets, means[0])
        return self.weight * mixture.crps(means, scales, targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> NowcastForecast:
        """Return the mixture over weight samples (S, N, 4 L, H, W): two components of each, one after the other."""
        means, scales = (
            part.unflatten(1, outputs.shape[:2]).transpose(0, 1).flatten(0, 1)
            for part in components(outputs.flatten(0, 1))
        )
        weights = torch.full((len(means),), 1 / len(means), dtype=torch.float64, device=means.device)
        return NowcastForecast(means, scales, weights=weights)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets with a quarter of the outputs' channels, or raise."""
        if len(output_shape) != 4 or output_shape[1] % OUTPUTS:
            raise ValueError(
                f"the network must have {OUTPUTS} output maps for each target map of a nowcast, got outputs of shape "
                f"{shape(output_shape)}. Try model.kind 'nowcast'"
            )
        expected = (output_shape[1] // OUTPUTS, *output_shape[2:])
        return match_continuous(targets, expected, " (means, distances and two scales of each)")
