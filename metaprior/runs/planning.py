"""``metaprior plan CONFIG``: what a configured run would take, before it runs."""

from metaprior.metagrad.planner import Choice, predict
from metaprior.runs.build import learner_of, training_tasks
from metaprior.runs.config import Config
from metaprior.tasks.source import task_at


def choices_of(config: Config) -> tuple[Choice, ...]:
    """Every exact way to compute the gradient of one of the configured tasks, with its predicted peak."""
    problem = learner_of(config).problem(1)
    task = problem.check(task_at(training_tasks(config), 0, config.run.seed))
    theta = problem.initial(task.support.y, config.meta.relative_sigma)
    return tuple(predict(problem, theta, task))
