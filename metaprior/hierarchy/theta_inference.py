r"""Posteriors over theta in the whitened coordinates z, as draws that forecasts weight equally.

The target is $\log p(z|D) = \log p(D|z) - \frac12 |z|^2$ + constant, with $\log p(D|z) = \sum_i \log p(D_i|\theta(z))$.
All draws move together: one batched evaluation of the log evidence, (K, P) -> (K,), and of its gradient.

A way of inference is a value with settings. It works in rounds, each a pure function of the state before it and of the
noise, so that a fit that was stopped continues bitwise identically.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.checks import check_counts, check_integer, check_positive
from metaprior.noise import Noise
from metaprior.registry import Registry

LogEvidence = Callable[[Tensor], Tensor]
"""log p(D | z) of every row: (K, P) -> (K,)."""

STEPS_IN_ROUND = 10
"""Steps of an optimiser that make one round."""
BETAS, EPSILON = (0.9, 0.99), 1e-8
LARGEST_GRADIENT = 40.0
"""Most of a draw's gradient of the log evidence, in units of the prior's own at a typical draw, root P. Early gradients
are far larger where noise is small; unclipped they would fill Adam's second moment, and later steps would be small."""
FIRST_STEP_SIZE = 0.02
ACCEPTANCE = 0.8
"""Acceptance that a chain's step size is adapted to."""
ADAPTATION_RATE = 0.5
ADAPTING = 0.6
"""Share of the trajectories whose acceptance adapts the step sizes; from then on these are fixed, and exact."""
STEP_SIZE_RANGE = (0.8, 1.2)
"""Step sizes are multiplied by a random factor in each trajectory, so that no chain returns to where it was."""
FIRST_STD = 0.3


class State(NamedTuple):
    """What a round starts from and returns."""

    rounds: int
    """Number of rounds that are done."""
    tensors: dict[str, Tensor]
    """The draws and what their way of inference keeps beside them."""
    log_evidence: Tensor
    """log p(D | z) of every draw in the last round, (K,)."""
    penalty: Tensor
    """What the objective subtracts from it: half of a squared distance of z, or a KL divergence."""


class ThetaInference(ABC):
    """A way to infer theta; ``THETA`` has the names."""

    draws: int

    def __post_init__(self) -> None:
        check_integer("draws", self.draws, 2)
        check_counts(**{name: value for name, value in vars(self).items() if name != "lr"})
        check_positive("lr", getattr(self, "lr", 1.0))

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Return the number of rounds of a fit."""

    @abstractmethod
    def phase(self, number: int) -> str:
        """Return what the round with this number does, for the history."""

    @abstractmethod
    def start(self, like: Tensor, noise: Noise) -> State:
        """Return the state before the first round; ``like`` has the shape (P,), type and device of z."""

    @abstractmethod
    def advance(self, state: State, evidence: LogEvidence, noise: Noise) -> State:
        """Return the state after the next round."""

    @abstractmethod
    def thetas(self, state: State, noise: Noise) -> Tensor:
        """Return the draws of z, (draws, P)."""


def with_gradient(function: LogEvidence, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value for every row of z, and its gradient, (K, P); zero where it is not finite."""
    at = z.detach().requires_grad_()
    with torch.enable_grad():
        value = function(at)
        (gradient,) = torch.autograd.grad(value.sum(), at)
    usable = value.isfinite() & gradient.isfinite().all(1)
    return value.detach(), torch.where(usable[:, None], gradient, 0.0)


def _adam(tensors: Mapping[str, Tensor], name: str, gradient: Tensor, step: int, lr: float) -> dict[str, Tensor]:
    """Return a tensor and its moments after one step uphill; the learning rate is given."""
    first = BETAS[0] * tensors[f"{name}.first"] + (1 - BETAS[0]) * gradient
    second = BETAS[1] * tensors[f"{name}.second"] + (1 - BETAS[1]) * gradient.square()
    scaled = (second / (1 - BETAS[1] ** (step + 1))).sqrt() + EPSILON
    moved = tensors[name] + lr * first / (1 - BETAS[0] ** (step + 1)) / scaled
    return {name: moved, f"{name}.first": first, f"{name}.second": second}


