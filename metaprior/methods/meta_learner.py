r"""Amortised Bayesian meta-learning: a prior over weights, learned from many tasks.

Theta is both where adaptation starts and the prior it is held to (Ravi & Beatson 2019; the method's page is
``docs/methods/abml.md``). With a point prior (``relative_sigma=0``, ``kl_weight=0``) the same code is MAML (Finn et
al. 2017).
"""

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from metaprior import checkpoint, checks, saved_posterior
from metaprior.errors import TrainingDiverged
from metaprior.evaluation import Evaluation, evaluate
from metaprior.hyperprior import NormalGammaHyperprior
from metaprior.likelihoods import Likelihood
from metaprior.metagrad import reference
from metaprior.metagrad.adaptation import adapt
from metaprior.metagrad.planner import Memory, Way, bytes_of
from metaprior.metagrad.problem import (
    AmortizedELBO,
    Engine,
    InnerLoop,
    NonFinite,
    Objective,
    OuterTerms,
    Problem,
    QueryLoss,
)
from metaprior.network import DEFAULT_RELATIVE_SIGMA, BayesianNetwork
from metaprior.noise import Noise
from metaprior.objectives import Terms
from metaprior.posterior import Posterior
from metaprior.scaling import TargetScale
from metaprior.tasks.source import Tasks, length_of, task_at
from metaprior.tasks.task import Examples, Task, as_examples
from metaprior.team import current_team
from metaprior.team.agreement import refuse_disagreement, task_digest, tensors_digest
from metaprior.training.door import Door
from metaprior.training.epoch import Summary, refuse_nothing_learned, run_steps, warn_of_bad_tasks
from metaprior.training.gradient_choice import GradientChoice, choose_gradient
from metaprior.training.optimizer import movable_copy
from metaprior.training.settings import FIELDS, MetaTraining
from metaprior.training.trainer import Trainer
from metaprior.weights import WeightDistribution

KIND = "MetaLearner"
OBJECTIVES = ("query", "predictive", "abml")
FIRST_TASKS, FIRST_NUMBERS = 20, 2**24
"""Tasks whose targets give the noise scale to start from, and numbers of inputs and targets that are enough for it."""


