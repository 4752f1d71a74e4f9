"""Functions for a training loop of your own: one epoch with your optimiser, and the forecast for one task.

    learner.start(tasks)
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-3)
    for _ in range(epochs):
        record = meta_train_one_epoch(learner, tasks, optimizer)
    mean, std, epistemic, forecast = meta_evaluate(learner, new_task)

``MetaLearner.fit`` does more (phases, schedules, a search for the step size); here every step is plain.
"""

from collections.abc import Iterable, Mapping, Sized
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.adaptation.task_model import TaskModel
from metaprior.checks import check_counts
from metaprior.forecasts import Forecast
from metaprior.history import EpochRecord
from metaprior.metagrad.task_checker import TaskChecker
from metaprior.methods.meta_learner import MetaLearner
from metaprior.noise import Noise
from metaprior.posterior import DEFAULT_SAMPLES
from metaprior.progress import progress_bar
from metaprior.tasks.task import Task, as_task, as_tasks
from metaprior.training.epoch import Summary, refuse_nothing_learned
from metaprior.training.settings import Phase
from metaprior.training.trainer import StepReport
from metaprior.weights import WeightDistribution


def meta_train_one_epoch(
    learner: MetaLearner,
    tasks: Iterable[Task] | Mapping[str, Task],
    optimizer: torch.optim.Optimizer,
    *,
    meta_batch: int = 1,
    grad_clip_norm: float = 1.0,
    num_tasks: int | None = None,
    noise: Noise | None = None,
    progress: bool = True,
) -> EpochRecord:
    r"""Take one meta-step for every B = ``meta_batch`` tasks, and return the record of the epoch.

    $$\theta \leftarrow \theta - \eta\,\nabla_\theta\frac1B\sum_i L_i(\lambda_i^{(K)}(\theta), \theta)$$

    (Ravi & Beatson 2019, algorithm 1.) The gradient goes through the adaptation. Theta is changed in place, and the
    record is also added to ``learner.history_``. Tasks without a finite gradient are left out and counted.

    Args:
        learner: a learner after ``start``, ``fit`` or ``load``.
        tasks: the tasks of the epoch, in this order, or tasks by name.
        optimizer: an optimiser made with ``learner.parameters()``.
        meta_batch: tasks in a step.
        grad_clip_norm: largest norm of the gradient over everything that is learned.
        num_tasks: M of the paper's objective, for the hyper-prior's share; by default the number of ``tasks``.
        noise: noise of the weight samples; by default a function of ``learner.seed`` and of the number of epochs in
            ``learner.history_``, so another one in every epoch.
        progress: show a progress bar.

    Raises:
        TrainingDiverged: if no task of the epoch had a finite gradient.
    """
    tasks = as_tasks(tasks)
    check_counts(meta_batch=meta_batch)
    if not isinstance(tasks, Iterable):  # a source without an end; iter() would take it for one that has an end
        raise ValueError(
            f"tasks must have an end, but {type(tasks).__name__} has none; try [tasks[i] for i in range(9)]"
        )
    if not grad_clip_norm > 0:
        raise ValueError(f"grad_clip_norm must be a positive number, got {grad_clip_norm}")
    present = {id(tensor) for tensor in learner.parameters()}
    moved = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    if foreign := sum(id(tensor) not in present for tensor in moved):  # its steps would have no effect
        raise ValueError(
            f"{foreign} of the optimiser's {len(moved)} tensors are not the learner's present ones. Make the optimiser "
            "with learner.parameters() after start, fit or load, which make new tensors"
        )
    model = learner.task_model(_number_of(tasks, num_tasks, learner))
    noise = noise or Noise(learner.seed).fork("own loop").at(step=len(learner.history_)).fork("epoch")
    check, summary, position = TaskChecker(model), Summary(), 0
    checked = map(check, map(learner.to_internal, tasks))
    prepared: TaskModel | None = None
    total = len(tasks) if isinstance(tasks, Sized) else None
    with progress_bar("Meta-Training", total, unit="tasks", show=progress) as bar:
        for batch in iter(lambda: list(islice(checked, meta_batch)), []):
            prepared = prepared or model.prepared(learner.theta_, batch, learner.budget, learner.engine)
            summary.add(_step(learner.theta_, prepared, batch, optimizer, grad_clip_norm, noise.at(task=position)))
            position += len(batch)
            bar.update(len(batch), loss=f"{summary.loss:.3g}", bad=str(summary.bad_tasks))
    if not summary.steps:
        raise ValueError("there are no tasks: the collection is empty, or an iterator that was used up")
    refuse_nothing_learned(summary)
    count = check.taken()
    summary.targets, summary.missing = count.targets, count.missing
    if not learner.history_:
        count.warn()
    learner.history_.append(summary.record(len(learner.history_) + 1))
    return learner.history_[-1]


