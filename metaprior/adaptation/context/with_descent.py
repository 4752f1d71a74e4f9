r"""Context and descent: K steps from theta on a network that reads the context of the same support set.

Within the inner loop the context $c_i$ of a task is a plain parameter that does not move, so every engine gives its
exact derivative $g_i$ beside the others. What remains is one pass back through the encoder with parameters $\psi$:

$$\frac{d}{d\psi}\sum_i \mathrm{loss}_i = \sum_i \Big(\frac{\partial c_i}{\partial\psi}\Big)^T g_i.$$
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from metaprior.adaptation import descent
from metaprior.adaptation.context.conditioning import ENCODER, Conditioning
from metaprior.adaptation.context.reading import VALUE
from metaprior.adaptation.context.settings import Combination
from metaprior.adaptation.descent import DescentModel
from metaprior.adaptation.task_model import Binding, HowGradients, Start, TaskModel
from metaprior.metagrad.finite import damages, first_non_finite
from metaprior.metagrad.memory import Budget
from metaprior.metagrad.meta_batch import BatchSums, stack_of
from metaprior.metagrad.problem import Descent, Engine, NonFinite, OuterTerms, Problem
from metaprior.metagrad.sweep import Sweep
from metaprior.noise import Noise
from metaprior.objectives import Terms
from metaprior.posterior import Posterior, Predictive
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

NOT_OF_CONTEXT = r"(?!context\.)"
"""Front of a pattern that keeps it from matching what belongs to the context."""


def bind(combination: Combination, binding: Binding) -> "ContextDescentModel":
    """Return the task model of descent on a network that reads a context."""
    stochastic = f"{NOT_OF_CONTEXT}(?:{binding.network.stochastic})"
    conditioning = Conditioning(combination.context, binding, stochastic, noise=True)
    then: Descent = combination.then
    plain = (*binding.network.plain_names, *binding.likelihood.parameter_names)
    if then.adapt is not None:
        then = replace(then, adapt=f"{NOT_OF_CONTEXT}(?:{then.adapt})" if plain else None)
    inner = replace(binding, network=conditioning.network, likelihood=conditioning.likelihood)
    return ContextDescentModel(conditioning, descent.bind(then, inner))


class ContextDescentModel(TaskModel):
    """Descent in which every task has the context of its own support set."""

    advice = DescentModel.advice

    def __init__(self, conditioning: Conditioning, inner: DescentModel) -> None:
        self._conditioning, self._inner = conditioning, inner
        self.network, self.likelihood, self.steps = inner.network, inner.likelihood, inner.steps

    @property
    def problem(self) -> Problem:
        """The problem that the engine differentiates for one task; its theta holds the task's context."""
        return self._inner.problem

    @property
    def how(self) -> HowGradients:
        """Engine, micro-batch, and whether tasks are stacked."""
        return self._inner.how

    def initial(self, targets: Tensor, relative_sigma: float = 0.1) -> WeightDistribution:
        """Return a first theta: that of descent, with an encoder in place of a context."""
        return self._conditioning.initial(self._inner.initial(targets, relative_sigma))

    def check(self, task: Task) -> Task:
        """Return the task in the types that the engines trust."""
        return self._inner.check(task)

    def check_start(self, start: Start) -> None:
        """Raise if balanced step sizes are asked for and there is none for each tensor."""
        self._inner.check_start(start)

    def prepared(
        self,
        theta: WeightDistribution,
        tasks: Sequence[Task],
        budget: Budget,
        engine: Engine | None,
        *,
        before: HowGradients | None = None,
    ) -> "ContextDescentModel":
        """Return the model with the fastest exact engine, micro-batch and stacking for tasks like these."""
        inner = self._inner.prepared(self._without_examples(theta), tasks, budget, engine, before=before)
        return ContextDescentModel(self._conditioning, inner)

    def sums(
        self, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise, *, means_move: bool = True
    ) -> BatchSums:
        """Return the sums of the engine's gradients, pulled back through the encoder."""
        given = [noise.at(task=noise.task + index) for index in range(len(tasks))]
        leaves = theta.map(lambda value: value.detach().requires_grad_())
        with torch.enable_grad():
            contexts = self._conditioning.contexts(leaves, [task.support for task in tasks])
        sums, good = self._inner_sums(theta, contexts.detach(), tasks, given, means_move)
        if sums.grads is None:
            return sums
        if not all(good):  # what is not finite in a context would reach the derivatives of the others
            with torch.enable_grad():
                contexts = self._conditioning.contexts(leaves, [task.support for task in compress(tasks, good)])
        encoder = {name: leaf for name, leaf in leaves.plain.items() if name.startswith(ENCODER)}
        back = torch.autograd.grad(
            contexts, list(encoder.values()), sums.grads.plain.pop(VALUE), allow_unused=True, materialize_grads=True
        )
        own = dict(zip(encoder, back, strict=True))
        if failure := first_non_finite({f"gradient by {n}": g for n, g in own.items()}, sums.names[0], "outer"):
            return BatchSums(failures=(*sums.failures, *(replace(failure, task=name) for name in sums.names)))
        plain = {**sums.grads.plain, **own}
        return replace(sums, grads=sums.grads.replace(plain={name: plain[name] for name in theta.plain}))

    def _inner_sums(
        self,
        theta: WeightDistribution,
        contexts: Tensor,
        tasks: Sequence[Task],
        noises: Sequence[Noise],
        means_move: bool,
    ) -> tuple[BatchSums, list[bool]]:
        """Return the sums, with a row for each finite task in the derivative by c, and which tasks are finite."""
        if self._inner.stacks(tasks) and not any(damages(tasks)):
            sums = self._stacked(theta, contexts, tasks, noises)
            if sums is not None:
                return sums, [True] * len(tasks)
        parts = [
            self._inner.sums(self._conditioning.given(theta, own), [task], noise, means_move=means_move)
            for own, task, noise in zip(contexts, tasks, noises, strict=True)
        ]
        rows = [part.grads.plain.pop(VALUE) for part in parts if part.grads is not None]
        total = reduce(_added, parts, BatchSums())
        if total.grads is not None:
            total.grads.plain[VALUE] = torch.stack(rows)
        return total, [part.grads is not None for part in parts]

    def _stacked(
        self, theta: WeightDistribution, contexts: Tensor, tasks: Sequence[Task], noises: Sequence[Noise]
    ) -> BatchSums | None:
        """Return the sums by one vectorised program, or None if one of the numbers is not finite."""
        engine = self._inner.engine
        assert isinstance(engine, Sweep)  # others do not stack
        terms, _, grads = engine.stacked(
            self.problem, self._conditioning.given(theta, contexts), stack_of(tasks), noises
        )
        if not all(bool(value.isfinite().all()) for value in (*terms, *grads.tensors())):
            return None
        rows = grads.plain.pop(VALUE)
        total = grads.map(lambda grad: grad.sum(0))
        total.plain[VALUE] = rows
        names = tuple(task.name for task in tasks)
        return BatchSums(names, len(tasks), total, OuterTerms(*(term.sum(0) for term in terms)))

    def pooled_loss(self, theta: WeightDistribution, x: Any, y: Tensor) -> Tensor:
        """Return the summed negative log-likelihood at the means of theta, with the context of no examples."""
        return self._inner.pooled_loss(self._without_examples(theta), x, y)

    def begin(self, theta: WeightDistribution, start: Start) -> WeightDistribution:
        """Return theta with scales and step sizes as descent begins with, searched with the context of no examples."""
        begun = self._inner.begin(self._without_examples(theta), start)
        return theta.replace(mu=begun.mu, rho=begun.rho, log_lr=begun.log_lr)

    def annealed(self, share: float) -> "ContextDescentModel":
        """Return the model with the KLs of the inner and the outer loss multiplied by ``share``."""
        return ContextDescentModel(self._conditioning, self._inner.annealed(share))

    def adapt(
        self, theta: WeightDistribution, support: Examples, noise: Noise, steps: int | None = None
    ) -> Posterior | NonFinite:
        """Return q(phi | lambda) of the network with the support set's context, after steps on the same set."""
        with torch.no_grad():
            context = self._conditioning.contexts(theta, [support])[0]
        return self._inner.adapt(self._conditioning.given(theta, context), support, noise, steps)

    def prior(self, theta: WeightDistribution) -> Posterior:
        """Return p(phi | theta) of the network with the context of no examples."""
        with torch.no_grad():
            return self._inner.prior(self._without_examples(theta))

    def inner_loss(self, posterior: Predictive, theta: WeightDistribution, support: Examples, noise: Noise) -> Terms:
        """Return L_S(lambda, theta) per observation: ``.nll``, ``.kl`` (with its weight) and their ``.total``."""
        return self._inner.inner_loss(posterior, self._as_in(posterior, theta), support, noise)

    def outer_loss(self, posterior: Predictive, theta: WeightDistribution, task: Task, noise: Noise) -> OuterTerms:
        """Return the outer loss of a task at an adapted posterior, term by term."""
        return self._inner.outer_loss(posterior, self._as_in(posterior, theta), task, noise)

    def _as_in(self, posterior: Predictive, theta: WeightDistribution) -> WeightDistribution:
        context = posterior.weights.plain[VALUE] if isinstance(posterior, Posterior) else theta.mu.new_zeros(0)
        return self._conditioning.given(theta, context)

    def _without_examples(self, theta: WeightDistribution) -> WeightDistribution:
        """Return theta as the conditioned network takes it, with the context of no examples."""
        return self._conditioning.given(theta, self._conditioning.nothing(theta))


def _added(one: BatchSums, other: BatchSums) -> BatchSums:
    failures = (*one.failures, *other.failures)
    if one.grads is None or one.terms is None:
        return replace(other, failures=failures)
    if other.grads is None or other.terms is None:
        return replace(one, failures=failures)
    one.grads.zip_map(Tensor.add_, other.grads)
    terms = OuterTerms(*map(torch.add, one.terms, other.terms))
    return BatchSums((*one.names, *other.names), one.weight + other.weight, one.grads, terms, failures)