def _clipped(gradient: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    return gradient * (LARGEST_GRADIENT * math.sqrt(gradient.shape[1]) / norm).clamp(max=1.0)


def _with_moments(**tensors: Tensor) -> dict[str, Tensor]:
    moments = {f"{name}.{order}": torch.zeros_like(t) for name, t in tensors.items() for order in ("first", "second")}
    return {**tensors, **moments}


def _cosine(lr: float, step: int, steps: int) -> float:
    return lr * 0.5 * (1 + math.cos(math.pi * (step + 1) / steps))


def _steps_of(number: int, steps: int) -> range:
    return range(number * STEPS_IN_ROUND, min((number + 1) * STEPS_IN_ROUND, steps))


def _not_yet_known(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return log evidence and penalty before the first round."""
    return z.new_full((len(z),), torch.nan), z.new_full((len(z),), torch.nan)


@dataclass(frozen=True)
class FromPrior(ThetaInference):
    """Draw theta from its prior, whatever the data: shows what a hyper-prior says, and is what others must beat."""

    draws: int = 32

    @property
    def rounds(self) -> int:
        """Return 0: the start is the end."""
        return 0

    def phase(self, number: int) -> str:
        """Return the name of the way."""
        return "prior"

    def start(self, like: Tensor, noise: Noise) -> State:
        """Return the draws."""
        z = noise.fork("anchors").normals(like, range(self.draws))
        return State(0, {"z": z}, *_not_yet_known(z))

    def advance(self, state: State, evidence: LogEvidence, noise: Noise) -> State:
        """Return the state itself."""
        return state

    def thetas(self, state: State, noise: Noise) -> Tensor:
        """Return the draws."""
        return state.tensors["z"]


@dataclass(frozen=True)
class Anchored(ThetaInference):
    r"""Maximise $\log p(D|z_k) - \frac12 |z_k - a_k|^2$ for K anchors $a_k \sim N(0, I)$, draws of the prior.

    Cheap, and close to the posterior where the data leave directions of theta open: there each draw stays at its anchor
    (Pearce et al. 2020, "Uncertainty in Neural Networks: Approximately Bayesian Ensembling").
    """

    draws: int = 16
    steps: int = 300
    lr: float = 0.03

    @property
    def rounds(self) -> int:
        """Return the number of rounds of ``STEPS_IN_ROUND`` steps."""
        return math.ceil(self.steps / STEPS_IN_ROUND)

    def phase(self, number: int) -> str:
        """Return the name of the only phase."""
        return "anchored"

    def start(self, like: Tensor, noise: Noise) -> State:
        """Return draws at their anchors."""
        anchors = noise.fork("anchors").normals(like, range(self.draws))
        return State(0, _with_moments(z=anchors.clone()) | {"anchors": anchors}, *_not_yet_known(anchors))

    def advance(self, state: State, evidence: LogEvidence, noise: Noise) -> State:
        """Return the state after some steps of Adam."""
        tensors = state.tensors
        for step in _steps_of(state.rounds, self.steps):
            offset = tensors["z"] - tensors["anchors"]
            value, gradient = with_gradient(evidence, tensors["z"])
            moved = _adam(tensors, "z", _clipped(gradient) - offset, step, _cosine(self.lr, step, self.steps))
            tensors = {**tensors, **moved}
        return State(state.rounds + 1, tensors, value, 0.5 * offset.square().sum(1))

    def thetas(self, state: State, noise: Noise) -> Tensor:
        """Return the maxima."""
        return state.tensors["z"]


@dataclass(frozen=True)
class HMC(ThetaInference):
    r"""Hamiltonian Monte Carlo: K chains that start at anchored maxima, and the last state of each.

    A trajectory is ``leapfrog`` steps of Hamiltonian dynamics with a new momentum $p \sim N(0, I)$, accepted with
    probability $\min(1, e^{-\Delta H})$, $H = -\log p(z|D) + \frac12|p|^2$ (Neal 2011). Every chain has a step size of
    its own, adapted during the first trajectories only. A proposal that is not finite is rejected.

    Args:
        draws: Number of chains, K.
        trajectories: Trajectories of each chain.
        leapfrog: Steps of a trajectory.
        anchored_steps: Steps of the search for the maxima at which the chains start.
        lr: Learning rate of that search.
    """

    draws: int = 32
    trajectories: int = 30
    leapfrog: int = 20
    anchored_steps: int = 300
    lr: float = 0.03

    @property
    def _anchored(self) -> Anchored:
        return Anchored(self.draws, self.anchored_steps, self.lr)

    @property
    def rounds(self) -> int:
        """Return the rounds of the anchored start, and one for each trajectory."""
        return self._anchored.rounds + self.trajectories

    def phase(self, number: int) -> str:
        """Return ``"anchored"`` or ``"hmc"``."""
        return "anchored" if number < self._anchored.rounds else "hmc"

    def start(self, like: Tensor, noise: Noise) -> State:
        """Return the start of the anchored phase."""
        return self._anchored.start(like, noise)

    def advance(self, state: State, evidence: LogEvidence, noise: Noise) -> State:
        """Return the state after a round of the anchored start, or after a trajectory."""
        number = state.rounds - self._anchored.rounds
        if number < 0:
            return self._anchored.advance(state, evidence, noise)
        z = state.tensors["z"]
        none = z.new_zeros(len(z))
        log_step = state.tensors.get("log_step", none + math.log(FIRST_STEP_SIZE))
        z, value, accepted = self._trajectory(z, log_step.exp(), evidence, noise.fork("trajectories").at(step=number))
        if number < ADAPTING * self.trajectories:
            log_step = log_step + ADAPTATION_RATE * (accepted - ACCEPTANCE)
        mean = state.tensors.get("accepted", none)
        kept = {"z": z, "log_step": log_step, "accepted": mean + (accepted - mean) / (number + 1)}
        return State(state.rounds + 1, kept, value, 0.5 * z.square().sum(1))

    def _trajectory(
        self, z: Tensor, step_size: Tensor, evidence: LogEvidence, noise: Noise
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the chains after one trajectory, their log evidence, and the probabilities of acceptance."""
        generator = noise.generator(z.device)
        low, high = STEP_SIZE_RANGE
        factor, uniform = torch.rand(2, len(z), dtype=z.dtype, device=z.device, generator=generator)
        step = (step_size * (low + (high - low) * factor))[:, None]
        momentum = noise.normal(z)

        def slope(at: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = with_gradient(evidence, at)
            return value, gradient - at

        at, (value, gradient) = z, slope(z)
        before, energy = value, _energy(value, z, momentum)
        for _ in range(self.leapfrog):
            momentum = momentum + 0.5 * step * gradient
            at = at + step * momentum
            value, gradient = slope(at)
            momentum = momentum + 0.5 * step * gradient
        # A trajectory that leaves the finite numbers is rejected, as Metropolis asks; ``acceptance_`` shows how many.
        probability = (energy - _energy(value, at, momentum)).clamp(max=0.0).exp().nan_to_num(0.0)
        taken = uniform < probability
        return torch.where(taken[:, None], at, z), torch.where(taken, value, before), probability

    def thetas(self, state: State, noise: Noise) -> Tensor:
        """Return the last state of every chain."""
        return state.tensors["z"]


def _energy(value: Tensor, z: Tensor, momentum: Tensor) -> Tensor:
    return -value + 0.5 * (z.square() + momentum.square()).sum(1)


@dataclass(frozen=True)
class Variational(ThetaInference):
    r"""Maximise the bound $E_q[\log p(D|z)] - KL(q(z) \| N(0, I))$ over $q(z) = \prod_j N(m_j, s_j^2)$.

    The only way here that bounds the evidence, and the one that fits least: a factorised q cannot follow the strong
    correlations of a network's weights, so it stays wide and forecasts change little with data.

    Args:
        draws: Draws of q that forecasts are mixtures of.
        steps: Steps of Adam.
        samples: Draws of q in a step, pairs of opposite ones.
        lr: Learning rate of Adam.
    """

    draws: int = 32
    steps: int = 1000
    samples: int = 8
    """Draws of q in a step, pairs of opposite ones."""
    lr: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples % 2:
            raise ValueError(f"samples must be an even number, because they are pairs, got {self.samples}")

    @property
    def rounds(self) -> int:
        """Return the number of rounds of ``STEPS_IN_ROUND`` steps."""
        return math.ceil(self.steps / STEPS_IN_ROUND)

    def phase(self, number: int) -> str:
        """Return the name of the only phase."""
        return "variational"

    def start(self, like: Tensor, noise: Noise) -> State:
        """Return a q around a draw of the prior, which breaks the symmetry between a network's units."""
        mean = noise.fork("mean").normal(like)[None]
        log_std = torch.full_like(mean, math.log(FIRST_STD))
        return State(0, _with_moments(mean=mean, log_std=log_std), *_not_yet_known(mean.expand(self.samples, -1)))

    def advance(self, state: State, evidence: LogEvidence, noise: Noise) -> State:
        """Return the state after some steps of Adam with the reparameterised gradient."""
        tensors = state.tensors
        for step in _steps_of(state.rounds, self.steps):
            lr, std = _cosine(self.lr, step, self.steps), tensors["log_std"].exp()
            half = noise.fork("q").at(step=step).normals(std[0], range(self.samples // 2))
            eps = torch.cat([half, -half])
            value, gradient = with_gradient(evidence, tensors["mean"] + std * eps)
            by_mean = gradient.mean(0, keepdim=True) - tensors["mean"]
            by_log_std = (gradient * eps).mean(0, keepdim=True) * std + 1 - std.square()
            kl = self.kl(tensors)
            moved = _adam(tensors, "mean", by_mean, step, lr) | _adam(tensors, "log_std", by_log_std, step, lr)
            tensors = {**tensors, **moved}
        return State(state.rounds + 1, tensors, value, kl.expand(len(value)))

    @staticmethod
    def kl(tensors: Mapping[str, Tensor]) -> Tensor:
        r"""Return $KL(q \| N(0, I)) = \sum_j \frac12 (m_j^2 + s_j^2 - 1) - \log s_j$."""
        mean, log_std = tensors["mean"], tensors["log_std"]
        return (0.5 * (mean.square() + (2 * log_std).exp() - 1) - log_std).sum()

    def thetas(self, state: State, noise: Noise) -> Tensor:
        """Return draws of q."""
        mean, std = state.tensors["mean"], state.tensors["log_std"].exp()
        return mean + std * noise.fork("draws").normals(mean[0], range(self.draws))


THETA = Registry("theta", {"hmc": HMC, "anchored": Anchored, "variational": Variational, "prior": FromPrior})
"""Ways to infer theta by name."""
