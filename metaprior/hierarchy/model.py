"""What an inference is made of: network, likelihood, hyper-prior; how its state begins, and how it is saved."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metaprior import checkpoint, models, saved_posterior
from metaprior.errors import CheckpointError
from metaprior.hierarchy.hyper_posterior import HyperPosterior, PosteriorSums
from metaprior.hierarchy.local_descent import LocalDescent, SharedParameters
from metaprior.hierarchy.state import State, restored
from metaprior.hierarchy.task_data import CheckedTasks
from metaprior.hierarchy.two_levels import HierarchicalPosterior
from metaprior.hyperprior import GaussianHyperprior
from metaprior.likelihoods import Likelihood
from metaprior.network import BayesianNetwork, evaluation_mode
from metaprior.noise import Noise
from metaprior.posterior import sample_groups
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution, inverse_softplus

KIND = "HierarchicalVI"
KNOWN_THETA = "known"
FIRST_TASKS = 20
"""Tasks whose targets give the noise scale to start from."""
NARROW_START = 0.5
"""Scales of a new posterior, as a fraction of the learned prior's."""
NOT_OF_THE_NETWORK = ("psi.", "sums.", "shared.", "theta.")
"""How the names of tensors begin that belong to the state and to a theta that was given."""

Hyperprior = GaussianHyperprior | WeightDistribution
"""p(theta); or a theta that is known."""


class Saved(NamedTuple):
    """A store's last commit, apart from the posteriors."""

    state: State
    tasks: list[dict[str, Any]]


