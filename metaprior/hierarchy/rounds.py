"""The rounds of a fit: the posteriors of a mini-batch of tasks descend, then psi is fitted to all posteriors."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

import torch

from metaprior.errors import CheckpointError
from metaprior.hierarchy.hyper_posterior import fit_psi
from metaprior.hierarchy.model import FitPlan, HierarchicalModel, State
from metaprior.hierarchy.store import PosteriorStore
from metaprior.hierarchy.task_data import CheckedTasks, new_tasks
from metaprior.history import EpochRecord
from metaprior.noise import Noise
from metaprior.priors import GaussianHyperprior
from metaprior.stack_descent import Stack, StackDescent, new_record, visit
from metaprior.weights import WeightDistribution

SWEEPS, LAST_SWEEPS = 3, 200
"""Sweeps over psi after a round (each continues from the last), and at the end of a fit."""


def begin(state: State, store: PosteriorStore, plan: FitPlan, tasks: CheckedTasks, *, resume: bool) -> bool:
    """Set the state to the start of the fit; return False when there is nothing left to do."""
    stopped = not state.finished
    if stopped and not resume:
        raise CheckpointError(
            f"{store.folder} holds a fit that was stopped at round {state.rounds}: resume=True continues it, "
            "give_up() makes it the start of another one"
        )
    new = new_tasks(store.entries, tasks.entries, growing=not stopped, folder=store.folder)
    if stopped and state.plan is not None:
        state.plan.refuse_other(plan)
        return True
    if resume and not new and state.plan == plan:
        return False
    store.entries.extend(new)
    state.plan, state.rounds, state.finished = plan, 0, False
    return True


class Rounds:
    """What every round of one fit needs, and ``run``, which takes the next one."""

    def __init__(self, model: HierarchicalModel, state: State, store: PosteriorStore, tasks: CheckedTasks) -> None:
        assert state.plan is not None, "a fit has begun"
        self.model, self.state, self._store, self._tasks, self._plan = model, state, store, tasks, state.plan
        self._live = [index for index, entry in enumerate(store.entries) if not entry.forgotten]
        self._observations = sum(store.entries[index].observations for index in self._live)
        self.in_epoch = math.ceil(len(self._live) / state.plan.task_batch)  # rounds that visit every task once
        self.in_all = state.plan.epochs * self.in_epoch
        self._visited: list[int] = []
        self._energy = model.energy(state, tasks.data_of(tasks.entries[0], state.target_scale))

    def run(self) -> None:
        """Take the next round, and add a record to the history after the last one of an epoch."""
        state, plan, live, noise = self.state, self._plan, self._live, Noise(self.model.seed)
        epoch, part = divmod(state.rounds, self.in_epoch)
        order = torch.randperm(len(live), generator=noise.fork("order").at(step=epoch).generator()).tolist()
        chosen = [live[place] for place in order[part * plan.task_batch : (part + 1) * plan.task_batch]]
        self._visited = chosen
        steps = range(epoch * plan.local_steps, (epoch + 1) * plan.local_steps)
        for stack in self._stacks(chosen):
            self._visit(stack, steps, noise)
        state.rounds += 1
        if state.rounds == self.in_all:
            self.finish()
        else:
            self._fit_psi(SWEEPS)
        if part + 1 == self.in_epoch:
            state.history.append(self._record())

    def finish(self) -> None:
        """End the fit after the rounds that were taken."""
        self._fit_psi(LAST_SWEEPS)
        self.state.finished = True

    def _fit_psi(self, sweeps: int) -> None:
        if isinstance(self.model.hyperprior, GaussianHyperprior):  # where theta is fixed, psi stays as it is
            self.state.psi = fit_psi(self.state.psi, self.state.sums, self.model.hyperprior, sweeps)

    def terms(self) -> dict[str, float]:
        """Return the terms per observation of the tasks that the last round visited."""
        entries = [self._store.entries[index] for index in self._visited]
        observations = sum(entry.observations for entry in entries)
        nll, kl = sum(entry.nll for entry in entries) / observations, sum(entry.kl for entry in entries) / observations
        return {"loss": nll + kl, "nll": nll, "kl": kl}

    def _record(self) -> EpochRecord:
        """Return the objective per observation, each task's part as of its last visit."""
        entries, psi = [self._store.entries[index] for index in self._live], self.state.psi
        sums = sum(entry.nll for entry in entries), sum(entry.kl for entry in entries), psi.kl_to(self.model.hyperprior)
        nll, kl, hyper = (value / self._observations for value in sums)
        steps, number = self._plan.local_steps * len(entries), len(self.state.history) + 1
        counts = {"tasks": len(entries), "observations": self._observations, **self._tasks.losses}
        return EpochRecord(number, nll + kl + hyper, nll, kl, hyper, steps=steps, **counts)

    def _visit(self, stack: Stack, steps: range, noise: Noise) -> None:
        state, local, live = self.state, self._plan.local(), self._live
        # Every stack takes a step of its own on the shared parameters: a stack of few tasks counts less.
        most = min(self._plan.task_batch, len(live), self._energy.tasks_at_once(local))
        weight = len(stack.indices) / most * stack.size * len(live) / self._observations
        descent = StackDescent(self._energy, stack, state.psi, state.shared, local, noise)
        records, terms = visit(descent, steps, shared_lr=True, weight=weight)
        after = WeightDistribution(records[:, 0], records[:, 1])
        state.sums = state.sums.updated(stack.weights if stack.steps_taken else None, after)
        for place, index in enumerate(stack.indices):
            own = {"nll": float(terms.nll[place]), "kl": float(terms.kl[place])}
            self._store.write(index, records[place], steps=descent.steps_taken, **own)

    def _stacks(self, chosen: Sequence[int]) -> Iterator[Stack]:
        """Iterate over stacks of tasks with equal shapes and equally many steps, in a fixed order."""
        at_once = self._energy.tasks_at_once(self._plan.local())

        def kind(index: int) -> tuple[int, str]:
            return self._store.entries[index].steps, self._store.entries[index].shapes

        for (taken, _), same in groupby(sorted(chosen, key=kind), key=kind):
            indices = list(same)
            for begin in range(0, len(indices), at_once):
                part = indices[begin : begin + at_once]
                names = [self._store.entries[index].name for index in part]
                start = self.model.start(self.state)
                records = torch.stack([self._store.read(index) if taken else new_record(start) for index in part])
                data = [self._tasks.data_of(self._store.entries[index], self.state.target_scale) for index in part]
                yield Stack(names, part, records.to(data[0].y.device), taken, data)
