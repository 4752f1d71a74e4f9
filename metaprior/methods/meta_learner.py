r"""Amortised Bayesian meta-learning: a prior over weights, learned from many tasks.

Theta is both where adaptation starts and the prior it is held to (Ravi & Beatson 2019; the method's page is
``docs/methods/abml.md``). With a point prior (``relative_sigma=0``, ``kl_weight=0``) the same code is MAML (Finn et
al. 2017).
"""

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from metaprior import adaptation as adaptations
from metaprior.adaptation import Adaptation
from metaprior.adaptation.task_model import Binding, HowGradients, TaskModel
from metaprior.calibration import CalibrationByShots, fit_calibration
from metaprior.callbacks import Callbacks
from metaprior.checks import warn_caller
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.memory import Budget, Memory, bytes_of
from metaprior.metagrad.problem import Descent, Engine, NonFinite, Objective, OuterTerms, Problem
from metaprior.methods import saved_prior
from metaprior.methods.choice import AdaptationChoice, fit_chosen, in_words
from metaprior.methods.fitting import Epochs, make_trainer, warn_if_idle
from metaprior.methods.method import TaskMethod
from metaprior.methods.target_units import TargetUnits, first_look, pooled_targets
from metaprior.methods.validation import validation_tasks
from metaprior.network import DEFAULT_RELATIVE_SIGMA, BayesianNetwork, structure_of
from metaprior.noise import Noise
from metaprior.objectives import Terms
from metaprior.posterior import DEFAULT_SAMPLES, Learned, Predictive
from metaprior.priors import NormalGammaHyperprior
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, Task, Tasks, as_tasks
from metaprior.training.epoch import warn_of_bad_tasks, warn_of_missing_targets
from metaprior.training.optimizer import movable_copy
from metaprior.training.settings import FIELDS, MetaTraining
from metaprior.training.trainer import Trainer
from metaprior.weights import WeightDistribution


