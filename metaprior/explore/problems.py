"""The one-dimensional problems of the page, and how a learner of each way to adapt is trained on them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from metaprior.adaptation import Adaptation
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.context.settings import Context
from metaprior.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from metaprior.metagrad.problem import Descent
from metaprior.methods import MetaLearner
from metaprior.models import MLP
from metaprior.tasks.task import Tasks
from metaprior.tasks.waves import AMPLITUDES, INPUTS, INTERCEPTS, PHASES, SLOPES, SineOrLine, Sinusoids

PRIORS = Path(__file__).parent / "priors"
"""The learners of the page, saved by ``metaprior.explore.training``: a folder for each problem and way."""
SINE = {"kind": "sine", "amplitude": AMPLITUDES, "phase": PHASES}
LINE = {"kind": "line", "slope": SLOPES, "intercept": INTERCEPTS}


@dataclass(frozen=True)
class Problem:
    """Curves to learn.

    Args:
        title: What the page calls it.
        about: A sentence about its tasks.
        tasks: Returns the source of tasks with so many support and query examples, a noise and a seed.
        noise: Standard deviation of the noise of y.
        families: What examples are drawn from, in equal shares: the kind of a curve and the ranges of its parameters.
        reach: The page draws y from -reach to reach.
        descent_noise: Noise of y that descent is told. A learned one would stand for everything that is not known, the
            spread of the weights would vanish, and bands would have the same width everywhere.
    """

    title: str
    about: str
    tasks: Callable[[int, int, float, int], Tasks]
    noise: float
    families: tuple[Mapping[str, Any], ...]
    reach: float
    descent_noise: float
    inputs: tuple[float, float] = INPUTS


PROBLEMS = {
    "sinusoids": Problem(
        "Sine waves",
        "Every task is a sine wave of unknown height (0.1 to 5) and phase.",
        Sinusoids,
        0.1,
        (SINE,),
        reach=6.0,
        descent_noise=0.3,
    ),
    "sine_or_line": Problem(
        "Sine or line",
        "Half of the tasks are sine waves, half are straight lines: a few points can leave it open which of the two.",
        SineOrLine,
        0.3,
        (SINE, LINE),
        reach=12.0,
        descent_noise=1.0,
    ),
}


@dataclass(frozen=True)
class Way:
    """A way to adapt, with the network and the training that suit it.

    Args:
        title: What the page calls it.
        module: Makes the network.
        likelihood: Returns that of a problem's targets.
        adaptation: The way.
        steps: Meta-steps of the training.
        training: Settings of ``MetaTraining``.
        learner: Further arguments of ``MetaLearner``.
        alike: Whether the tasks of a meta-batch have support sets of one size, which descent needs to be fast.
    """

    title: str
    module: Callable[[], nn.Module]
    likelihood: Callable[[Problem], Likelihood]
    adaptation: Adaptation
    steps: int
    training: Mapping[str, Any]
    learner: Mapping[str, Any]
    alike: bool = False

    def new_learner(self, problem: Problem) -> MetaLearner:
        """Return the learner before its training; the same call returns the same weights."""
        torch.manual_seed(0)
        return MetaLearner(self.module(), self.likelihood(problem), adaptation=self.adaptation, **self.learner)


WAYS = {
    "closed_form": Way(
        "Closed form",
        lambda: MLP(1, [40, 40], 1, activation="tanh"),
        lambda problem: Gaussian(),
        ClosedForm(components=4),
        steps=3000,
        training={"meta_batch": 16, "lr": 5e-3, "scales_first": 0.0},
        learner={},
    ),
    "descent": Way(
        "Descent",
        lambda: MLP(1, [40, 40], 1, activation="tanh"),
        lambda problem: Gaussian(noise=problem.descent_noise),
        Descent(steps=5, lr=0.01, learn_lr="per_tensor", kl_weight=1e-3),
        steps=3000,
        training={"meta_batch": 10, "lr": 5e-3, "search_step_size": False},
        learner={"objective": "predictive", "outer_samples": 8},
        alike=True,
    ),
    "context": Way(
        "Context",
        lambda: MLP(1, [40, 40], 2, activation="silu"),
        lambda problem: HeteroscedasticGaussian(min_scale=0.01),
        Context(size=48),
        steps=12000,
        training={"meta_batch": 16, "lr": 2e-3, "scales_first": 0.0},
        learner={},
    ),
}


def load_learner(problem: str, way: str, folder: Path = PRIORS) -> MetaLearner:
    """Return the trained learner of a problem and a way."""
    return MetaLearner.load(folder / problem / way)
