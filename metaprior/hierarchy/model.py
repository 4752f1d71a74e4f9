"""The hierarchical model: network, likelihood and hyper-prior, and what follows from them for one task."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from metaprior.hierarchy.hierarchical_posterior import HierarchicalPosterior
from metaprior.hierarchy.hyper_posterior import HyperPosterior, PosteriorSums
from metaprior.hierarchy.state import State
from metaprior.hierarchy.task_data import CheckedTasks
from metaprior.hyperprior import GaussianHyperprior
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.problem import Problem
from metaprior.network import BayesianNetwork, evaluation_mode
from metaprior.noise import Noise
from metaprior.scaling import TargetScale
from metaprior.stack_descent import FreeEnergy, SharedParameters
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution, inverse_softplus

FIRST_TASKS = 20
"""Tasks whose targets give the noise scale to start from."""
NARROW_START = 0.5
"""Scales of a new posterior, as a fraction of the learned prior's."""

Hyperprior = GaussianHyperprior | WeightDistribution
"""p(theta); or a fixed theta."""


@dataclass(frozen=True)
class HierarchicalModel:
    """Everything that is chosen before there are tasks."""

    network: BayesianNetwork
    likelihood: Likelihood
    hyperprior: Hyperprior
    relative_sigma: float
    standardize: bool
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.relative_sigma < float("inf"):
            raise ValueError(f"relative_sigma must be a positive number, got {self.relative_sigma}")
        object.__setattr__(self, "hyperprior", _checked(self.hyperprior, self.network))
        object.__setattr__(self, "standardize", bool(self.standardize))

    @cached_property
    def problem(self) -> Problem:
        """Return the checks of network, likelihood and data that all methods with tasks share."""
        return Problem(self.network, self.likelihood)

    def first_state(self, tasks: CheckedTasks) -> State:
        """Return the state before any task was worked on; the target scale is that of all ``tasks``."""
        start = self.network.initial(self.relative_sigma)
        standardised = self.standardize and self.likelihood.continuous
        scale = tasks.target_scale() if standardised else TargetScale.identity(start.mu)
        targets = torch.cat([tasks.data_of(entry, scale).y for entry in tasks.entries[:FIRST_TASKS]])
        shared = SharedParameters({**start.plain, **self.likelihood.initial_parameters(targets)})
        fixed = isinstance(self.hyperprior, WeightDistribution)
        psi = HyperPosterior.fixed(self.hyperprior) if fixed else HyperPosterior.around(start)  # type: ignore[arg-type]
        sums, first = PosteriorSums.empty(start.mu), start.mu if fixed else None
        return State(psi, sums, shared, scale, scalar_targets=tasks.scalar_targets, start=first)

    def energy(self, state: State, data: Examples | None = None) -> FreeEnergy:
        """Return the free energy in the network's units; ``data`` are like those that will be stacked."""
        likelihood = self.likelihood.in_units_of(state.target_scale.scale)
        if data is None:
            return FreeEnergy(self.network, likelihood)
        weights = WeightDistribution(state.psi.mean, state.psi.mean, state.shared.detached())
        numbers = self.network.numbers_per_observation(weights, data.x)
        return FreeEnergy(self.network, likelihood, numbers_per_observation=numbers)

    def start(self, state: State) -> WeightDistribution:
        """Return where a new posterior starts: the prior's centre or, for a fixed theta, the module's first weights.

        Once the prior was learned, the start is narrower than the prior. Weights as wide as the prior are so noisy that
        the means find the data late, while scales that are too small grow back in a few hundred steps.
        """
        if state.start is not None:
            return WeightDistribution(state.start, self.network.relative_rho(state.start, self.relative_sigma))
        centre = state.psi.centre()
        if not state.history:
            return centre
        return centre.replace(rho=inverse_softplus(NARROW_START * centre.sigma))

    def posterior(self, state: State, mu: Tensor, rho: Tensor, scalar: bool | None = None) -> HierarchicalPosterior:
        """Return a task's q(phi) as something that predicts; ``scalar``: its targets have no channel axis."""
        return HierarchicalPosterior(
            self.network,
            self.likelihood.in_units_of(state.target_scale.scale),
            WeightDistribution(mu, rho, state.shared.detached()),
            state.target_scale,
            None,
            state.scalar_targets if scalar is None else scalar,
            hyper=state.psi,
        )

    def nll(self, state: State, q: WeightDistribution, data: Examples, noise: Noise, samples: int) -> float:
        """Return E_q[-log p(D | phi)] of all data of a task, in the network's units."""
        energy, total = self.energy(state, data), 0.0
        with torch.no_grad(), evaluation_mode(self.network.module):
            for group in energy.sample_groups(samples, len(q.mu), len(data.x)):
                phis = q.sample(noise.normals(q.mu, group)).unsqueeze(0)
                pair = Examples(data.x.unsqueeze(0), data.y.unsqueeze(0))
                total += float(energy.nll(phis, pair, q.plain)) * len(group) / samples
        return total


def _checked(hyperprior: Hyperprior, network: BayesianNetwork) -> Hyperprior:
    if isinstance(hyperprior, GaussianHyperprior):
        return hyperprior
    if not isinstance(hyperprior, WeightDistribution):
        raise TypeError(f"hyperprior must be a GaussianHyperprior or a theta (WeightDistribution), got {hyperprior!r}")
    if hyperprior.mu.shape != (network.layout.dimension,):
        raise ValueError(
            f"the fixed theta has {tuple(hyperprior.mu.shape)} means, the network {network.layout.dimension} weights"
        )
    mu, rho = (value.detach().to(network.device, network.dtype) for value in (hyperprior.mu, hyperprior.rho))
    return WeightDistribution(mu, rho)
