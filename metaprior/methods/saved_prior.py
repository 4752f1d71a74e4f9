"""A meta-learner's prior as the content of a checkpoint, and back."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from metaprior import adaptation as adaptations
from metaprior import checkpoint, history
from metaprior.adaptation import Adaptation
from metaprior.adaptation.task_model import Binding
from metaprior.calibration import CalibrationByShots
from metaprior.likelihoods import Likelihood
from metaprior.methods.choice import AdaptationChoice
from metaprior.network import BayesianNetwork
from metaprior.posterior import Learned, rebuild, saved_content
from metaprior.priors import NormalGammaHyperprior
from metaprior.weights import PLAIN

if TYPE_CHECKING:
    from metaprior.methods.meta_learner import MetaLearner

KIND = "MetaLearner"
SETTINGS = ("objective", "outer_samples", "relative_sigma", "standardize", "memory", "examples_per_shot", "seed")
L = TypeVar("L", bound="MetaLearner")


def write(learner: "MetaLearner", learned: Learned, folder: str | os.PathLike[str]) -> None:
    """Write what a learner has learned to a folder; an earlier prior there is replaced only by a complete one."""
    tensors, description = saved_content(learned)
    description["adaptation"] = adaptations.describe(learner.adaptation_)
    description["hyperprior"] = None if learner.hyperprior is None else asdict(learner.hyperprior)
    description["settings"] = {name: getattr(learner, name) for name in SETTINGS}
    description["calibration"] = learner.calibration_ and learner.calibration_.as_json()
    description["choice"] = learner.choice_ and learner.choice_.as_json()
    description["history"] = history.described(getattr(learner, "history_", []))
    checkpoint.write(folder, KIND, tensors, description)


def read(
    cls: type[L],
    folder: str | os.PathLike[str],
    module: nn.Module | None,
    adaptation: Adaptation | None,
    device: str | torch.device | None = None,
) -> tuple[L, Learned]:
    """Return a learner with the saved arguments, and what it has learned."""
    tensors, description = checkpoint.read(folder, KIND)
    with checkpoint.readable(folder):
        if "inner.log_lr" in tensors:  # 0.1.0
            tensors["log_lr"] = tensors.pop("inner.log_lr")
        adaptation = adaptation or _adaptation(description)

        def plain_shapes(network: BayesianNetwork, likelihood: Likelihood) -> dict[str, Sequence[int]]:
            shapes = adaptations.bind(adaptation, Binding(network, likelihood, relative_sigma=1.0)).structure
            return {name.removeprefix(PLAIN): shape for name, shape in shapes.items() if name.startswith(PLAIN)}

        learned = rebuild(tensors, description, module, plain_shapes, device=device)
        hyperprior = description["hyperprior"]
        loaded = cls(
            learned.network.module,
            learned.likelihood,
            adaptation=adaptation,
            hyperprior=hyperprior and NormalGammaHyperprior(**hyperprior),
            stochastic=description["stochastic"],
            device=device,
            **{"standardize": False, **description["settings"]},  # 0.1.0 did not standardise
        )
        loaded.network, loaded.target_scale_, loaded.theta_ = learned.network, learned.target_scale, learned.weights
        loaded.task_model().check_theta(loaded.theta_)
        loaded.history_ = history.restored(description.get("history", []))
        if saved := description.get("calibration"):
            loaded.calibration_ = CalibrationByShots.from_json(saved)
        if saved := description.get("choice"):
            loaded.choice_ = AdaptationChoice.from_json(saved)
    return loaded, learned


def _adaptation(description: Mapping[str, Any]) -> Adaptation:
    """Return the adaptation of a saved prior; before 0.3.0 there was one kind, called the inner loop."""
    saved = description.get("adaptation") or {"kind": "descent", **description["inner"]}
    return adaptations.restore(saved)  # type: ignore[no-any-return]
