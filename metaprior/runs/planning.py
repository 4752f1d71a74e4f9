"""``metaprior plan CONFIG``: what a configured run would take, before it runs."""

import torch

from metaprior.metagrad.planner import Choice, predict
from metaprior.noise import Noise
from metaprior.runs.build import learner_of, training_tasks
from metaprior.runs.config import Config
from metaprior.tasks.source import task_at
from metaprior.tasks.task import Examples, Task


def choices_of(config: Config) -> tuple[Choice, ...]:
    """Every exact way to compute the gradient of one of the configured tasks, with its predicted peak."""
    problem = learner_of(config).problem(1)
    task = problem.check(task_of_the_size(config) or task_at(training_tasks(config), 0, config.run.seed))
    theta = problem.initial(task.support.y, config.meta.relative_sigma)
    return tuple(predict(problem, theta, task))


def task_of_the_size(config: Config) -> Task | None:
    """For frames, noise of the right shape: sizes are all that matters, so nothing is opened or simulated for them.

    None where the size is not known before: for other tasks, and for whole frames of an archive.
    """
    wanted = config.tasks.arguments
    size = config.is_solar and (wanted["patch"] or wanted.get("size"))
    if not size:
        return None
    inputs = wanted["input_len"] + config.model.arguments["known"]
    noise = Noise(config.run.seed).fork("planning")

    def examples(count: int, which: str) -> Examples:
        x = noise.fork(f"{which} x").normal(torch.empty(count, inputs, size, size))
        return Examples(x, noise.fork(f"{which} y").normal(torch.empty(count, wanted["target_len"], size, size)))

    return Task(examples(wanted["k_shot"], "support"), examples(wanted["k_query"], "query"), "noise of the size")
