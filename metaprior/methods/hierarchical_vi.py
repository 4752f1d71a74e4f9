r"""Hierarchical variational inference: a posterior over the prior, and one for every task.

Minimises, over $\psi$ and $\lambda_1..\lambda_M$ together,

$$E_{q(\theta;\psi)}\Big[\sum_{i=1}^M E_{q(\phi_i;\lambda_i)}[-\log p(D_i|\phi_i)]
+ KL(q(\phi_i;\lambda_i)\|p(\phi_i|\theta))\Big] + KL(q(\theta;\psi)\|p(\theta))$$

(Amit & Meir 2018 have the same hierarchy with another bound.) With the local posteriors in closed form it collapses to
a bound over theta alone: ``collapsed_hierarchical_vi.py``. The method's page is ``docs/methods/hierarchical-vi.md``.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from metaprior import checkpoint
from metaprior.callbacks import Callbacks, Fit, Listeners
from metaprior.errors import CheckpointError
from metaprior.hierarchy import commit
from metaprior.hierarchy.hierarchical_posterior import HierarchicalPosterior
from metaprior.hierarchy.hyper_posterior import HyperPosterior, fit_psi
from metaprior.hierarchy.model import FitPlan, HierarchicalModel, HierarchyTerms, Hyperprior, State
from metaprior.hierarchy.rounds import LAST_SWEEPS, Rounds, begin
from metaprior.hierarchy.store import PosteriorStore, temporary_folder
from metaprior.hierarchy.task_data import CheckedTasks, TaskData, new_tasks
from metaprior.hierarchy.theta_inference import ThetaInference
from metaprior.hierarchy.whitened import CollapsedHyperprior
from metaprior.history import EpochRecord
from metaprior.likelihoods import Likelihood
from metaprior.methods.method import TaskMethod
from metaprior.methods.target_units import TargetUnits
from metaprior.minibatches import HeldOutData, WeightedExamples
from metaprior.network import DEFAULT_RELATIVE_SIGMA
from metaprior.noise import Noise
from metaprior.priors import GaussianHyperprior
from metaprior.progress import write_line
from metaprior.stack_descent import ROWS, Stack, StackDescent, new_record, visit
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution

EXPLICIT, CLOSED_FORM = "explicit", "closed_form"


class HierarchicalVI(TaskMethod):
    """The full hierarchy for any ``nn.Module``: a posterior over the prior, and over the weights of each of M tasks.

    Posteriors live in a folder, and memory holds those of a few tasks at a time. A training that is killed resumes from
    its last commit, bitwise identical.

    Args:
        module: the network. Its present parameters are where means start; it is left as it is.
        likelihood: ``Gaussian()``, ``HeteroscedasticGaussian()``, ``Categorical()``, ``Bernoulli()``. Its parameters (a
            noise scale), and network parameters that are not random, are point values that all tasks share.
        local: ``"explicit"``, a variational posterior of all weights for each task; or ``"closed_form"`` (real-valued
            targets), where tasks differ in the last layer, whose exact posterior needs no steps, and theta has draws
            that make few tasks' intervals honest.
        theta: how theta is inferred with ``local="closed_form"``: ``"hmc"`` (the default, or ``HMC(draws=..., ...)``),
            ``"anchored"`` (cheaper), ``"variational"`` (bounds the evidence, and underfits).
        hyperprior: p(theta), a ``GaussianHyperprior`` (with ``local="closed_form"`` a ``CollapsedHyperprior``); or a
            fixed theta (a ``WeightDistribution``), under which nothing is learned about the prior and tasks are
            independent.
        store: folder of the posteriors. An existing one is opened, counts as fitted, and a fit continues it. None takes
            a temporary folder, which is deleted with this object (where temporary folders lie in memory, give another).
        stochastic: regular expression for the names of the random parameters (default: the module's own
            ``stochastic``, or all).
        relative_sigma: initial sigma of each random tensor as a fraction of its own root mean square.
        standardize: train on real-valued targets in units of the mean and standard deviation of all tasks' targets
            at the first fit. Data, predictions and a fixed noise are in the targets' own units.
        seed: seed of task order, shuffling and weight noise.
        device: where to compute, such as "cuda": the module is moved there, as ``module.to(device)`` does. None is
            where the module is.

    After ``fit``: ``psi_`` (the ``HyperPosterior``), ``history_`` (an ``EpochRecord`` of every epoch), ``task_names_``.
    """

    _by_local: ClassVar[dict[str, type["HierarchicalVI"]]] = {}
    """Subclasses by the value of ``local`` that they implement."""

    def __init_subclass__(cls, *, local: str, **others: Any) -> None:
        super().__init_subclass__(**others)
        HierarchicalVI._by_local[local] = cls

    def __new__(cls, *others: Any, local: Any = EXPLICIT, **named: Any) -> Self:
        """Return an object of the subclass that implements ``local``, as ``pathlib.Path`` does by system."""
        other = HierarchicalVI._by_local.get(local) if cls is HierarchicalVI and isinstance(local, str) else None
        return super().__new__(other or cls)  # type: ignore[return-value]

    def __init__(
        self,
        module: nn.Module,
        likelihood: Likelihood,
        *,
        local: str = EXPLICIT,
        theta: ThetaInference | str | None = None,
        hyperprior: Hyperprior | CollapsedHyperprior | None = None,
        store: str | os.PathLike[str] | None = None,
        stochastic: str | None = None,
        relative_sigma: float = DEFAULT_RELATIVE_SIGMA,
        standardize: bool = True,
        seed: int = 0,
        device: str | torch.device | None = None,
    ) -> None:
        self.module, self.likelihood, self.local, self.theta = module, likelihood, local, theta
        self.hyperprior, self.store = hyperprior, store
        self.stochastic, self.relative_sigma = stochastic, relative_sigma
        self.standardize, self.seed, self.device = standardize, seed, device

    __signature__ = signature(partial(__init__, None))  # type: ignore[arg-type]
    """Keeps ``help`` from showing the arguments of ``__new__``."""

    @cached_property
    def model(self) -> HierarchicalModel:
        """Return the checked model; raise for arguments of the constructor that cannot work."""
        network = self.network  # raises for a module or a likelihood that is none
        if self.local != EXPLICIT:
            raise ValueError(f"local must be {EXPLICIT!r} or {CLOSED_FORM!r}, got {self.local!r}")
        if self.theta is not None:
            raise ValueError(
                f"theta={self.theta!r} says how theta is inferred with local={CLOSED_FORM!r}, but local is {EXPLICIT!r}"
            )
        settings = float(self.relative_sigma), bool(self.standardize), int(self.seed)
        hyperprior = GaussianHyperprior() if self.hyperprior is None else self.hyperprior
        model = HierarchicalModel(network, self.likelihood, hyperprior, *settings)  # type: ignore[arg-type]
        _ = model.problem  # raises for what cannot be differentiated
        return model

    @cached_property
    def posteriors(self) -> PosteriorStore:
        """Return the store of the tasks' posteriors."""
        network = self.model.network
        folder = temporary_folder(self) if self.store is None else Path(self.store)
        return PosteriorStore(folder, commit.KIND, ROWS, network.layout.dimension, network.dtype)

    @cached_property
    def _state(self) -> State | None:
        """Return the state of the store's last commit, or None where there is no store yet."""
        if self.store is None and "posteriors" not in vars(self):
            return None  # nothing was fitted, and to ask makes no temporary folder
        return self._last_commit() if self.posteriors.exists else None

    def fit(
        self,
        tasks: TaskData,
        *,
        epochs: int = 500,
        local_steps: int = 2,
        task_batch: int = 10,
        batch_size: int = 128,
        lr: float = 1e-2,
        samples: int = 1,
        kl_warmup: float = 0.25,
        resume: bool = False,
        save_every: float = 60.0,
        progress: bool = True,
        callbacks: Callbacks = (),
    ) -> Self:
        """Fit psi and the posterior of every task, continuing from the posteriors that the store already has.

        Args:
            tasks: tasks with a length (all their data are used, support and query set together), or examples (x, y),
                by index or by name. A task is recognised by its name and its data. All tasks in the store must be given
                again; new ones may be added, and start from the learned prior.
            epochs: visits to every task.
            local_steps: steps of a posterior in one visit. With few steps psi is fitted more often, and tasks learn
                more from each other; more steps save reading and writing of large posteriors.
            task_batch: tasks in a round, after which psi is fitted to the posteriors of all tasks.
            batch_size: observations in a step.
            lr: Adam's learning rate for posteriors, falling to zero along a cosine (psi needs none).
            samples: weight samples in a step.
            kl_warmup: fraction of the training over which the weight of the posteriors' KL rises to 1, from 1e-4.
            resume: continue a fit that was stopped, with the same tasks and settings; where none was stopped, this
                changes nothing.
            save_every: seconds between commits. A fit that is killed or raises leaves the last one.
            progress: show a progress bar.
            callbacks: what is called after every round or epoch (``metaprior.callbacks``). A fit that they stop is
                finished.
        """
        plan = FitPlan(epochs, local_steps, task_batch, batch_size, lr, samples, kl_warmup)
        if not save_every >= 0:
            raise ValueError(f"save_every must be a number of seconds, at least 0, got {save_every}")
        checked = CheckedTasks(tasks, self.model.network, self.likelihood, progress=progress)
        checked.warn()
        with self._writing(checked) as state:
            before = len(state.history)
            if begin(state, self.posteriors, plan, checked, resume=resume):
                if before and progress:
                    held = f"{self.posteriors.folder} holds posteriors of {before} epochs"
                    write_line(f"{held}, from which this fit continues", sys.stderr)
                self._run(Rounds(self.model, state, self.posteriors, checked), save_every, callbacks, progress)
        return self

    def adapt(
        self,
        support: Examples,
        steps: int | None = None,
        *,
        lr: float | None = None,
        batch_size: int | None = None,
        samples: int | None = None,
        seed: int = 0,
    ) -> HierarchicalPosterior:
        """Return the posterior of a new task: its lambda after some steps under the expected KL from q(theta).

        It starts from the prior's centre with half of its scales. Arguments that are not given are as in the last fit
        (``steps``: as many as a posterior took there), without a KL warm-up. With few data, fewer than a few hundred
        steps leave scales too small and forecasts overconfident.

        Raises:
            TrainingDiverged: if a number is not finite on the way.
        """
        state = self._fitted()
        given = {"steps": steps, "lr": lr, "batch_size": batch_size, "samples": samples}
        changes = {name: value for name, value in given.items() if value is not None}
        plan = replace(state.plan.local(), kl_warmup=0.0, **changes)  # type: ignore[union-attr]
        units = TargetUnits(state.target_scale, self.likelihood.continuous)
        checked, scalar = units.checked(support, self.model.problem)
        stack = Stack(["the new task"], [0], new_record(self.model.start(state)).unsqueeze(0), 0, [checked])
        noise = Noise(seed).fork("adapt")
        descent = StackDescent(self.model.energy(state), stack, state.psi, state.shared, plan, noise)
        records, _ = visit(descent, range(plan.steps))
        mu, rho, *_ = records[0]
        return self.model.posterior(state, WeightDistribution(mu, rho), scalar)

    def prior_predictive(self) -> HierarchicalPosterior:
        """Return the prior as something that predicts: the forecast for a new task before its first observation."""
        return self.model.posterior(self._fitted(), self.psi_.centre())

    def posterior(self, task: str) -> HierarchicalPosterior:
        """Return the posterior of a task of the training, by its name."""
        return self.model.posterior(self._fitted(), self._weights(self._index(task)))

    @torch.no_grad()
    def elbo(self, tasks: TaskData, *, samples: int = 32, seed: int = 0) -> HierarchyTerms:
        """Return the objective at the present psi and posteriors, from all data and ``samples`` weight samples a task.

        ``tasks`` must be all tasks of the store, with the data they were learned from. Terms are in nats, in the
        network's units (standard deviations of the targets, if they are standardised).
        """
        state, indices, given = self._fitted(), self._indices(), CheckedTasks(tasks, self.network, self.likelihood)
        if new_tasks(self.posteriors.entries, given.entries, growing=True, folder=self.posteriors.folder):
            raise ValueError("tasks must be those of the store, but some of the given ones are new")
        nll, kl = 0.0, 0.0
        for entry in given.entries:
            q, noise = self.posterior(entry.name).weights, Noise(seed).fork("elbo").at(task=indices[entry.name])
            data = given.data_of(entry, state.target_scale)
            whole = HeldOutData(WeightedExamples(data), data.size)
            groups = self.model.energy(state, data).samples_with_nll(q, whole, noise, samples)
            nll += sum(float(part) * share for _, part, share in groups)
            kl += float(state.psi.kl_from(q))
        return HierarchyTerms(nll, kl, state.psi.kl_to(self.model.hyperprior))

    def forget(self, task: str) -> Self:
        """Remove a task: its posterior, name and fingerprint leave the store, and psi is fitted to the others.

        The task's influence on other posteriors, shared parameters and the noise scale stays until the next fit.
        """
        self._fitted()
        with self._writing() as state:
            if not state.finished:
                raise CheckpointError(
                    f"{self.posteriors.folder} holds a fit that was stopped at round {state.rounds} and needs all of "
                    "its tasks: first finish it with fit(tasks, ..., resume=True), or give_up() the rest of it"
                )
            index = self._index(task, visited=False)
            if self.posteriors.entries[index].steps:
                state.sums = state.sums.updated(self._weights(index).map(lambda value: value[None]), None)
            if isinstance(self.model.hyperprior, GaussianHyperprior):
                state.psi = fit_psi(state.psi, state.sums, self.model.hyperprior, LAST_SWEEPS)
            self.posteriors.forget(index)
            self._commit(state)
            self.posteriors.wipe(index)
        return self

    def give_up(self) -> Self:
        """Declare a stopped fit finished: the next fit starts from its posteriors, with any settings and tasks."""
        with self._writing() as state:
            state.finished = True
            self._commit(state)
        return self

    @property
    def psi_(self) -> HyperPosterior:
        """Return q(theta; psi)."""
        return self._fitted().psi

    @property
    def history_(self) -> list[EpochRecord]:  # type: ignore[override]
        """Return the objective by epoch. Each task's part is an estimate from the mini-batches of its last visit;
        ``elbo`` computes the objective from all data."""
        return list(self._fitted().history)

    @property
    def task_names_(self) -> list[str]:
        """Return the names of the tasks that have a posterior."""
        return list(self._indices())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Copy the store's last commit to a new folder, which ``load`` takes like the store itself."""
        self._fitted()
        self.posteriors.copy_to(folder)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        module: nn.Module | None = None,
        *,
        device: str | torch.device | None = None,
    ) -> Self:
        """Return a store, ready to predict or to train on. Networks of this package are rebuilt; for any other, give a
        module like the saved."""
        local = checkpoint.read_description(folder).get("local", EXPLICIT)
        if local in cls._by_local and cls is HierarchicalVI:
            return cls._by_local[local].load(folder, module, device=device)  # type: ignore[return-value]
        model, *_ = commit.read(folder, module)
        stored = {"store": folder, "stochastic": model.network.stochastic, "device": device, **model.settings}
        loaded = cls(model.network.module, model.likelihood, **stored)
        _ = loaded._state  # raises for posteriors that are damaged
        return loaded

    def __repr__(self) -> str:
        try:
            status = self._status()
        except (ValueError, TypeError, OSError) as error:
            status = str(error)
        return f"<{type(self).__name__} of {type(self.module).__name__}, local={self.local!r}: {status}>"

    def _status(self) -> str:
        """Return what is known about the fit, also one that another object left in the store."""
        state = self._state
        if state is None or state.plan is None:
            return "not fitted"
        progress = "" if state.finished else f", stopped at round {state.rounds}"
        return f"{len(self.task_names_)} tasks, {len(state.history)} epochs{progress}, in {self.posteriors.folder}"

    def _fitted(self) -> State:
        if self._state is None or self._state.plan is None:
            raise self._not_fitted()
        return self._state

    @property
    def _usual_steps(self) -> int:
        return self._fitted().plan.local().steps  # type: ignore[union-attr]

    def _indices(self, *, visited: bool = True) -> dict[str, int]:
        self._fitted()
        entries = enumerate(self.posteriors.entries)
        return {entry.name: index for index, entry in entries if not entry.forgotten and (entry.steps or not visited)}

    def _index(self, task: str, *, visited: bool = True) -> int:
        indices = self._indices(visited=visited)
        if task not in indices:
            first = ", ".join(map(repr, list(indices)[:5]))
            raise KeyError(f"no task is called {task!r}; the {len(indices)} in the store are {first}, ...")
        return indices[task]

    def _weights(self, index: int) -> WeightDistribution:
        record = self.posteriors.read(index).to(self.network.device)
        return WeightDistribution(record[0], record[1])

    @contextmanager
    def _writing(self, first: CheckedTasks | None = None) -> Iterator[State]:
        """Lock the store and give the state of its last commit, to which any error returns.

        Where there is no store yet, one is made for the tasks that are ``first``.
        """
        with self.posteriors.locked():
            if first is not None and not self.posteriors.exists:
                self._commit(self.model.first_state(first))
            self._state = state = self._last_commit()
            try:
                yield state
            except BaseException:
                self._state = self._last_commit()
                raise

    def _run(self, rounds: Rounds, save_every: float, callbacks: Callbacks, progress: bool) -> None:
        saved, state = time.monotonic(), rounds.state
        fit = Fit(
            self,
            "hierarchy",
            epochs=rounds.in_all // rounds.in_epoch,
            steps=rounds.in_all,
            fitted=lambda: self._committed(state),
            unit="rounds",
            epoch=state.rounds // rounds.in_epoch,
            step=state.rounds,
        )
        with Listeners(fit, callbacks, progress=progress) as listeners:
            while not state.finished:
                rounds.run()
                listeners.after_step(rounds.terms)
                if state.rounds % rounds.in_epoch == 0:
                    listeners.after_epoch(state.history[-1])
                    if fit.stopped is not None and not state.finished:
                        rounds.finish()
                # Also after the first round, so that a fit that is stopped later can be resumed.
                if state.rounds == 1 or state.finished or time.monotonic() - saved >= save_every:
                    self._commit(state)
                    saved = time.monotonic()

    def _committed(self, state: State) -> Self:
        self._commit(state)
        return self

    def _commit(self, state: State) -> None:
        self.posteriors.commit(*commit.content(self.model, state))

    def _last_commit(self) -> State:
        """Return the state of the store's last commit, and open its posteriors; raise if it is of another model."""
        folder = self.posteriors.folder
        model, state, tasks = commit.read(folder, self.module)
        with checkpoint.readable(folder):
            commit.refuse_other_model(model, self.model)
            self.network.constants = model.network.constants
            self.posteriors.open(tasks)
        return state
