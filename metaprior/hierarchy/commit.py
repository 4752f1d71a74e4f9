"""A commit of the store: model and state as tensors and JSON, and back."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from metaprior import checkpoint, history, models
from metaprior.errors import CheckpointError
from metaprior.hierarchy.hyper_posterior import HyperPosterior, PosteriorSums
from metaprior.hierarchy.model import FitPlan, HierarchicalModel, State
from metaprior.posterior import Learned, rebuild, saved_content
from metaprior.priors import GaussianHyperprior
from metaprior.stack_descent import SharedParameters
from metaprior.weights import WeightDistribution

KIND = "HierarchicalVI"
FIXED_THETA = "known"
"""What the file says in place of a hyper-prior."""
OF_THE_STATE = ("psi.", "sums.", "shared.", "theta.")
"""Prefixes of the tensors that belong to the state or to a fixed theta, and not to the network."""


def content(model: HierarchicalModel, state: State) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the description of a commit."""
    tensors, description = saved_content(Learned.of(model.posterior(state, state.psi.centre()), model.likelihood))
    tensors |= {f"psi.{name}": value for name, value in state.psi._asdict().items()}
    tensors |= {"sums.first": state.sums.first, "sums.second": state.sums.second}
    tensors |= {f"shared.{name}": value for name, value in state.shared.moments.items()}
    if isinstance(model.hyperprior, WeightDistribution):
        tensors |= {"theta.mu": model.hyperprior.mu, "theta.rho": model.hyperprior.rho}
    if state.start is not None:
        tensors["theta.start"] = state.start
    description["fit"] = {
        "plan": None if state.plan is None else asdict(state.plan),
        "rounds": state.rounds,
        "finished": state.finished,
        "shared_steps": state.shared.steps,
        "tasks": state.sums.tasks,
    }
    description |= {"history": history.described(state.history), "settings": _settings(model)}
    return tensors, description


def read(
    folder: str | os.PathLike[str], module: nn.Module | None = None
) -> tuple[HierarchicalModel, State, list[dict[str, Any]]]:
    """Return model, state and tasks of the last commit.

    Networks of this package are rebuilt; for any other, ``module`` is needed.
    """
    tensors, description = checkpoint.read(folder, KIND)
    with checkpoint.readable(folder):
        of_network = {name: value for name, value in tensors.items() if not name.startswith(OF_THE_STATE)}
        learned = rebuild(of_network, description, module)
        if module is not None and models.describe(module) != description["model"]:
            saved, given = description["model"], models.describe(module)
            raise CheckpointError(f"it was made with other settings: network (saved {saved}, given {given})")
        settings = {"standardize": False, **description["settings"]}  # 0.1.0 did not standardise
        if settings["hyperprior"] == FIXED_THETA:
            settings["hyperprior"] = WeightDistribution(tensors["theta.mu"], tensors["theta.rho"])
        else:
            settings["hyperprior"] = GaussianHyperprior(**settings["hyperprior"])
        model = HierarchicalModel(learned.network, learned.likelihood, **settings)
        here = {name: value.to(learned.network.device) for name, value in tensors.items()}
        return model, _state(here, description, learned), description["tasks"]


def _state(tensors: Mapping[str, Tensor], description: Mapping[str, Any], learned: Learned) -> State:
    fit = description["fit"]
    moments = {name.removeprefix("shared."): value for name, value in tensors.items() if name.startswith("shared.")}
    observations = sum(int(task["observations"]) for task in description["tasks"])
    return State(
        HyperPosterior(*(tensors[f"psi.{name}"] for name in HyperPosterior._fields)),
        PosteriorSums(int(fit["tasks"]), tensors["sums.first"], tensors["sums.second"]),
        SharedParameters(learned.weights.plain, moments, int(fit["shared_steps"])),
        learned.target_scale,
        None if fit["plan"] is None else FitPlan(**fit["plan"]),
        int(fit["rounds"]),
        bool(fit["finished"]),
        learned.scalar_targets,
        history.restored(description["history"], max(1, observations)),
        tensors.get("theta.start"),
    )


def _settings(model: HierarchicalModel) -> dict[str, Any]:
    fixed = isinstance(model.hyperprior, WeightDistribution)
    return {**model.settings, "hyperprior": FIXED_THETA if fixed else asdict(model.hyperprior)}


def refuse_other_model(saved: HierarchicalModel, given: HierarchicalModel) -> None:
    """Raise ``CheckpointError`` with the settings that differ between a store's model and the given one."""
    before, now = (
        {**_settings(model), "likelihood": model.likelihood, "stochastic": model.network.stochastic}
        for model in (saved, given)
    )
    other = [f"{name} (saved {before[name]}, given {now[name]})" for name in now if before[name] != now[name]]
    thetas = [(one.mu, one.rho) for one in (saved.hyperprior, given.hyperprior) if isinstance(one, WeightDistribution)]
    if not other and thetas and not all(map(torch.equal, *thetas)):
        other = ["the fixed theta has other numbers"]
    if other:
        raise CheckpointError(f"it was made with other settings: {'; '.join(other)}")