class MetaLearner(TaskMethod):
    """A prior over the weights of any ``nn.Module``, learned from tasks and adapted to a new one.

    Args:
        module: the network. Its present parameters are where the means start, so pretrained weights are loaded by
            loading them into the module; it is left as it is.
        likelihood: ``Gaussian()``, ``HeteroscedasticGaussian()``, ``Categorical()``, ``Bernoulli()``.
        adaptation: how a task is learned. ``Descent(...)``: steps on its support set from theta; ``ClosedForm(...)``:
            the exact posterior of the last layer; ``Context(...)``: a summary of the support set that the network
            reads; ``Context() + ClosedForm()``, ``Context() + Descent()``; "auto": ``fit`` tries them (``choice_``).
        objective: the outer loss; by default that of the adaptation. ``Descent``: "query" (expected loss of the query
            set), "predictive" (log score of the forecast for the query set), "abml" (the paper's bound, with every
            term), or an objective of your own. ``ClosedForm``: "predictive", "evidence".
        outer_samples: weight samples of the outer loss.
        hyperprior: prior over theta itself, for "abml".
        stochastic: regular expression for the names of the random parameters (default: the module's own
            ``stochastic``, or all); the others are plain, and move in the inner loop where ``Descent``'s
            ``adapt`` matches them.
        relative_sigma: initial sigma of each random tensor as a fraction of its own root mean square. 0 is a point
            prior, and needs ``Descent(kl_weight=0)``: MAML.
        standardize: train on real-valued targets in units of the mean and standard deviation of the first tasks'
            targets. Tasks, predictions and a fixed noise are in the targets' own units.
        memory: budget for the whole process ("4GiB"), or a fraction of what is free. It decides how gradients of large
            networks are computed, never their values; small ones ignore it.
        scratch: folder for the files in which gradients of large networks keep what does not fit in ``memory``; None is
            the system's temporary folder.
        examples_per_shot: support examples that make one shot, in ``fit``, ``calibrate`` and ``evaluate`` (for C
            classes that take turns: C).
        engine: one of ``metaprior.metagrad``'s engines, in place of the choice by ``memory``.
        seed: seed of task order and weight noise.
        device: where to compute, such as "cuda": the module is moved there, as ``module.to(device)`` does. None is
            where the module is.

    After ``fit``: ``theta_``, ``target_scale_``, ``history_`` (an ``EpochRecord`` of every epoch), ``calibration_``
    and, with "auto", ``choice_`` (what was tried, which adaptation was taken and why).
    """

    theta_: WeightDistribution
    target_scale_: TargetScale
    calibration_: CalibrationByShots | None = None
    choice_: AdaptationChoice | None = None
    _scalar_targets = False
    _loaded = False
    _bound: tuple[Any, TaskModel] | None = None

    def __init__(
        self,
        module: nn.Module,
        likelihood: Likelihood,
        *,
        adaptation: Adaptation | Literal["auto"] = Descent(learn_lr="per_tensor"),
        objective: str | Objective | None = None,
        outer_samples: int = 1,
        hyperprior: NormalGammaHyperprior | None = NormalGammaHyperprior(),
        stochastic: str | None = None,
        relative_sigma: float = DEFAULT_RELATIVE_SIGMA,
        standardize: bool = True,
        memory: Memory = 0.5,
        scratch: str | os.PathLike[str] | None = None,
        engine: Engine | None = None,
        examples_per_shot: int = 1,
        seed: int = 0,
        device: str | torch.device | None = None,
    ) -> None:
        self.module, self.likelihood, self.adaptation, self.objective = module, likelihood, adaptation, objective
        self.outer_samples, self.hyperprior, self.stochastic = outer_samples, hyperprior, stochastic
        self.relative_sigma, self.standardize = relative_sigma, standardize
        self.memory, self.scratch, self.device = memory, scratch, device
        self.engine, self.examples_per_shot, self.seed = engine, examples_per_shot, seed

    @property
    def budget(self) -> Budget:
        """Return what computing gradients may take."""
        return Budget(self.memory, None if self.scratch is None else os.fspath(self.scratch))

    @property
    def adaptation_(self) -> Adaptation:
        """The adaptation in use: the one that was given, or that ``fit`` has chosen for "auto"."""
        if not isinstance(self.adaptation, str):
            return self.adaptation
        if self.adaptation != "auto":
            raise ValueError(
                f"adaptation must be one such as Descent() or ClosedForm(), or 'auto'; got {self.adaptation!r}"
            )
        if self.choice_ is None:
            raise self._not_fitted("fit(tasks), which chooses an adaptation for 'auto',")
        return self.choice_.adaptation

    @cached_property
    def network(self) -> BayesianNetwork:
        """Return the module with the choice of its random parameters; raise for what cannot be made Bayesian."""
        return adaptations.network_for(self.adaptation_, self._placed_module(), self.stochastic)

    def task_model(self, num_tasks: int = 1) -> TaskModel:
        """Return the adaptation bound to network, likelihood and objective, in the network's units.

        ``num_tasks`` is M of the paper's objective. Raises for arguments of the constructor that cannot work.
        """
        return self._task_model(self.likelihood.in_units_of(self.units.scale), num_tasks)

    def _task_model(self, likelihood: Likelihood, num_tasks: int = 1) -> TaskModel:
        """Return the task model with a likelihood; the last one is kept until something that it is made of changes."""
        settings = (self.objective, self.outer_samples, self.hyperprior, self.relative_sigma, num_tasks)
        binding = Binding(self.network, likelihood, *settings)
        made_of = (self.adaptation_, binding, self.memory, structure_of(self.module))
        if self._bound is None or self._bound[0] != made_of:
            if not 0 <= self.relative_sigma < float("inf"):
                raise ValueError(f"relative_sigma must be at least 0, got {self.relative_sigma}")
            bytes_of(self.memory)  # raises for what is no amount
            self._bound = made_of, adaptations.bind(self.adaptation_, binding)
        return self._bound[1]

    def problem(self, num_tasks: int = 1) -> Problem:
        """Return the problem that engines differentiate; raises TypeError for adaptations without an inner loop."""
        return self.task_model(num_tasks).problem

    def fit(
        self,
        tasks: Tasks | Mapping[str, Task],
        training: MetaTraining = MetaTraining(),
        *,
        validation: Tasks | Mapping[str, Task] | None = None,
        calibrate: bool = True,
        keep_best: bool = False,
        auto_share: float = 0.25,
        pooled: Tasks | None = None,
        progress: bool = True,
        shard: bool = False,
        callbacks: Callbacks = (),
        **changes: Any,
    ) -> Self:
        """Learn theta from tasks, starting from the module's parameters; an earlier or loaded prior is replaced.

        ``meta_train_one_epoch`` goes on from a prior. The defaults are a short training; for few-shot regression,
        settings such as ``fit(tasks, epochs=10, tasks_per_epoch=2000, meta_batch=20, lr=5e-3)`` are a better start.

        Tasks without a finite gradient are left out, counted (``history_``) and warned of. So is an adaptation that
        changes nothing. Training that can be stopped and resumed, with logs, is ``metaprior train``.

        The processes of ``with team_of_torchrun():`` share the work: each computes with its share of a meta-batch's
        tasks, and all learn the same theta, that of a single process up to rounding.

        Args:
            tasks: tasks by index (a list, or a source with or without an end), or by name.
            training: the settings of the training.
            validation: tasks that are not learned from; of a source without an end, the first 100. After every epoch
                their forecasts are scored before and after adaptation (``history_``).
            calibrate: fit the spread of forecasts to the validation tasks at the end (``calibrate``).
            keep_best: keep theta of the epoch with the best validation (without: with the lowest loss), not the last.
            auto_share: with ``adaptation="auto"``, the share of the meta-steps that the trials of all adaptations take
                together; each has at least 40 of them. They are compared on the first 50 validation tasks; without any,
                on a fifth of the tasks, which the trials do not learn from (of a source without an end: on later ones).
            pooled: tasks whose examples the warm start pools, where those of ``tasks`` are too much alike: examples
                from everywhere make better batches than all examples of a few tasks.
            progress: show a progress bar.
            shard: let each process hold a part of the optimiser's moments, in place of all.
            callbacks: what is called after every step or epoch (``metaprior.callbacks``), such as
                ``EarlyStopping(patience=5)`` or ``lambda fit, record: print(record.loss)``. A warm start is an epoch.
            changes: settings of ``MetaTraining`` by name: ``fit(tasks, epochs=20, lr=1e-3)``.

        Raises:
            TrainingDiverged: if no task of an epoch, or too many tasks in a row, had a finite gradient. ``theta_`` is
                then what this fit learned before (also after Ctrl-C, or an error in a callback), or that of an earlier
                fit if it learned nothing.
        """
        if not isinstance(training, MetaTraining):
            raise TypeError(
                f"training must be a MetaTraining, got {type(training).__name__}. A prior is learned from tasks: try "
                "fit([Task((x, y), (x_query, y_query), name), ...])"
            )
        if unknown := sorted(changes.keys() - set(FIELDS)):
            raise TypeError(f"unknown settings {', '.join(unknown)}; valid are {', '.join(FIELDS)}")
        settings = replace(training, **changes)
        if self._loaded:
            warn_caller(
                "fit starts from the module's parameters and replaces the prior that was loaded. To go on from it, try "
                "meta_train_one_epoch(learner, tasks, optimizer) with an optimizer of learner.parameters()."
            )
        if self.adaptation == "auto":
            options: dict[str, Any] = {"calibrate": calibrate, "keep_best": keep_best, "pooled": pooled, "shard": shard}
            options["callbacks"] = callbacks
            common = (self, as_tasks(tasks), settings, options)
            fit_chosen(*common, share=auto_share, validation=validation, progress=progress)
            return self
        judges = None if validation is None else validation_tasks(validation)
        before, tasks = dict(vars(self)), as_tasks(tasks)
        epochs = None
        try:
            trainer = self.trainer(tasks, settings, pooled, shard=shard)
            epochs = Epochs(self, trainer, judges, keep_best, callbacks, progress)
            epochs.run()
        except BaseException as stopped:
            if epochs is not None and epochs.learned_before(stopped):
                self._keep(epochs)
            else:
                vars(self).clear()
                vars(self).update(before)  # an earlier fit stays
            raise
        self._keep(epochs)
        if trainer.team.first:
            warn_of_bad_tasks(epochs.summaries)
            warn_of_missing_targets(epochs.summaries)
        warn_if_idle(self, epochs, tasks)
        if judges is not None and calibrate:
            self.calibrate(judges, progress=progress)
        return self

    def _keep(self, epochs: Epochs) -> None:
        self.theta_, self._loaded = epochs.theta, False
        self.calibration_, self.history_ = None, epochs.records

    def calibrate(
        self,
        tasks: Tasks | Mapping[str, Task],
        shots: Sequence[int] | None = None,
        *,
        samples: int = DEFAULT_SAMPLES,
        examples_per_shot: int | None = None,
        progress: bool = True,
    ) -> Self:
        """Fit a factor for the spread of forecasts, smooth in the number of examples (``metaprior.calibration``).

        From then on ``adapt`` and ``prior_predictive`` apply it. It is saved with the prior, and is ``calibration_``
        (None: not calibrated). The factors hold for the usual number of steps. All ranks call this together.

        Args:
            tasks: validation tasks, which the prior was not learned from; about 100, or more.
            shots: numbers of shots to fit factors for; None takes 0, 1, 2, 5, 10, ... as far as support sets go.
            samples: weight samples of a forecast.
            examples_per_shot: support examples that make one shot; None takes the learner's.
            progress: show a progress bar.
        """
        self.calibration_ = fit_calibration(
            self.with_theta(self._learned())._adapted(),
            validation_tasks(tasks),
            shots=shots,
            steps=self._usual_steps,
            samples=samples,
            examples_per_shot=self._shot_size(examples_per_shot),
            present=self.likelihood.present,
            progress=progress,
        )
        return self

    def trainer(
        self,
        tasks: Tasks,
        settings: MetaTraining,
        pooled: Tasks | None = None,
        *,
        shard: bool = False,
        before: HowGradients | None = None,
    ) -> Trainer:
        """Return the training as an object that takes one step at a time; arguments are those of ``fit``.

        ``before`` is how an earlier start of this training computed gradients, which is kept if memory allows.
        """
        return make_trainer(self, tasks, settings, pooled, shard=shard, before=before)

    def look_at(self, tasks: Tasks, least: int) -> list[Task]:
        """Return the first tasks; their targets decide the units and the shape of forecasts."""
        first, self.target_scale_, self._scalar_targets = first_look(
            self._task_model, self.likelihood, tasks, least, seed=self.seed, standardize=bool(self.standardize)
        )
        return first

    @property
    def units(self) -> TargetUnits:
        """The way from the user's units of targets to the network's."""
        scale = getattr(self, "target_scale_", None) or TargetScale.identity(next(iter(self.module.parameters())))
        return TargetUnits(scale, bool(self.standardize) and self.likelihood.continuous)

    def to_internal(self, task: Task) -> Task:
        """Return a task with targets in the network's units."""
        return self.units.task(task)

    def start(self, tasks: Tasks | Mapping[str, Task]) -> Self:
        """Make a theta to start from, without training: for a loop of your own (``meta_train_one_epoch``)."""
        first = self.look_at(as_tasks(tasks), 1)
        self.theta_ = movable_copy(self.task_model().initial(pooled_targets(first), self.relative_sigma))
        self.calibration_, self.history_ = None, []
        return self

    def with_theta(self, theta: WeightDistribution) -> Self:
        """Return a copy of this learner, with the same network and units, that has another theta, not calibrated."""
        other = copy.copy(self)
        other.theta_, other.calibration_ = theta, None
        return other

    def parameters(self) -> Iterator[Tensor]:
        """Iterate over theta's tensors, for an optimiser."""
        yield from self._learned().tensors()

    def prior_predictive(self) -> Predictive:
        """Return the prior as something that predicts: the forecast for a new task before its first observation."""
        prior = self.task_model().prior(self._learned())
        return self._calibrated(prior, 0, scalar_targets=self._scalar_targets)

    def adapt(self, support: Examples, steps: int | None = None, *, seed: int = 0) -> Predictive:
        """Return the posterior of a task given its support set (x, y).

        Examples without a target are left out; without any, the forecast is that of ``prior_predictive``.

        With ``Descent`` this is q(phi | lambda) after ``steps`` steps (default: those of the adaptation); other
        adaptations take no steps, and raise for any number of them.

        Raises:
            TrainingDiverged: if a number is not finite on the way.
        """
        theta, model = self._learned(), self.task_model()
        if not isinstance(steps, int | None):
            raise TypeError(f"steps must be an integer or None, got {type(steps).__name__}. Try adapt((x, y)).")
        if steps is not None and model.steps is None:
            raise ValueError(f"steps must be None with adaptation={self.adaptation_!r}, which takes none; got {steps}")
        checked, scalar = self.units.checked(support, model)
        posterior = model.adapt(theta, checked, Noise(seed).fork("adapt"), steps)
        if isinstance(posterior, NonFinite):
            posterior.or_raise()
        return self._calibrated(posterior, 0 if steps == 0 else checked.size, scalar_targets=scalar)

    def _calibrated(self, posterior: Predictive, examples: int, *, scalar_targets: bool) -> Predictive:
        factor = self.calibration_.factor(examples) if self.calibration_ else 1.0
        return posterior.in_units(self.units.scale, scalar_targets=scalar_targets).widened(factor)

    @property
    def _usual_steps(self) -> int:
        return self.task_model().steps or 0

    def inner_loop_loss(self, posterior: Predictive, support: Examples, *, seed: int = 0) -> Terms:
        """Return L_S(lambda, theta) per observation: ``.nll``, ``.kl`` (with its weight) and their ``.total``."""
        theta, model = self._learned(), self.task_model()
        checked, _ = self.units.checked(support, model)
        return model.inner_loss(posterior, theta, checked, Noise(seed).fork("inner loss"))

    def outer_loop_loss(self, posterior: Predictive, task: Task, *, num_tasks: int = 1, seed: int = 0) -> OuterTerms:
        """Return the outer loss of a task at an adapted posterior, term by term; ``num_tasks`` is M of the paper."""
        theta, model = self._learned(), self.task_model(num_tasks)
        return model.outer_loss(posterior, theta, model.check(self.to_internal(task)), Noise(seed))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the prior to a folder (safetensors and JSON), replacing an earlier one only when it is complete."""
        objective = self.objective
        if not isinstance(objective, str | None):
            raise ValueError("objective must be one of the package's to be saved; save learner.theta_ yourself")
        scale, scalar = self.units.scale, self._scalar_targets
        theta = self._learned().detached()
        saved_prior.write(self, Learned(self.network, self.likelihood, theta, scale, scalar_targets=scalar), folder)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        module: nn.Module | None = None,
        *,
        adaptation: Adaptation | None = None,
        device: str | torch.device | None = None,
    ) -> Self:
        """Return a saved prior. Networks of this package are rebuilt; for any other, give a module like the saved.

        ``adaptation`` is needed where it has a module of its own, such as ``Context(encoder=...)``. ``device`` is as in
        the constructor: without it a rebuilt network is on the CPU, wherever it was trained.
        """
        loaded, learned = saved_prior.read(cls, folder, module, adaptation, device)
        loaded._scalar_targets, loaded._loaded = learned.scalar_targets, True
        return loaded

    def __repr__(self) -> str:
        """Return the arguments that matter most, how forecasts are calibrated, and how the adaptation was chosen."""
        state = "not fitted" if not hasattr(self, "theta_") else str(self.calibration_ or "not calibrated")
        state += f"; {self.choice_.sentence}" if self.choice_ else ""
        given = f"{type(self.module).__name__}, {self.likelihood!r}, adaptation={in_words(self.adaptation)}"
        return f"{type(self).__name__}({given}; {state})"

    def _learned(self) -> WeightDistribution:
        if not hasattr(self, "theta_"):
            raise self._not_fitted("fit(tasks) (or start(tasks), for a loop of your own)")
        return self.theta_
