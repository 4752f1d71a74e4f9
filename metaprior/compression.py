r"""A few weight samples that predict like many: selection by moments, and what it loses.

With outputs $f_s$ of S candidates, centred and in units of their spread, the chosen set C minimises

$$J(C) = \Big\|\frac1k\sum_{s\in C} \psi(f_s)\Big\|^2,\qquad \psi(f) = \big(f,\ (f^2 - \overline{f^2})/\sqrt2\big),$$

the distance of its first two moments from those of all candidates (kernel herding, Chen, Welling & Smola 2010, with a
kernel of the second degree): first greedily, one sample after the other, then by exchanges until none lowers J.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.checks import ArrayLike
from metaprior.forecasts import Forecast
from metaprior.inputs import Inputs, parts_of


class CompressionLoss(NamedTuple):
    """How far a smaller forecast is from a larger one of the same targets."""

    mean: float
    """Root mean square difference of the means, as a share of the root mean square standard deviation."""
    std: float
    """Root mean square difference of the standard deviations, as a share of the same."""
    nll: float | None
    """Rise of the negative log-likelihood of an observation in nats (below zero: a gain); None without targets."""

    @classmethod
    def between(cls, full: Forecast, small: Forecast, y: ArrayLike | None = None) -> "CompressionLoss":
        """Return the loss of a smaller forecast against the full one, on targets y if there are any."""
        unit = full.std.double().square().mean().sqrt()
        mean, std = (
            float((one.double() - other.double()).square().mean().sqrt() / unit)
            for one, other in ((small.mean, full.mean), (small.std, full.std))
        )
        nll = None if y is None else float((full.log_prob(y).double() - small.log_prob(y).double()).mean())
        return cls(mean, std, nll)


def chosen_samples(outputs: Inputs, count: int) -> list[int]:
    """Return the indices of the samples of outputs (S, N, ...) whose moments are closest to those of all."""
    kernel = _kernel(outputs)
    chosen = list[int]()
    pull = torch.zeros_like(kernel[0])  # the sum of the kernel over the chosen
    for _ in range(count):
        rise = 2 * pull + kernel.diagonal()
        rise[chosen] = torch.inf
        chosen.append(int(rise.argmin()))
        pull += kernel[chosen[-1]]
    return sorted(_exchanged(kernel, chosen))


def _kernel(outputs: Inputs) -> Tensor:
    """Return the inner products of all samples' centred moments, (S, S)."""
    first = torch.cat([_standardised(part.double()) for part in parts_of(outputs)], 1)
    squares = first.square()
    second = squares - squares.mean(0)
    return (first @ first.T + second @ second.T / 2) / first.shape[1]


def _standardised(values: Tensor) -> Tensor:
    """Return outputs (S, N, ...) without their means over the samples and in units of their spread, (S, numbers)."""
    away = values - values.mean(0)
    unit = away.square().mean((0, 1), keepdim=True).sqrt()
    return (away / torch.where(unit > 0, unit, 1.0)).flatten(1)


def _exchanged(kernel: Tensor, chosen: list[int]) -> list[int]:
    """Return the chosen samples after all exchanges of one of them for another that lower the distance."""
    diagonal = kernel.diagonal()
    chosen, tolerance = list(chosen), 1e-12 * float(diagonal.sum())
    while True:
        pull = kernel[chosen].sum(0)
        change = (diagonal - 2 * pull)[chosen][:, None] + (diagonal + 2 * pull) - 2 * kernel[chosen]
        change[:, chosen] = torch.inf
        place, other = divmod(int(change.argmin()), len(kernel))
        if not float(change[place, other]) < -tolerance:
            return chosen
        chosen[place] = other
