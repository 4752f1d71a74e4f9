"""A round: the posteriors of a mini-batch of tasks descend, then psi is fitted to all posteriors."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch

from metaprior.hierarchy.hyper_posterior import refitted
from metaprior.hierarchy.local_descent import LocalDescent, Stack, new_record
from metaprior.hierarchy.state import FitPlan, HierarchyTerms, State
from metaprior.hierarchy.store import Entry, PosteriorStore
from metaprior.hyperprior import GaussianHyperprior
from metaprior.noise import Noise
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution

SWEEPS, LAST_SWEEPS = 3, 200
"""Of psi in a round, which goes on from the last one's; and at the end of a fit."""


@dataclass(frozen=True)
class Rounds:
    """What every round needs: where posteriors lie, where data come from, how they descend, where new ones start."""

    store: PosteriorStore
    data_of: Callable[[Entry], Examples]
    descent: LocalDescent
    hyperprior: GaussianHyperprior | WeightDistribution
    """A theta that is known is never learned: psi stays as it is."""
    start: Callable[[], WeightDistribution]
    numbers_per_observation: int

    @cached_property
    def live(self) -> list[int]:
        """Places of the tasks that take part."""
        return [index for index, entry in enumerate(self.store.entries) if not entry.forgotten]

    @cached_property
    def _observations(self) -> int:
        """Of all tasks together."""
        return sum(self.store.entries[index].observations for index in self.live)

    def in_all(self, state: State) -> int:
        """Rounds of the present fit."""
        return state.fit_plan.epochs * self._in_epoch(state.fit_plan)

    def _in_epoch(self, plan: FitPlan) -> int:
        """Rounds in which every task has its turn once."""
        return math.ceil(len(self.live) / plan.task_batch)

    def run(self, state: State, noise: Noise) -> None:
        """The next round of a fit, and what belongs to the end of an epoch and of the whole."""
        plan, live = state.fit_plan, self.live
        epoch, part = divmod(state.rounds, self._in_epoch(plan))
        order = torch.randperm(len(live), generator=noise.fork("order").at(step=epoch).generator()).tolist()
        chosen = [live[place] for place in order[part * plan.task_batch : (part + 1) * plan.task_batch]]
        steps = range(epoch * plan.local_steps, (epoch + 1) * plan.local_steps)
        for stack in self._stacks(chosen, plan):
            self._visit(stack, state, plan, steps)
        state.rounds += 1
        state.finished = state.rounds == self.in_all(state)
        if isinstance(self.hyperprior, GaussianHyperprior):
            state.psi = refitted(state.psi, state.sums, self.hyperprior, LAST_SWEEPS if state.finished else SWEEPS)
        if part + 1 == self._in_epoch(plan):
            state.history.append(self._terms(state))

    def _terms(self, state: State) -> HierarchyTerms:
        """The objective, each task's part as of its last visit."""
        entries = [self.store.entries[index] for index in self.live]
        hyper_kl = state.psi.kl_to(self.hyperprior)
        return HierarchyTerms(sum(entry.nll for entry in entries), sum(entry.kl for entry in entries), hyper_kl)

    def _visit(self, stack: Stack, state: State, plan: FitPlan, steps: range) -> None:
        local, live = plan.local(), self.live
        # Every stack takes a step of its own on what is shared: one of few tasks counts less than one of many.
        most = min(plan.task_batch, len(live), self._at_once(plan))
        visit = self.descent.visit(
            stack,
            state.psi,
            state.shared,
            local,
            steps=steps,
            weight=len(stack.indices) / most * stack.size * len(live) / self._observations,
            shared_lr=[local.lr_at(step) for step in steps],
        )
        after = WeightDistribution(visit.records[:, 0], visit.records[:, 1])
        state.sums = state.sums.changed(stack.weights if stack.steps_taken else None, after)
        for place, index in enumerate(stack.indices):
            known = {"nll": float(visit.nll[place]), "kl": float(visit.kl[place])}
            self.store.write(index, visit.records[place], steps=stack.steps_taken + len(steps), **known)

    def _at_once(self, plan: FitPlan) -> int:
        return self.descent.tasks_at_once(plan.local(), self.numbers_per_observation)

    def _stacks(self, chosen: Sequence[int], plan: FitPlan) -> Iterator[Stack]:
        """Tasks of equal shapes and equally many steps, in stacks that are small enough, in a fixed order."""
        at_once = self._at_once(plan)

        def kind(index: int) -> tuple[int, str]:
            return self.store.entries[index].steps, self.store.entries[index].shapes

        for (taken, _), same in groupby(sorted(chosen, key=kind), key=kind):
            indices = list(same)
            for begin in range(0, len(indices), at_once):
                part = indices[begin : begin + at_once]
                names = [self.store.entries[index].name for index in part]
                records = torch.stack([self.store.read(index) if taken else new_record(self.start()) for index in part])
                data = [self.data_of(self.store.entries[index]) for index in part]
                yield Stack(names, part, records.to(data[0].x.device), taken, data)
