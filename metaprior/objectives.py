"""The free energy, whole and by minibatch. ``docs/conventions.md`` defines what is summed and what is averaged."""

from dataclasses import dataclass

import torch
from torch import Tensor

NOISE_LR_FACTOR = 5.0
"""Factor of the learning rate of the likelihood's own parameters, a few numbers that every observation informs."""


@dataclass(frozen=True)
class Terms:
    """The two terms of an objective, per observation."""

    nll: Tensor
    kl: Tensor

    @property
    def total(self) -> Tensor:
        """The objective."""
        return self.nll + self.kl

    def __add__(self, other: "Terms") -> "Terms":
        return Terms(self.nll + other.nll, self.kl + other.kl)

    def scaled(self, factor: float) -> "Terms":
        """Return both terms multiplied by a number."""
        return Terms(self.nll * factor, self.kl * factor)

    def detached(self) -> "Terms":
        """Return the terms without their graph."""
        return Terms(self.nll.detach(), self.kl.detach())


def free_energy(nll: Tensor, kl: Tensor, *, num_observations: float | Tensor, temperature: float = 1.0) -> Terms:
    r"""Return the free energy $\frac1N\big(\frac1T E_q[-\log p(D|w)] + KL(q\|p)\big)$ (Blundell et al. 2015, 1).

    ``nll`` is summed over all N observations, ``kl`` over all weights; a temperature T < 1 gives a "cold" posterior.
    """
    return Terms(nll=nll / (temperature * num_observations), kl=kl / num_observations)


def minibatch_free_energy(
    nll: Tensor,
    kl: Tensor,
    *,
    num_observations: float | Tensor,
    num_batches: int,
    kl_share: float,
    temperature: float = 1.0,
) -> Terms:
    r"""Return $F_i = \frac{M}{N}\big(\frac1T E_q[-\log p(D_i|w)] + \pi_i\,KL(q\|p)\big)$ of minibatch $i$ of $M$.

    ``nll`` is summed over the minibatch, ``kl_share`` is $\pi_i$. Because the shares sum to one, the **mean of F_i over
    an epoch is the free energy of all data**, exactly, for any size of the batches and of the last one (Blundell et al.
    2015, equation 9, times M/N).
    """
    whole = free_energy(nll, kl * kl_share, num_observations=num_observations, temperature=temperature)
    return whole.scaled(num_batches)


def uniform_shares(num_batches: int) -> list[float]:
    r"""Return $\pi_i = 1/M$ (Graves 2011)."""
    return [1 / num_batches] * num_batches


def geometric_shares(num_batches: int) -> list[float]:
    r"""Return $\pi_i = 2^{M-i} / (2^M - 1)$, $i = 1..M$: the prior dominates at an epoch's start, the data at its end.

    (Blundell et al. 2015, section 3.4.) Computed as $2^{-i}/(1 - 2^{-M})$, which does not overflow.
    """
    powers = torch.arange(1, num_batches + 1, dtype=torch.float64).neg().exp2()
    return (powers / (1 - 2.0**-num_batches)).tolist()


MINIBATCH_SHARES = {"uniform": uniform_shares, "geometric": geometric_shares}