@dataclass(frozen=True)
class HierarchicalModel:
    """Everything that is chosen before there are tasks."""

    network: BayesianNetwork
    likelihood: Likelihood
    hyperprior: Hyperprior
    relative_sigma: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.relative_sigma < float("inf"):
            raise ValueError(f"relative_sigma has to be a positive number, got {self.relative_sigma}")
        object.__setattr__(self, "hyperprior", _checked(self.hyperprior, self.network))

    def first_state(self, tasks: CheckedTasks) -> State:
        """Before any task was worked on."""
        start = self.network.initial(self.relative_sigma)
        targets = torch.cat([tasks.data_of(entry).y for entry in tasks.entries[:FIRST_TASKS]])
        shared = SharedParameters({**start.plain, **self.likelihood.initial_parameters(targets)})
        sums, scalar = PosteriorSums.nothing(start.mu), tasks.scalar_targets
        if isinstance(self.hyperprior, WeightDistribution):
            known = HyperPosterior.known(self.hyperprior)
            return State(known, sums, shared, scalar_targets=scalar, start=start.mu)
        return State(HyperPosterior.around(start), sums, shared, scalar_targets=scalar)

    def start(self, state: State) -> WeightDistribution:
        """Where a new posterior starts: at the prior's centre; where theta was given, at the module's first weights.

        Once the prior was learned, narrower than it: as wide as the prior, weights are so noisy that the means find
        the data late, while scales that are too small grow back in a few hundred steps.
        """
        if state.start is not None:
            return WeightDistribution(state.start, self.network.relative_rho(state.start, self.relative_sigma))
        centre = state.psi.centre()
        if not state.history:
            return centre
        return centre.replace(rho=inverse_softplus(NARROW_START * centre.sigma))

    def posterior(self, state: State, q: WeightDistribution) -> HierarchicalPosterior:
        """A task's lambda as something that predicts."""
        weights = q.replace(plain=state.shared.detached())
        scale, scalar = TargetScale.identity(q.mu), state.scalar_targets
        return HierarchicalPosterior(self.network, self.likelihood, weights, scale, None, scalar, hyper=state.psi)

    def nll(self, q: WeightDistribution, data: Examples, noise: Noise, samples: int) -> float:
        """E_q[-log p(D | phi)] from all data of a task."""
        descent, total = LocalDescent(self.network, self.likelihood, noise), 0.0
        numbers = len(data.x) * self.network.numbers_per_observation(q, data.x)
        with torch.no_grad(), evaluation_mode(self.network.module):
            for group in sample_groups(samples, max(len(q.mu), numbers)):
                phis = q.sample(noise.normals(q.mu, group)).unsqueeze(0)
                pair = Examples(data.x.unsqueeze(0), data.y.unsqueeze(0))
                total += float(descent.nll(phis, pair, q.plain)) * len(group) / samples
        return total

    def content(self, state: State) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and description of a commit."""
        prior = self.posterior(state, state.psi.centre())
        tensors, description = saved_posterior.content(prior, self.likelihood)
        if isinstance(self.hyperprior, WeightDistribution):
            tensors |= {"theta.mu": self.hyperprior.mu, "theta.rho": self.hyperprior.rho}
        description |= {**state.description(), "settings": self._settings()}
        return {**tensors, **state.tensors()}, description

    def saved_in(self, folder: str | os.PathLike[str]) -> Saved:
        """The last commit; what does not belong to this network and these settings is refused."""
        tensors, description = checkpoint.read(folder, KIND)
        with checkpoint.readable(folder):
            posterior, likelihood = saved_posterior.rebuild(_of_network(tensors), description, self.network.module)
            self._refuse_other_settings(likelihood, description, tensors)
            self.network.constants = posterior.network.constants
            here = {name: value.to(self.network.device) for name, value in tensors.items()}
            state = restored(here, description, posterior.weights.plain, posterior.scalar_targets)
            return Saved(state, description["tasks"])

    def _settings(self) -> dict[str, Any]:
        known = isinstance(self.hyperprior, WeightDistribution)
        hyperprior = KNOWN_THETA if known else asdict(self.hyperprior)
        return {"hyperprior": hyperprior, "relative_sigma": self.relative_sigma, "seed": self.seed}

    def _refuse_other_settings(
        self, likelihood: Likelihood, description: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        saved = {**description["settings"], "likelihood": likelihood, "stochastic": description["stochastic"]}
        given = {**self._settings(), "likelihood": self.likelihood, "stochastic": self.network.stochastic}
        saved["network"], given["network"] = description["model"], models.describe(self.network.module)
        other = [
            f"{name} (saved {saved[name]}, given {value})" for name, value in given.items() if value != saved[name]
        ]
        if not other and isinstance(self.hyperprior, WeightDistribution):
            pairs = ((tensors["theta.mu"], self.hyperprior.mu), (tensors["theta.rho"], self.hyperprior.rho))
            other = [] if all(torch.equal(a, b.cpu()) for a, b in pairs) else ["the known theta has other numbers"]
        if other:
            raise CheckpointError(f"it was made with other settings: {'; '.join(other)}")


def model_in(folder: str | os.PathLike[str], module: nn.Module | None) -> HierarchicalModel:
    """The model of a store. Networks of this package are rebuilt; for any other, a module has to be given."""
    tensors, description = checkpoint.read(folder, KIND)
    with checkpoint.readable(folder):
        posterior, likelihood = saved_posterior.rebuild(_of_network(tensors), description, module)
        settings = description["settings"]
        hyperprior: Hyperprior
        if settings["hyperprior"] == KNOWN_THETA:
            hyperprior = WeightDistribution(tensors["theta.mu"], tensors["theta.rho"])
        else:
            hyperprior = GaussianHyperprior(**settings["hyperprior"])
        return HierarchicalModel(
            posterior.network, likelihood, hyperprior, settings["relative_sigma"], settings["seed"]
        )


def _of_network(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if not name.startswith(NOT_OF_THE_NETWORK)}


def _checked(hyperprior: Hyperprior, network: BayesianNetwork) -> Hyperprior:
    if isinstance(hyperprior, GaussianHyperprior):
        return hyperprior
    if not isinstance(hyperprior, WeightDistribution):
        raise TypeError(f"hyperprior is a GaussianHyperprior, or a theta (WeightDistribution), got {hyperprior!r}")
    if hyperprior.mu.shape != (network.layout.dimension,):
        raise ValueError(
            f"the known theta has {tuple(hyperprior.mu.shape)} means, the network {network.layout.dimension} weights"
        )
    mu, rho = (value.detach().to(network.device, network.dtype) for value in (hyperprior.mu, hyperprior.rho))
    return WeightDistribution(mu, rho)
