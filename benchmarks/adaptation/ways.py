"""The ways of adapting that are compared, each with the settings that did best on validation tasks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

import metaprior as mp
from benchmarks.common.budget import Fitted, fit_within
from metaprior.adaptation import Adaptation
from metaprior.likelihoods import Likelihood
from metaprior.tasks.task import Tasks, VariedSupport

DESCENT, MAML, TUNED = "descent (ABML)", "descent from a point (MAML)", "fine-tuned network"
CLOSED_FORM, CONTEXT = "closed form", "context"
CONTEXT_CLOSED_FORM, CONTEXT_DESCENT = "context + closed form", "context + descent"
PROCESS, EXACT = "neural process", "exact posterior"
HEAD = r"output\..*"


@dataclass(frozen=True)
class Recipe:
    """A learner and its training.

    Args:
        module: makes the network, with weights drawn from torch's generator.
        likelihood: as in ``MetaLearner``, and so are the next ones.
        adaptation: see there.
        training: numbers of steps are replaced by what fits into the time.
        objective: see there.
        outer_samples: see there.
        relative_sigma: see there.
        stochastic: see there.
        warm_share: share of the time for plain training on pooled tasks.
        alike: whether the tasks of a meta-batch have support sets of one size, which can be stacked.
    """

    module: Callable[[], nn.Module]
    likelihood: Likelihood
    adaptation: Adaptation
    training: mp.MetaTraining
    objective: str | None = None
    outer_samples: int = 1
    relative_sigma: float = 0.1
    stochastic: str | None = None
    warm_share: float = 0.0
    alike: bool = False

    def learner(self, number: int) -> mp.MetaLearner:
        """Return the learner of a training, whose number is the seed of its first weights and of its noise."""
        torch.manual_seed(number)
        return mp.MetaLearner(
            self.module(),
            self.likelihood,
            adaptation=self.adaptation,
            objective=self.objective,
            outer_samples=self.outer_samples,
            relative_sigma=self.relative_sigma,
            stochastic=self.stochastic,
            standardize=False,
            seed=number,
        )

    def trained(
        self, tasks: Tasks, sizes: tuple[int, ...], seconds: float, number: int
    ) -> tuple[mp.MetaLearner, Fitted]:
        """Return the learner after a training on support sets of varied sizes."""
        learner, together = self.learner(number), self.training.meta_batch if self.alike else 1
        varied = VariedSupport(tasks, sizes, together=together, seed=number)
        fitted = fit_within(learner, varied, self.training, seconds=seconds, warm_share=self.warm_share, progress=False)
        return learner, fitted


def curve_recipes(inputs: int, components: int) -> Mapping[str, Recipe]:
    """Return the recipes for targets of one number.

    A network with a context gives a scale for every x, because a curve is known near its examples and not far from
    them. Closed form and descent have one noise scale and distributions over weights; with a scale for every x descent
    needs several times the time that is given here until it adapts to anything.
    """

    def narrow() -> nn.Module:
        return mp.MLP(inputs, [40, 40], 1, activation="tanh")

    def wide(outputs: int) -> Callable[[], nn.Module]:
        return lambda: mp.MLP(inputs, [64, 64], outputs, activation="silu")

    steps = mp.Descent(steps=5, lr=0.01, learn_lr="per_tensor", kl_weight=1e-3)
    training = mp.MetaTraining(meta_batch=16, lr=5e-3, scales_first=0.0)
    slower = replace(training, lr=2e-3)
    descent = Recipe(
        narrow,
        mp.Gaussian(),
        steps,
        mp.MetaTraining(meta_batch=10, lr=5e-3, search_step_size=False),
        "predictive",
        outer_samples=4,
        alike=True,
    )
    closed_form = Recipe(narrow, mp.Gaussian(), mp.ClosedForm(components=components), training)
    both = mp.Context() + mp.ClosedForm(components=components)
    return {
        **with_points(descent, steps),
        CLOSED_FORM: closed_form,
        CONTEXT: Recipe(wide(2), mp.HeteroscedasticGaussian(min_scale=0.01), mp.Context(), slower),
        CONTEXT_CLOSED_FORM: replace(closed_form, module=wide(1), adaptation=both, training=slower),
        CONTEXT_DESCENT: replace(
            descent, module=wide(1), adaptation=mp.Context() + steps, training=replace(descent.training, lr=2e-3)
        ),
    }


def blob_recipes(width: int) -> Mapping[str, Recipe]:
    """Return the recipes for frames: a small U-Net, most of the time for training on pooled tasks.

    Noise differs between tasks. Descent adapts its scale, components of the closed form have scales of their own, and a
    network with a context gives a scale for every pixel.
    """

    def network(outputs: int) -> Callable[[], nn.Module]:
        return lambda: mp.UNet(4, outputs, width=width, levels=2)

    training = mp.MetaTraining(meta_batch=4, warm_start_lr=3e-3)
    steps = mp.Descent(steps=5, lr=1e-5, learn_lr="per_tensor")
    descent = Recipe(
        network(2),
        mp.Gaussian(),
        steps,
        replace(training, scales_first=1.0),
        "predictive",
        outer_samples=4,
        relative_sigma=0.01,
        stochastic=HEAD,
        warm_share=0.9,
        alike=True,
    )
    closed_form = Recipe(
        network(2),
        mp.Gaussian(),
        mp.ClosedForm(components=4, component_noise=True),
        replace(training, lr=1e-3, scales_first=0.2),
        warm_share=0.5,
    )
    by_pixel = mp.HeteroscedasticGaussian(min_scale=0.003)
    context = Recipe(network(4), by_pixel, mp.Context(), replace(training, lr=3e-3, scales_first=0.0))
    return {
        **with_points(descent, steps),
        CLOSED_FORM: closed_form,
        CONTEXT: context,
        CONTEXT_CLOSED_FORM: replace(
            closed_form, adaptation=mp.Context() + closed_form.adaptation, training=context.training, warm_share=0.0
        ),
        CONTEXT_DESCENT: replace(
            descent, adaptation=mp.Context() + steps, training=replace(training, lr=3e-3), warm_share=0.0
        ),
    }


def with_points(descent: Recipe, steps: mp.Descent) -> dict[str, Recipe]:
    """Return descent by these steps, the same from a point, and a network trained on pooled tasks alone (``tuned``)."""
    point = replace(steps, kl_weight=0.0)
    maml = replace(descent, adaptation=point, objective="query", outer_samples=1, relative_sigma=0.0)
    training = replace(maml.training, warm_start_lr=3e-3)
    pooled = replace(maml, adaptation=mp.Descent(steps=0, kl_weight=0.0), training=training, warm_share=1.0)
    return {DESCENT: descent, MAML: maml, TUNED: pooled}


def tuned(network: mp.MetaLearner, lr: float, steps: int) -> mp.MetaLearner:
    """Return a trained network that is adapted by plain gradient steps of one size."""
    learner = mp.MetaLearner(
        network.module,
        network.likelihood,
        adaptation=mp.Descent(steps=steps, lr=lr, kl_weight=0.0),
        relative_sigma=0.0,
        stochastic=network.stochastic,
        standardize=False,
    )
    return learner.with_theta(network.theta_)
