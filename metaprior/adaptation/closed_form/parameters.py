"""The prior of the last layer as named tensors of theta: first values, and back."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from metaprior.adaptation.closed_form.conjugate import HeadPrior

MEAN, FACTOR, DIAGONAL, LOG_SCALE = "head.mean", "head.scale", "head.diagonal", "head.log_scale"
LOGITS, LOG_NOISE, LOG_TEMPERATURE, RAW_SCALES = (
    "head.logits",
    "head.log_noise",
    "head.log_temperature",
    "head.raw_scales",
)
"""w0 (K, C, d), L (K, C, d, r), log sigma (K, C, d) if r < d, and the logarithm of what both are multiplied by (K, C),
so that an optimiser's steps are of a fitting size in any units; log pi (K,); the logarithms of the components' noise
factors (K,) and of tau; and the rows of the last layer that give noise scales, which are plain (C, d)."""

APART, TILT = 1.0, 0.3
"""How far the components' means start from the module's own weights, in prior standard deviations, and how far L starts
from a multiple of the identity: without that all components would stay the same."""


def initial(weights: Tensor, components: int, rank: int) -> dict[str, Tensor]:
    """Return a first prior around the last layer's weights (C, d), so that outputs have a standard deviation of one.

    It is meant for features of root mean square one; ``rescaled`` makes it so for others. The same call returns the
    same numbers.
    """
    outputs, d = weights.shape
    shape, scale, generator = (components, outputs, d), 1 / math.sqrt(d), torch.Generator().manual_seed(0)
    apart, tilt = (torch.randn(size, generator=generator).to(weights) for size in (shape, (*shape, rank)))
    mean = weights + APART * scale * (apart - apart.mean(0))
    common = {MEAN: mean, LOG_SCALE: weights.new_zeros(components, outputs), LOGITS: weights.new_zeros(components)}
    if rank == d:
        return {FACTOR: scale * (torch.eye(d).to(weights) + TILT * tilt / math.sqrt(d)), **common}
    share = math.sqrt(0.5) if rank else 1.0
    diagonal = weights.new_full(shape, math.log(scale * share))
    return {FACTOR: scale * share * tilt / math.sqrt(max(1, rank)), DIAGONAL: diagonal, **common}


def rescaled(plain: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    """Return the parameters of a prior whose spread, within and between components, is multiplied by ``factor``."""
    centre = plain[MEAN].mean(0)
    mean = centre + factor * (plain[MEAN] - centre)
    return {**plain, MEAN: mean, LOG_SCALE: plain[LOG_SCALE] + math.log(factor)}


def prior_of(plain: Mapping[str, Tensor]) -> HeadPrior:
    """Return the prior in float64."""
    factor = plain[FACTOR].double()
    if DIAGONAL in plain:
        factor = torch.cat([torch.diag_embed(plain[DIAGONAL].double().exp()), factor], -1)
    factor = factor * plain[LOG_SCALE].double().exp()[..., None, None]
    return HeadPrior(plain[MEAN].double(), factor, plain[LOGITS].double())