class MetaLearner:
    """Learns a prior over the weights of any ``nn.Module`` from tasks, and adapts it to a new task.

    Args:
        module: the network. Its present parameters are where the means start, so pretrained weights are loaded by
            loading them into the module; it is left as it is.
        likelihood: ``Gaussian()``, ``HeteroscedasticGaussian()``, ``Categorical()``, ``Bernoulli()``.
        inner: how a task is learned: steps, step size, samples, KL weight, which plain parameters move.
        objective: what theta is learned for: "query" (expected loss of the query set), "predictive" (the log score of
            the forecast for it), "abml" (the paper's bound, with every term), or an objective of your own.
        outer_samples: weight samples of the outer loss.
        hyperprior: prior over theta itself, for "abml".
        stochastic: regular expression for the names of the random parameters (default: the module's own
            ``stochastic``, or all); the others are plain, and move in the inner loop where ``inner.adapt`` matches
            them.
        relative_sigma: initial sigma of each random tensor as a fraction of its own root mean square. 0 is a point
            prior, and needs ``inner.kl_weight`` 0: MAML.
        memory: budget for the whole process ("4GiB"), or a fraction of what is free. It decides how gradients are
            computed, never what they are.
        engine: one of ``metaprior.metagrad``'s engines, in place of the choice by ``memory``.
        seed: of task order and weight noise.

    After ``fit``: ``theta_`` and ``history_`` (a summary of every epoch).
    """

    theta_: WeightDistribution
    history_: list[Summary]

    def __init__(
        self,
        module: nn.Module,
        likelihood: Likelihood,
        *,
        inner: InnerLoop = InnerLoop(learn_lr="per_tensor"),  # noqa: B008 (frozen)
        objective: str | Objective = "query",
        outer_samples: int = 1,
        hyperprior: NormalGammaHyperprior | None = NormalGammaHyperprior(),  # noqa: B008 (frozen)
        stochastic: str | None = None,
        relative_sigma: float = DEFAULT_RELATIVE_SIGMA,
        memory: Memory = 0.5,
        engine: Engine | None = None,
        seed: int = 0,
    ) -> None:
        if isinstance(objective, str) and objective not in OBJECTIVES:
            raise ValueError(f"objective is one of {', '.join(OBJECTIVES)}, or an Objective; got {objective!r}")
        if not 0 <= relative_sigma < float("inf"):
            raise ValueError(f"relative_sigma has to be at least 0, got {relative_sigma}")
        self.likelihood, self.inner, self.objective, self.hyperprior = likelihood, inner, objective, hyperprior
        self.outer_samples, self.relative_sigma = outer_samples, float(relative_sigma)
        if objective == "predictive" and outer_samples < 2:
            raise ValueError(f"objective='predictive' needs outer_samples of at least 2, got {outer_samples}")
        if relative_sigma == 0 and (inner.kl_weight or self._objective(1).weights(1, 1).kl):
            raise ValueError(
                "relative_sigma=0 is a point prior, and the KL to a point is infinite: use "
                "inner=InnerLoop(kl_weight=0, ...) and objective='query'"
            )
        self.network = BayesianNetwork(module, stochastic)
        bytes_of(memory)  # what is no amount is said here, and not when a training begins
        self.memory, self.engine, self.seed = memory, engine, int(seed)
        self._scalar_targets = False  # as the tasks have them that theta is learned from
        self.problem(1)  # what cannot work is said here

    def problem(self, num_tasks: int) -> Problem:
        """Network, likelihood, inner loop and outer loss; ``num_tasks`` is M of the paper's objective."""
        return Problem(self.network, self.likelihood, self.inner, self._objective(num_tasks))

    def _objective(self, num_tasks: int) -> Objective:
        if not isinstance(self.objective, str):
            return self.objective
        if self.objective == "abml":
            return AmortizedELBO(num_tasks, self.outer_samples, self.hyperprior)
        return QueryLoss(self.outer_samples, predictive=self.objective == "predictive")

    def fit(
        self,
        tasks: Tasks,
        training: MetaTraining = MetaTraining(),  # noqa: B008 (frozen)
        *,
        pooled: Tasks | None = None,
        progress: bool = True,
        shard: bool = False,
        **changes: Any,
    ) -> Self:
        """Learn theta from tasks, from the module's parameters on; the warm start may have a source of its own.

        ``pooled``: tasks whose examples the warm start pools, where those of ``tasks`` are too much alike: examples
        from everywhere make better batches than all examples of a few tasks.

        Tasks without a finite gradient are left out, counted (``history_``) and warned of; an epoch of nothing else
        raises ``TrainingDiverged``.

        Settings are those of ``MetaTraining``, as one or by name: ``fit(tasks, epochs=20, lr=1e-3)``. For training that
        can be stopped and resumed, with validation and logs, there is ``metaprior train``. Stopped by Ctrl-C, or by too
        many bad tasks (``TrainingDiverged``), ``theta_`` is what was learned until then.

        The processes of ``with team_of_torchrun():`` share the work. Each computes with its share of a
        meta-batch's tasks, and all learn the same theta, up to rounding that of a single process. ``shard``: each holds
        a part of the optimiser's moments, and not all.
        """
        settings = _changed(training, changes)
        trainer = self.trainer(tasks, settings, pooled, shard=shard)
        progress = progress and trainer.team.first
        history = list[Summary]()
        try:
            if settings.warm_start:
                history.append(run_steps(trainer, settings.warm_start, progress=progress))
                refuse_nothing_learned(history[-1])
            for _ in range(settings.epochs):
                history.append(run_steps(trainer, settings.steps_per_epoch, progress=progress))
                refuse_nothing_learned(history[-1])
                trainer.note_score(history[-1].loss)  # for the plateau schedule
        except (TrainingDiverged, KeyboardInterrupt):  # hours of work, and good up to here
            self.theta_, self.history_ = trainer.theta.detached(), history
            raise
        self.theta_, self.history_ = trainer.theta.detached(), history
        if trainer.team.first:
            warn_of_bad_tasks(history)
        return self

    def trainer(
        self,
        tasks: Tasks,
        settings: MetaTraining,
        pooled: Tasks | None = None,
        *,
        shard: bool = False,
        before: Way | None = None,
    ) -> Trainer:
        """The training as an object that takes one step at a time.

        ``before``: how an earlier start of it computed gradients, to be kept to if memory allows.
        """
        team = current_team()
        memory, together = self._own_memory(), max(1, len(team.share(settings.meta_batch)))

        def begin() -> tuple[WeightDistribution, GradientChoice, list[Task]]:
            count = length_of(tasks) or max(1, settings.epochs * settings.tasks_per_epoch)
            problem, first = self.problem(count), self._first_tasks(tasks, settings.meta_batch)
            theta = problem.initial(_pooled_targets(first), self.relative_sigma)
            checks.warn_of_scale(first[0].support.x)
            choice = choose_gradient(problem, theta, first[:together], memory, self.engine, before=before)
            return theta, choice, first

        (theta, choice, _), facts = team.attempt(
            begin, lambda begun: _facts(settings, self.seed, begun[0], begun[2][0]) if team.size > 1 else {}
        )
        team.on_first(lambda: refuse_disagreement(facts))
        return Trainer(
            choice.problem,
            theta,
            tasks,
            settings,
            pooled=pooled,
            engine=choice.engine,
            stacked=choice.stacked,
            relative_sigma=self.relative_sigma,
            seed=self.seed,
            sharded=shard,
        )

    def _own_memory(self) -> Memory:
        """The budget of one process: several on a machine share what is free, and all plan with the smallest."""
        team = current_team()
        if team.size == 1:
            return self.memory
        _, budgets = team.attempt(lambda: bytes_of(self.memory, processes=team.on_this_machine), lambda budget: budget)
        return min(budgets)

    def _first_tasks(self, tasks: Tasks, least: int) -> list[Task]:
        door, first, numbers = Door(self.problem(1)), list[Task](), 0
        while len(first) < least or (len(first) < FIRST_TASKS and numbers < FIRST_NUMBERS):
            given = task_at(tasks, len(first), self.seed)
            first.append(door(given))
            self._scalar_targets = self._are_scalars(given.support.y, first[-1].support.y)
            numbers += sum(values.numel() for part in (first[-1].support, first[-1].query) for values in part)
        return first

    def start(self, tasks: Tasks) -> Self:
        """Make a theta to start from, without training: for a loop of your own (``meta_train_one_epoch``)."""
        targets = _pooled_targets(self._first_tasks(tasks, 1))
        self.theta_ = movable_copy(self.problem(1).initial(targets, self.relative_sigma))
        self.history_ = []
        return self

    def with_theta(self, theta: WeightDistribution) -> Self:
        """Return a copy of this learner, with the same network and units, that has another theta."""
        other = copy.copy(self)
        other.theta_ = theta
        return other

    def parameters(self) -> Iterator[Tensor]:
        """Theta's tensors, for an optimiser."""
        yield from self._learned().tensors()

    @property
    def prior(self) -> Posterior:
        """The prior itself as something that predicts: the forecast from zero shots."""
        return self._posterior(self._learned().detached(), scalar_targets=self._scalar_targets)

    def adapt(self, support: Examples, steps: int | None = None, *, seed: int = 0) -> Posterior:
        """q(phi | lambda) after ``steps`` (default: ``inner.steps``) steps on a support set (x, y), ready to predict.

        Raises ``FloatingPointError`` if a number is not finite on the way.
        """
        problem = self.problem(1)
        support = as_examples(support, "support")
        checked = problem.check_examples(support, "support")
        lambda_ = adapt(problem, self._learned(), checked, Noise(seed).fork("adapt"), steps=steps)
        if isinstance(lambda_, NonFinite):
            lambda_.or_raise()
        return self._posterior(lambda_, scalar_targets=self._are_scalars(support.y, checked.y))

    def _are_scalars(self, given: Tensor, checked: Tensor) -> bool:
        """Whether targets were given as (N,), so that forecasts of them are (N,) too."""
        return self.likelihood.continuous and torch.as_tensor(given).ndim < checked.ndim

    def _posterior(self, weights: WeightDistribution, *, scalar_targets: bool) -> Posterior:
        scale = TargetScale.identity(weights.mu)
        return Posterior(self.network, self.likelihood, weights.replace(log_lr=None), scale, None, scalar_targets)

    def evaluate(
        self,
        tasks: Iterable[Task] | Tasks,
        *,
        shots: Sequence[int | None] = (0, None),
        steps: Sequence[int] | None = None,
        samples: int = 20,
        examples_per_shot: int = 1,
        progress: bool = True,
    ) -> Evaluation:
        """Forecasts of the query sets, before and after adaptation: by shots (None: all) and by steps.

        The ranks of the current team share the tasks; all get the result, bitwise identical to that of one process.
        """

        def adapted(support: Examples | None, count: int) -> Posterior:
            return self.prior if support is None else self.adapt(support, count)

        return evaluate(
            adapted,
            tasks,
            shots=shots,
            steps=[self.inner.steps] if steps is None else steps,
            samples=samples,
            examples_per_shot=examples_per_shot,
            progress=progress,
        )

    def inner_loop_loss(self, posterior: Posterior, support: Examples, *, seed: int = 0) -> Terms:
        """L_S(lambda, theta) per observation: ``.nll``, ``.kl`` (with its weight) and their ``.total``."""
        problem, theta = self.problem(1), self._learned()
        with torch.no_grad():
            checked = problem.check_examples(as_examples(support, "support"), "support")
            return reference.inner_loss(problem, posterior.weights, theta, checked, Noise(seed).fork("inner loss"))

    def outer_loop_loss(self, posterior: Posterior, task: Task, *, num_tasks: int = 1, seed: int = 0) -> OuterTerms:
        """The meta-loss of a task at an adapted posterior, term by term; ``num_tasks`` is M of the objective."""
        problem, theta = self.problem(num_tasks), self._learned()
        with torch.no_grad():
            return reference.outer_loss(problem, posterior.weights, theta, problem.check(task), Noise(seed))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the prior to a folder (safetensors and JSON)."""
        objective = self.objective
        if not isinstance(objective, str):
            raise ValueError("an objective of your own cannot be saved; save learner.theta_ yourself")
        tensors, description = saved_posterior.content(self.prior, self.likelihood)
        log_lr = self._learned().log_lr
        if log_lr is not None:
            tensors["log_lr"] = log_lr.detach()
        description["inner"] = asdict(self.inner)
        description["hyperprior"] = None if self.hyperprior is None else asdict(self.hyperprior)
        description["settings"] = {name: getattr(self, name) for name in _SETTINGS}
        checkpoint.write(folder, KIND, tensors, description)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], module: nn.Module | None = None) -> Self:
        """A saved prior. Networks of this package are rebuilt; for any other, give a module of the same structure."""
        tensors, description = checkpoint.read(folder, KIND)
        with checkpoint.readable(folder):
            log_lr = tensors.pop("log_lr", tensors.pop("inner.log_lr", None))  # 0.1.0: "inner.log_lr"
            posterior, likelihood = saved_posterior.rebuild(tensors, description, module)
            hyperprior = description["hyperprior"]
            loaded = cls(
                posterior.network.module,
                likelihood,
                inner=InnerLoop(**description["inner"]),
                hyperprior=hyperprior and NormalGammaHyperprior(**hyperprior),
                stochastic=description["stochastic"],
                **description["settings"],
            )
            loaded.network.constants = posterior.network.constants
            loaded._scalar_targets = posterior.scalar_targets
            loaded.theta_ = posterior.weights
            if log_lr is not None:
                checks.refuse_non_finite(log_lr, "log_lr", remedy="restore the file from a copy")
                loaded.theta_ = posterior.weights.replace(log_lr=log_lr.to(posterior.network.device))
            loaded.problem(1).check_theta(loaded.theta_)
            loaded.history_ = []
        return loaded

    def _learned(self) -> WeightDistribution:
        if not hasattr(self, "theta_"):
            raise ValueError("there is no theta yet: call fit(tasks) (or start(tasks), for a loop of your own) first")
        return self.theta_


_SETTINGS = ("objective", "outer_samples", "relative_sigma", "memory", "seed")


def _facts(settings: MetaTraining, seed: int, theta: WeightDistribution, first: Task) -> dict[str, object]:
    """What ranks have to agree on to train together."""
    return {
        **asdict(settings),
        "seed": seed,
        "data of the first task": task_digest(first),
        "first theta (seed torch before the module is made)": tensors_digest(theta.tensors()),
    }


def _pooled_targets(tasks: Sequence[Task]) -> Tensor:
    targets = torch.cat([part.y for task in tasks for part in (task.support, task.query)])
    return targets[targets.isfinite().flatten(1).all(1)] if targets.ndim > 1 else targets[targets.isfinite()]


def _changed(settings: MetaTraining, changes: dict[str, Any]) -> MetaTraining:
    if unknown := sorted(changes.keys() - set(FIELDS)):
        raise TypeError(f"unknown settings {', '.join(unknown)}; known are {', '.join(FIELDS)}")
    return replace(settings, **changes)
