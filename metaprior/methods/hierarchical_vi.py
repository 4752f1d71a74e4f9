r"""Hierarchical variational inference: a posterior over the prior, and one for every task.

Minimises, over $\psi$ and $\lambda_1..\lambda_M$ together,

$$E_{q(\theta;\psi)}\Big[\sum_{i=1}^M E_{q(\phi_i;\lambda_i)}[-\log p(D_i|\phi_i)]
+ KL(q(\phi_i;\lambda_i)\|p(\phi_i|\theta))\Big] + KL(q(\theta;\psi)\|p(\theta))$$

(Amit & Meir 2018 have the same hierarchy with another bound.) The method's page is ``docs/methods/hierarchical-vi.md``.
"""

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from torch import nn
from tqdm import tqdm

from metaprior import checkpoint
from metaprior.errors import CheckpointError, TrainingDiverged
from metaprior.evaluation import Evaluation, evaluate
from metaprior.hierarchy.hyper_posterior import HyperPosterior, refitted
from metaprior.hierarchy.local_descent import ROWS, LocalDescent, Stack, new_record
from metaprior.hierarchy.model import KIND, HierarchicalModel, Hyperprior, model_in
from metaprior.hierarchy.rounds import LAST_SWEEPS, Rounds
from metaprior.hierarchy.state import FitPlan, HierarchyTerms, State, refuse_other_plan
from metaprior.hierarchy.store import PosteriorStore
from metaprior.hierarchy.task_data import CheckedTasks, TaskData, as_examples, new_tasks
from metaprior.hierarchy.two_levels import HierarchicalPosterior
from metaprior.hyperprior import GaussianHyperprior
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.problem import Problem
from metaprior.network import DEFAULT_RELATIVE_SIGMA, BayesianNetwork
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.tasks.source import Tasks
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution


