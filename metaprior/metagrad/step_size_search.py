"""The search for a first step size by trying candidates on tasks: training should not depend on ``Descent.lr``."""

import math
from collections.abc import Callable, Iterable, Sequence
from types import EllipsisType
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from metaprior.metagrad.finite import damages
from metaprior.metagrad.inner_loop import InnerRun, adapt
from metaprior.metagrad.problem import NonFinite, Problem
from metaprior.metagrad.reference import outer_loss
from metaprior.metagrad.vectors import whole
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.team import current_team
from metaprior.weights import WeightDistribution

LOWEST, HIGHEST = 1e-9, 10.0
FACTOR = 10.0
"""Ratio of neighbouring candidates; the best one's neighbours at the root of this ratio are tried too."""
HALFWAY = math.log(FACTOR) / 2
WORSE_IN_A_ROW = 2
"""Candidates are tried from the shortest step on, until so many in a row are worse than no adaptation."""
SAME = 1e-4
"""Share of the loss by which losses must differ: the shortest steps change nothing but its rounding."""

Value = TypeVar("Value")
Places = list[int] | EllipsisType
"""Entries of ``theta.log_lr``; ``...`` is all of them."""


def searched_step_sizes(
    problem: Problem,
    theta: WeightDistribution,
    tasks: Sequence[Task],
    noise: Noise,
    *,
    share: float,
    balanced: bool = False,
) -> WeightDistribution:
    """Return theta with a step size that works on these tasks.

    Candidates are ``Descent.lr`` times powers of 10, and the best one's neighbours halfway. The result is the smallest
    candidate whose gain over no adaptation is at least a ``share`` of the best one's; where none gains anything, the
    least harmful one, of equals the nearest to ``Descent.lr``. Candidates at which a task is not finite are left out.

    Where each tensor has a step size of its own, that of the likelihood's parameters (the noise scale) is searched
    first, without moving the weights: the size that suits it may be a thousand times another.

    Args:
        problem: the problem, with learned step sizes.
        theta: where the inner loop starts.
        tasks: this rank's tasks; those without support examples, or whose data are not finite, are left out. All ranks
            find the same step sizes.
        noise: the noise of this rank's first task.
        share: the share of the best candidate's gain that is enough.
        balanced: divide the weights' step sizes by the size of their gradients (see ``_Search.balance``).
    """
    usable = [task.support.size > 0 and found is None for task, found in zip(tasks, damages(tasks), strict=True)]
    trials = [(task, noise.at(task=noise.task + i)) for i, task in enumerate(tasks) if usable[i]]
    if not current_team().any(bool(trials)):
        return theta
    own = []  # the likelihood's places; none if all tensors share one
    if problem.inner.learn_lr == "per_tensor":
        first, names = 2 * len(problem.network.layout.names), problem.likelihood.parameter_names
        own = [first + place for place, name in enumerate(problem.adapted_names) if name in names]
    count = len(step_sizes_of(theta).flatten())
    weights = [place for place in range(count) if place not in own] if own else ...
    search = _Search(problem, trials, share)
    if own:
        resting = search.best(_with_step_size(theta, weights, -math.inf), own)
        theta = _with_step_size(theta, own, step_sizes_of(resting)[own])
    offsets = search.balance(theta, noise.at(task=0))[weights] if balanced else 0.0
    return search.best(theta, weights, offsets)


class _Search(NamedTuple):
    problem: Problem
    trials: Sequence[tuple[Task, Noise]]
    """This rank's tasks, and the noise of each."""
    share: float

    def best(self, theta: WeightDistribution, places: Places, offsets: Tensor | float = 0.0) -> WeightDistribution:
        """Return theta with a good step size, plus ``offsets``, at some places of ``theta.log_lr``."""

        def stepping(log_lr: float) -> WeightDistribution:
            return _with_step_size(theta, places, log_lr + offsets)

        def loss_at(log_lr: float) -> float:
            moved = stepping(log_lr)
            losses = self._each(lambda task, noise: _task_loss(self.problem, moved, task, noise))
            return math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else math.inf

        start, standing_still = math.log(self.problem.inner.lr), loss_at(-math.inf)
        same = SAME * (1 + abs(standing_still))

        def tried(candidates: Iterable[float]) -> dict[float, float]:
            """Return the finite losses, from the shortest step up to where longer ones are clearly too long."""
            losses, worse = dict[float, float](), 0
            for log_lr in candidates:
                loss = loss_at(log_lr)
                if math.isfinite(loss):
                    losses[log_lr] = loss
                worse = worse + 1 if losses and loss > standing_still + same else 0
                if worse == WORSE_IN_A_ROW:
                    break
            return losses

        down = math.ceil((math.log(LOWEST) - start) / math.log(FACTOR))
        up = math.floor((math.log(HIGHEST) - start) / math.log(FACTOR))
        losses = tried(start + power * math.log(FACTOR) for power in range(min(down, 0), max(up, 0) + 1))
        if not losses:
            return theta
        if min(losses.values()) >= standing_still - same:
            least_harm = min(max(loss, standing_still + same) for loss in losses.values())
            equals = [log_lr for log_lr, loss in losses.items() if loss <= least_harm]
            return stepping(min(equals, key=lambda log_lr: abs(log_lr - start)))
        best = min(losses, key=losses.__getitem__)
        losses |= tried([best - HALFWAY, best + HALFWAY])
        least = min(losses.values())
        enough = least + (1 - self.share) * (standing_still - least)
        return stepping(min(log_lr for log_lr, loss in losses.items() if loss <= enough))

    def balance(self, theta: WeightDistribution, noise: Noise) -> Tensor:
        r"""Return $\log(\bar g / g)$ for every place of ``theta.log_lr``.

        $g$ is the root mean square of a tensor's gradient in the first inner step on these tasks, and $\bar g$ the
        geometric mean over tensors. A step of SGD then moves all tensors by about the same, as a step of Adam does. It
        is zero for a tensor without a gradient. Tasks whose gradient is not finite are left out.
        """
        problem = self.problem
        found = self._each(lambda task, _: _mean_squares(problem, theta, task, noise).cpu())  # sent to other devices
        each = torch.stack(found).to(theta.mu.device)
        squares = each[each.isfinite().all(1)].sum(0)  # of no task at all: zeros, and nothing is balanced
        present = squares > 0
        logs = -0.5 * torch.where(present, squares, 1.0).log()
        counted = present.clone()
        count = len(problem.network.layout.names)
        counted[count : 2 * count] = False  # scales have their means' gradients, which count once
        return torch.where(present, logs - logs[counted].mean(), 0.0)

    def _each(self, function: Callable[[Task, Noise], Value]) -> list[Value]:
        """Return the function's values for every task of every rank."""
        _, parts = current_team().attempt(lambda: [function(*trial) for trial in self.trials], lambda part: part)
        return [value for part in parts for value in part]


def _mean_squares(problem: Problem, theta: WeightDistribution, task: Task, noise: Noise) -> Tensor:
    """Return the mean square of the data's gradient by every adapted tensor: means, scales, plain ones.

    Scales have their means' gradient. Their own is smaller by about sigma, and steps that are as much longer would let
    a small sigma vanish or explode within a task.
    """
    run = InnerRun(problem, theta, Task(task.support, task.support.first(0)), [noise])
    _, record = run.gradient(run.start(), 0)
    gradient = record.gradient
    means = [part.square().mean() for part in problem.network.layout.split(whole(gradient.g)).values()]
    plain = [gradient.plain[name].square().mean() for name in problem.adapted_names]
    return torch.stack([*means, *means, *plain])


def _with_step_size(theta: WeightDistribution, places: Places, log_lr: float | Tensor) -> WeightDistribution:
    step_sizes = step_sizes_of(theta).clone()
    step_sizes[places] = log_lr
    return theta.replace(log_lr=step_sizes)


def step_sizes_of(theta: WeightDistribution) -> Tensor:
    """Return the logarithms of theta's learned step sizes."""
    if theta.log_lr is None:
        raise ValueError("theta has no learned step sizes (learn_lr is 'no')")
    return theta.log_lr.detach()


def _task_loss(problem: Problem, theta: WeightDistribution, task: Task, noise: Noise) -> float:
    """Return the outer loss after adaptation; NaN if a number was not finite."""
    lambda_ = adapt(problem, theta, task.support, noise)
    if isinstance(lambda_, NonFinite):
        return math.nan
    with torch.no_grad():
        return float(outer_loss(problem, lambda_, theta, task, noise).total)
