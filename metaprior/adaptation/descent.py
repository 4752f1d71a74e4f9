"""Descent as a task model: K steps from theta, differentiated by one of the engines of ``metagrad``."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from metaprior.adaptation.task_model import Binding, HowGradients, Start, TaskModel
from metaprior.metagrad import reference
from metaprior.metagrad.engines import twice_reverse
from metaprior.metagrad.gradient_choice import choose_gradient
from metaprior.metagrad.inner_loop import adapt
from metaprior.metagrad.memory import Budget
from metaprior.metagrad.meta_batch import BatchSums, Stacker, meta_sums
from metaprior.metagrad.planner import Way
from metaprior.metagrad.problem import (
    AmortizedELBO,
    Descent,
    Engine,
    NonFinite,
    Objective,
    OuterTerms,
    Problem,
    QueryLoss,
)
from metaprior.metagrad.step_size_search import searched_step_sizes
from metaprior.noise import Noise
from metaprior.objectives import Terms
from metaprior.posterior import Posterior, Predictive
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

OBJECTIVES = ("query", "predictive", "abml")
SEARCH_TASKS = 8
VANISHED = 1e-12
"""Step size below which steps change nothing; the search for a first one does not go as low."""
SHARE, SHARE_WARM = 0.25, 0.9
"""Share of the best step size's gain that is enough for a shorter one, from scratch and after a warm start.

Steps that suit an untrained network are ten times too long a little later (sinusoids trained from the best ended at
twice the error), and short ones grow by learning."""


def bind(descent: Descent, binding: Binding) -> "DescentModel":
    """Return the task model of an inner loop; raise for arguments that cannot work together."""
    objective = _objective(binding)
    if binding.relative_sigma == 0 and (descent.kl_weight or objective.weights(1, 1).kl):
        raise ValueError(
            "relative_sigma=0 is a point prior, and the KL to a point is infinite: use "
            "adaptation=Descent(kl_weight=0, ...) and objective='query'"
        )
    return DescentModel(Problem(binding.network, binding.likelihood, descent, objective))


def _objective(binding: Binding) -> Objective:
    if binding.objective is not None and not isinstance(binding.objective, str):
        return binding.objective
    if binding.objective not in (None, *OBJECTIVES):
        raise ValueError(
            f"objective must be one of {', '.join(OBJECTIVES)}, or an Objective; got {binding.objective!r}"
        )
    name, samples = binding.objective_name(OBJECTIVES), binding.outer_samples
    if name == "abml":
        return AmortizedELBO(binding.num_tasks, samples, binding.hyperprior)
    if name == "predictive" and samples < 2:
        raise ValueError(f"objective='predictive' needs outer_samples of at least 2, got {samples}")
    return QueryLoss(samples, predictive=name == "predictive")


class DescentModel(TaskModel):
    """A problem, the engine that differentiates it, and whether the tasks of a meta-batch may be stacked."""

    advice: ClassVar[str] = (
        "a warm start, learned step sizes (Descent's learn_lr), a smaller kl_weight of Descent, a smaller lr"
    )

    def __init__(
        self, problem: Problem, engine: Engine = twice_reverse, stacked: bool = False, stacker: Stacker | None = None
    ) -> None:
        self.network, self.likelihood, self.steps = problem.network, problem.likelihood, problem.inner.steps
        self._problem, self.engine, self.stacked = problem, engine, stacked
        self._stacker = stacker or Stacker(problem, engine)

    @property
    def problem(self) -> Problem:
        """The problem that the engine differentiates."""
        return self._problem

    @property
    def how(self) -> HowGradients:
        """Engine, micro-batch, and whether tasks are stacked."""
        return HowGradients(self.engine.name, self.problem.micro_batch, self.stacked)

    def initial(self, targets: Tensor, relative_sigma: float = 0.1) -> WeightDistribution:
        """Return a first theta: the module's values, a noise scale from the targets, the given step size."""
        return self.problem.initial(targets, relative_sigma)

    def check_theta(self, theta: WeightDistribution) -> None:
        """Raise unless theta has the names and shapes of the problem."""
        self.problem.check_theta(theta)

    def check(self, task: Task) -> Task:
        """Return the task in the types that the engines trust."""
        return self.problem.check(task)

    def check_start(self, start: Start) -> None:
        """Raise if balanced step sizes are asked for and there is none for each tensor."""
        learned = self.problem.inner.learn_lr
        if start.balance_step_sizes and learned != "per_tensor":
            raise ValueError(
                "balance_step_sizes gives every tensor a step size of its own, which needs "
                f"Descent(learn_lr='per_tensor'); got {learned!r}"
            )

    def prepared(
        self,
        theta: WeightDistribution,
        tasks: Sequence[Task],
        budget: Budget,
        engine: Engine | None,
        *,
        before: HowGradients | None = None,
    ) -> "DescentModel":
        """Return the model with the fastest exact engine, micro-batch and stacking for tasks like these."""
        way = None if before is None else Way(before.engine, before.micro_batch)
        choice = choose_gradient(self.problem, theta, tasks, budget, engine, before=way)
        return DescentModel(choice.problem, choice.engine, choice.stacked)

    def sums(
        self, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise, *, means_move: bool = True
    ) -> BatchSums:
        """Return the sums of the engine's gradients, stacked where the tasks' shapes allow it."""
        problem = replace(self.problem, learn_trunk=means_move)
        return meta_sums(problem, theta, tasks, noise, engine=self.engine, stacked=self.stacks(tasks))

    def stacks(self, tasks: Sequence[Task]) -> bool:
        """Return whether these tasks are computed in one vectorised program."""
        return self.stacked and self._stacker(tasks)

    def pooled_loss(self, theta: WeightDistribution, x: Any, y: Tensor) -> Tensor:
        """Return the summed negative log-likelihood at the means of theta."""
        return self.likelihood.masking(y).nll(self.network(theta.mu, theta.plain, x), y, theta.plain).sum()

    def begin(self, theta: WeightDistribution, start: Start) -> WeightDistribution:
        """Return theta with scales that fit the means after a warm start, and a first step size that works."""
        if start.warm_started:
            theta = theta.replace(rho=self.network.relative_rho(theta.mu.detach(), start.relative_sigma))
        if theta.log_lr is not None and start.search_step_size:
            tasks, noise = start.first_tasks(SEARCH_TASKS)
            share, balanced = SHARE_WARM if start.trained else SHARE, start.balance_step_sizes
            theta = searched_step_sizes(self.problem, theta, tasks, noise, share=share, balanced=balanced)
        return theta

    def annealed(self, share: float) -> "DescentModel":
        """Return the model with the KLs of the inner and the outer loss multiplied by ``share``."""
        inner = replace(self.problem.inner, kl_weight=share * self.problem.inner.kl_weight)
        objective = self.problem.objective
        if isinstance(objective, AmortizedELBO):
            objective = replace(objective, kl_weight=share * objective.kl_weight)
        problem = replace(self.problem, inner=inner, objective=objective)
        return DescentModel(problem, self.engine, self.stacked, self._stacker)

    def adapt(
        self, theta: WeightDistribution, support: Examples, noise: Noise, steps: int | None = None
    ) -> Posterior | NonFinite:
        """Return q(phi | lambda) after ``steps`` steps (default: the inner loop's own)."""
        lambda_ = adapt(self.problem, theta, support, noise, steps=steps)
        return lambda_ if isinstance(lambda_, NonFinite) else self._posterior(lambda_)

    def prior(self, theta: WeightDistribution) -> Posterior:
        """Return p(phi | theta) as something that predicts."""
        return self._posterior(theta.detached())

    def _posterior(self, weights: WeightDistribution) -> Posterior:
        scale = TargetScale.identity(weights.mu)
        return Posterior(self.network, self.likelihood, weights.replace(log_lr=None), target_scale=scale)

    def idle(self, theta: WeightDistribution) -> str | None:
        """Return that the learned step sizes of means and plain parameters have vanished, if they have."""
        if theta.log_lr is None or not self.steps:
            return None
        tensors = len(self.network.layout.names)  # by tensor: means, scales, plain parameters that are adapted
        sizes = theta.log_lr.detach().exp()
        largest = float((torch.cat([sizes[:tensors], sizes[2 * tensors :]]) if sizes.ndim else sizes).max())
        if largest > VANISHED:
            return None
        return f"adaptation changes nothing: the learned step sizes have vanished, the largest is {largest:.1g}"

    def inner_loss(self, posterior: Predictive, theta: WeightDistribution, support: Examples, noise: Noise) -> Terms:
        """Return L_S(lambda, theta) per observation: ``.nll``, ``.kl`` (with its weight) and their ``.total``."""
        with torch.no_grad():
            return reference.inner_loss(self.problem.masking(support), _weights(posterior), theta, support, noise)

    def outer_loss(self, posterior: Predictive, theta: WeightDistribution, task: Task, noise: Noise) -> OuterTerms:
        """Return the outer loss of a task at an adapted posterior, term by term."""
        with torch.no_grad():
            problem = self.problem.masking(task.support, task.query)
            return reference.outer_loss(problem, _weights(posterior), theta, task, noise)


def _weights(posterior: Predictive) -> WeightDistribution:
    if not isinstance(posterior, Posterior):
        raise TypeError(f"posterior must be one of adapt(support), got {type(posterior).__name__}")
    return posterior.weights