def _number_of(tasks: Iterable[Task], num_tasks: int | None, learner: MetaLearner) -> int:
    if num_tasks is not None or isinstance(tasks, Sized):
        return num_tasks if num_tasks is not None else max(1, len(tasks))  # type: ignore[arg-type]
    if learner.objective == "abml" and learner.hyperprior is not None:
        raise ValueError(
            "these tasks have no length, and the objective gives each task its share of the hyper-prior: "
            "say how many there are with num_tasks=..."
        )
    return 1


def _step(
    theta: WeightDistribution,
    model: TaskModel,
    tasks: list[Task],
    optimizer: torch.optim.Optimizer,
    clip: float,
    noise: Noise,
) -> StepReport:
    batch = model.sums(theta, tasks, noise).mean(theta)
    norms: dict[str, Tensor] = {}
    if batch.count:
        named = theta.named()
        finite = torch.stack([tensor.isfinite().all() for tensor in named.values()]).tolist()
        learned = {name: tensor for (name, tensor), all_of_it in zip(named.items(), finite, strict=True) if all_of_it}
        grads = batch.grads.named()
        for name, tensor in learned.items():  # without a point prior's rho: optimisers skip tensors that have no grad
            tensor.grad = grads[name]
        norms["theta"] = torch.nn.utils.clip_grad_norm_(learned.values(), clip)  # before clipping
        optimizer.step()
        for tensor in learned.values():
            tensor.grad = None
    return StepReport.of(Phase("everything", 0, 0), batch, norms)


class QueryForecast(NamedTuple):
    """The forecast for a task's query inputs, in the targets' shape."""

    mean: Tensor
    std: Tensor
    """Total standard deviation of a target."""
    epistemic: Tensor
    """Standard deviation of the weight samples' means, which adaptation to more data would shrink."""
    forecast: Forecast


def meta_evaluate(
    learner: MetaLearner, task: Task, *, steps: int | None = None, samples: int = DEFAULT_SAMPLES, seed: int = 0
) -> QueryForecast:
    r"""Adapt to a task's support set, and return the forecast for its query inputs from S = ``samples`` weight samples:

    $$\bar y = \frac1S\sum_s f_{\phi_s}(x),\qquad
    \mathrm{epistemic}^2 = \frac{1}{S-1}\sum_s\big(f_{\phi_s}(x) - \bar y\big)^2,\qquad
    \phi_s \sim q(\phi|\lambda^{(K)})$$

    (for labels: of the class probabilities, with S in the denominator), and ``std**2 == epistemic**2 + aleatoric**2``.
    The query targets are not used. By default K is Descent's ``steps``, which learned step sizes were learned for;
    other adaptations take no steps.
    """
    task = as_task(task)
    forecast = learner.adapt(task.support, steps, seed=seed).predict(task.query.x, samples=samples, seed=seed)
    return QueryForecast(forecast.mean, forecast.std, forecast.epistemic, forecast)