class HierarchicalVI:
    """The full hierarchy for any ``nn.Module``: what is known about the prior, and about each of M tasks.

    Posteriors live in a folder, not in memory, which holds those of a few tasks at a time; a training that is killed
    goes on from its last commit, bit for bit.

    Args:
        module: the network. Its present parameters are where means start; it is left as it is.
        likelihood: ``Gaussian()``, ``HeteroscedasticGaussian()``, ``Categorical()``, ``Bernoulli()``. What it learns (a
            noise scale), and parameters that are not random, are point values that all tasks share.
        hyperprior: p(theta), a ``GaussianHyperprior``; or a theta that is known (a ``WeightDistribution``): nothing is
            learned about the prior then, and every task is on its own.
        store: folder of the posteriors. One that exists is taken up. None: one in the system's temporary
            folder, gone with this object (where that folder lies in memory, give another).
        stochastic: regular expression for the names of the random parameters (default: the module's own
            ``stochastic``, or all).
        relative_sigma: initial sigma of each random tensor as a fraction of its own root mean square.
        seed: of task order, shuffling and weight noise.

    After ``fit``: ``psi_`` (the ``HyperPosterior``), ``history_`` (the objective's terms by epoch), ``task_names_``.
    """

    def __init__(
        self,
        module: nn.Module,
        likelihood: Likelihood,
        *,
        hyperprior: Hyperprior = GaussianHyperprior(),  # noqa: B008 (frozen)
        store: str | os.PathLike[str] | None = None,
        stochastic: str | None = None,
        relative_sigma: float = DEFAULT_RELATIVE_SIGMA,
        seed: int = 0,
    ) -> None:
        self.network = BayesianNetwork(module, stochastic)
        self.problem = Problem(self.network, likelihood)  # what cannot work is said here
        self.model = HierarchicalModel(self.network, likelihood, hyperprior, relative_sigma, int(seed))
        folder = Path(store) if store is not None else _temporary_folder(self)
        self.store = PosteriorStore(folder, KIND, ROWS, self.network.layout.dimension, self.network.dtype)
        self._state: State | None = None
        if self.store.exists:
            self._state = self._taken_up()

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
    ) -> Self:
        """Learn about the prior and about every task; where the store has posteriors already, from those on.

        Args:
            tasks: tasks with a length (all their data are used, support and query set together), or examples (x, y)
                by name. A task is recognised by its name and its data. All that are in the store have to be there
                again; new ones may come along, and start from what is known about the prior.
            epochs: visits to every task.
            local_steps: steps of a posterior in one visit. Few: the oftener psi is fitted to posteriors, the more they
                learn from each other. More save the reading and writing of large posteriors.
            task_batch: tasks in a round, after which psi is fitted to the posteriors of all.
            batch_size: observations in a step.
            lr: Adam's learning rate for posteriors, falling to zero along a cosine. (Psi needs none.)
            samples: weight samples in a step.
            kl_warmup: fraction of the training over which the weight of the posteriors' KL rises to 1, from 1e-4.
            resume: go on with a fit that was stopped, with the same tasks and settings; one that is finished (or not
                begun) is no mistake.
            save_every: seconds between commits. A fit that ends with an error, or is killed, leaves the last one.
            progress: show a progress bar.
        """
        plan = FitPlan(epochs, local_steps, task_batch, batch_size, lr, samples, kl_warmup)
        if not save_every >= 0:
            raise ValueError(f"save_every are seconds, at least 0, got {save_every}")
        checked = CheckedTasks(tasks, self.problem, progress=progress)
        with self._writing(checked) as state:
            if self._begin(state, plan, checked, resume):
                self._run(state, self._rounds(state, checked), save_every, progress)
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
        """The posterior of a task that was not there in training: its lambda, descended under E_q(theta) KL.

        It starts from the prior's centre, with half of its scales, and takes ``steps`` steps. What is not given is as
        in the last fit (``steps``: as many as a posterior took there; there is no KL warm-up). With few data, less than
        a few hundred steps leave scales too small, and forecasts too sure.
        """
        state = self._fitted()
        given = {"steps": steps, "lr": lr, "batch_size": batch_size, "samples": samples}
        known = {name: value for name, value in given.items() if value is not None}
        plan = replace(state.fit_plan.local(), kl_warmup=0.0, **known)  # type: ignore[arg-type]
        checked = self.problem.check_examples(as_examples(support, "support"), "support")
        stack = Stack(["the new task"], [0], new_record(self.model.start(state)).unsqueeze(0), 0, [checked])
        descent = LocalDescent(self.network, self.model.likelihood, Noise(seed).fork("adapt"))
        visit = descent.visit(stack, state.psi, state.shared, plan, steps=range(plan.steps))
        return self.model.posterior(state, WeightDistribution(visit.records[0, 0], visit.records[0, 1]))

    @property
    def prior(self) -> HierarchicalPosterior:
        """The prior itself as something that predicts: a new task before its first observation."""
        state = self._fitted()
        return self.model.posterior(state, state.psi.centre())

    def posterior(self, task: str) -> HierarchicalPosterior:
        """The posterior of a task of the training, by its name."""
        return self.model.posterior(self._fitted(), self._weights(self._place(task)))

    def elbo(self, tasks: TaskData, *, samples: int = 32, seed: int = 0) -> HierarchyTerms:
        """The objective at the present psi and posteriors, with all data and ``samples`` weight samples a task.

        ``tasks`` are those of the store, all of them, with the data they were learned from.
        """
        state, places, given = self._fitted(), self._places(), CheckedTasks(tasks, self.problem)
        if new_tasks(self.store.entries, given.entries, growing=True, folder=self.store.folder):
            raise ValueError("the objective is that of the tasks in the store, and some of the given ones are new")
        nll, kl = 0.0, 0.0
        for name, data in given:
            q = self.posterior(name).weights
            nll += self.model.nll(q, data, Noise(seed).fork("elbo").at(task=places[name]), samples)
            kl += float(state.psi.kl_from(q))
        return HierarchyTerms(nll, kl, state.psi.kl_to(self.model.hyperprior))

    def forget(self, task: str) -> Self:
        """Take a task out: its posterior, name and fingerprint leave the store, and psi is what the others make it.

        What other tasks' posteriors, shared parameters and the noise scale had from it stays until they are fitted
        again.
        """
        self._fitted()
        with self._writing() as state:
            if not state.finished:
                raise CheckpointError(
                    f"{self.store.folder} holds a fit that was stopped at round {state.rounds}, which counts on all of "
                    "its tasks: first finish it with fit(tasks, ..., resume=True), or give_up() the rest of it"
                )
            place = self._place(task, visited=False)
            if self.store.entries[place].steps:
                state.sums = state.sums.without(self._weights(place))
            if isinstance(self.model.hyperprior, GaussianHyperprior):
                state.psi = refitted(state.psi, state.sums, self.model.hyperprior, LAST_SWEEPS)
            self.store.forget(place)
            self._commit(state)
            self.store.wipe(place)
        return self

    def give_up(self) -> Self:
        """Take a fit that was stopped for finished: the next one starts where it stopped, with other settings or
        tasks."""
        with self._writing() as state:
            state.finished = True
            self._commit(state)
        return self

    def evaluate(
        self,
        tasks: Iterable[Task] | Tasks,
        *,
        shots: Sequence[int | None] = (0, None),
        steps: Sequence[int] | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        samples: int = 20,
        examples_per_shot: int = 1,
        progress: bool = True,
    ) -> Evaluation:
        """Forecasts of new tasks' query sets, before and after adaptation: by shots (None: all) and by steps.

        ``lr`` and ``batch_size`` are those of ``adapt``, ``samples`` the weight samples of a forecast.
        """

        def adapted(support: Examples | None, count: int) -> Posterior:
            try:
                return self.prior if support is None else self.adapt(support, count, lr=lr, batch_size=batch_size)
            except TrainingDiverged as error:  # counted as a failure of this task
                raise FloatingPointError(str(error)) from error

        return evaluate(
            adapted,
            tasks,
            shots=shots,
            steps=[self._fitted().fit_plan.local().steps] if steps is None else steps,
            samples=samples,
            examples_per_shot=examples_per_shot,
            progress=progress,
        )

    @property
    def psi_(self) -> HyperPosterior:
        """q(theta; psi)."""
        return self._fitted().psi

    @property
    def history_(self) -> list[HierarchyTerms]:
        """The objective by epoch, as it was met on the way: each task's part is an estimate from the mini-batches of
        its visit. ``elbo`` gives the value itself, from all data."""
        return list(self._fitted().history)

    @property
    def task_names_(self) -> list[str]:
        """Tasks that have a posterior."""
        return list(self._places())

    @classmethod
    def load(cls, folder: str | os.PathLike[str], module: nn.Module | None = None) -> Self:
        """A store, ready to predict or to train on. Networks of this package are rebuilt; for any other, give a module
        of the same structure."""
        model = model_in(folder, module)
        return cls(
            model.network.module,
            model.likelihood,
            hyperprior=model.hyperprior,
            store=folder,
            stochastic=model.network.stochastic,
            relative_sigma=model.relative_sigma,
            seed=model.seed,
        )

    def _fitted(self) -> State:
        if self._state is None or self._state.plan is None:
            raise ValueError("nothing is known about the prior yet: call fit(tasks) first")
        return self._state

    def _places(self, *, visited: bool = True) -> dict[str, int]:
        entries = enumerate(self.store.entries)
        return {entry.name: place for place, entry in entries if not entry.forgotten and (entry.steps or not visited)}

    def _place(self, task: str, *, visited: bool = True) -> int:
        self._fitted()
        places = self._places(visited=visited)
        if task not in places:
            known = ", ".join(map(repr, list(places)[:5]))
            raise KeyError(f"no task is called {task!r}; the {len(places)} in the store are {known}, ...")
        return places[task]

    def _weights(self, place: int) -> WeightDistribution:
        record = self.store.read(place).to(self.network.device)
        return WeightDistribution(record[0], record[1])

    @contextmanager
    def _writing(self, first: CheckedTasks | None = None) -> Iterator[State]:
        """The store's last commit, and nobody else writes; whatever goes wrong, the last commit is what is left.

        Where there is no store yet, one is made for the tasks that are ``first``.
        """
        with self.store.locked():
            if first is not None and not self.store.exists:
                self._commit(self.model.first_state(first))
            self._state = self._taken_up()
            try:
                yield self._state
            except BaseException:
                self._state = self._taken_up()
                raise

    def _begin(self, state: State, plan: FitPlan, tasks: CheckedTasks, resume: bool) -> bool:
        """Set the state to where the fit starts; false when there is nothing left to do."""
        folder, stopped = self.store.folder, not state.finished
        if stopped and not resume:
            raise CheckpointError(
                f"{folder} holds a fit that was stopped at round {state.rounds}: resume=True goes on with it, "
                "give_up() makes it the start of another one"
            )
        new = new_tasks(self.store.entries, tasks.entries, growing=not stopped, folder=folder)
        if stopped:
            refuse_other_plan(state.plan, plan)
            return True
        if resume and not new and state.plan == plan:
            return False
        self.store.entries.extend(new)
        state.plan, state.rounds, state.finished = plan, 0, False
        return True

    def _rounds(self, state: State, tasks: CheckedTasks) -> Rounds:
        weights = self.network.initial().replace(plain=state.shared.detached())
        return Rounds(
            self.store,
            tasks.data_of,
            LocalDescent(self.network, self.model.likelihood, Noise(self.model.seed)),
            self.model.hyperprior,
            lambda: self.model.start(state),
            self.network.numbers_per_observation(weights, tasks.data_of(tasks.entries[0]).x),
        )

    def _run(self, state: State, rounds: Rounds, save_every: float, progress: bool) -> None:
        saved, total = time.monotonic(), rounds.in_all(state)
        bar = tqdm(desc="hierarchy", initial=state.rounds, total=total, unit="round", disable=not progress, delay=1)
        with bar:
            while not state.finished:
                rounds.run(state, Noise(self.model.seed))
                bar.update()
                if state.history:
                    bar.set_postfix(elbo=f"{state.history[-1].elbo:.4g}", refresh=False)
                # The first round too: from then on it is known that this fit has begun.
                if state.rounds == 1 or state.finished or time.monotonic() - saved >= save_every:
                    self._commit(state)
                    saved = time.monotonic()

    def _commit(self, state: State) -> None:
        self.store.commit(*self.model.content(state))

    def _taken_up(self) -> State:
        """The state of the store's last commit."""
        saved = self.model.saved_in(self.store.folder)
        with checkpoint.readable(self.store.folder):
            self.store.take_up(saved.tasks)
        return saved.state


def _temporary_folder(owner: object) -> Path:
    """A folder that is gone with its owner."""
    folder = Path(tempfile.mkdtemp(prefix="metaprior-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder
