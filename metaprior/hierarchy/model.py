"""The hierarchical model (network, likelihood, hyper-prior), and the state of its inference that a commit carries."""

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from metaprior.checks import check_counts, check_positive
from metaprior.errors import CheckpointError
from metaprior.hierarchy.hierarchical_posterior import HierarchicalPosterior
from metaprior.hierarchy.hyper_posterior import HyperPosterior, PosteriorSums
from metaprior.hierarchy.task_data import CheckedTasks
from metaprior.history import EpochRecord
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.problem import Problem
from metaprior.network import BayesianNetwork
from metaprior.priors import GaussianHyperprior
from metaprior.scaling import TargetScale
from metaprior.stack_descent import DescentPlan, FreeEnergy, SharedParameters, checked_theta
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution, inverse_softplus

FIRST_TASKS = 20
"""Tasks whose targets give the noise scale to start from."""
NARROW_START = 0.5
"""Scales of a new posterior, as a fraction of the learned prior's."""

Hyperprior = GaussianHyperprior | WeightDistribution
"""p(theta); or a fixed theta."""


@dataclass(frozen=True)
class HierarchyTerms:
    """The objective's terms in nats, summed over all tasks: ``total`` is minimised, ``elbo`` bounds log p(D)."""

    nll: float
    """Sum of E_q[-log p(D_i | phi_i)]."""
    kl: float
    """Sum of E_q(theta) KL(q(phi_i) || p(phi_i | theta))."""
    hyper_kl: float
    """KL(q(theta) || p(theta))."""

    @property
    def total(self) -> float:
        """Return the objective, which is minimised."""
        return self.nll + self.kl + self.hyper_kl

    @property
    def elbo(self) -> float:
        """Return the lower bound on the log evidence of all data."""
        return -self.total


@dataclass(frozen=True)
class FitPlan:
    """The settings of a fit; ``HierarchicalVI.fit`` explains each."""

    epochs: int
    local_steps: int
    task_batch: int
    batch_size: int
    lr: float
    samples: int
    kl_warmup: float

    def __post_init__(self) -> None:
        check_counts(epochs=self.epochs, local_steps=self.local_steps, task_batch=self.task_batch)
        self.local()  # checks the rest

    def local(self) -> DescentPlan:
        """Return the settings of all steps that one posterior takes."""
        return DescentPlan(self.epochs * self.local_steps, self.batch_size, self.lr, self.samples, self.kl_warmup)

    def refuse_other(self, given: "FitPlan") -> None:
        """Raise ``CheckpointError`` unless a stopped fit is resumed with the settings it was started with."""
        before, now = asdict(self), asdict(given)
        if other := [f"{name} (was {before[name]}, now {now[name]})" for name in now if before[name] != now[name]]:
            raise CheckpointError(f"a fit is resumed with the settings it was started with, but {'; '.join(other)}")


@dataclass
class State:
    """Psi, the sums it is fitted to, the shared parameters, and the position in the present fit."""

    psi: HyperPosterior
    sums: PosteriorSums
    shared: SharedParameters
    target_scale: TargetScale
    plan: FitPlan | None = None
    """Settings of the present fit, or of the last one; None before the first."""
    rounds: int = 0
    """Rounds of this fit that are finished."""
    finished: bool = True
    scalar_targets: bool = False
    history: list[EpochRecord] = field(default_factory=list)
    start: Tensor | None = None
    """Means that new posteriors start from, where theta is fixed."""


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
        check_positive("relative_sigma", self.relative_sigma)
        if isinstance(self.hyperprior, WeightDistribution):
            object.__setattr__(self, "hyperprior", checked_theta(self.hyperprior, self.network, "the fixed theta"))
        elif not isinstance(self.hyperprior, GaussianHyperprior):
            wanted = "a GaussianHyperprior or a theta (WeightDistribution)"
            raise TypeError(f"hyperprior must be {wanted}, got {self.hyperprior!r}")
        object.__setattr__(self, "standardize", bool(self.standardize))

    @property
    def settings(self) -> dict[str, Any]:
        """Return the arguments of ``HierarchicalVI`` that are stored as they are."""
        return {name: getattr(self, name) for name in ("hyperprior", "relative_sigma", "standardize", "seed")}

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
        psi = HyperPosterior.around(self.hyperprior, 0.0) if fixed else HyperPosterior.around(start)  # type: ignore[arg-type]
        sums, first = PosteriorSums.empty(start.mu), start.mu if fixed else None
        return State(psi, sums, shared, scale, scalar_targets=tasks.scalar_targets, start=first)

    def energy(self, state: State, data: Examples | None = None) -> FreeEnergy:
        """Return the free energy in the network's units; ``data`` are like those that will be stacked."""
        likelihood = self.likelihood.in_units_of(state.target_scale)
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

    def posterior(self, state: State, q: WeightDistribution, scalar: bool | None = None) -> HierarchicalPosterior:
        """Return a task's q(phi) as something that predicts; ``scalar``: its targets have no channel axis."""
        return HierarchicalPosterior(
            self.network,
            self.likelihood.in_units_of(state.target_scale),
            q.replace(plain=state.shared.detached()),
            target_scale=state.target_scale,
            scalar_targets=state.scalar_targets if scalar is None else scalar,
            hyper=state.psi,
        )
