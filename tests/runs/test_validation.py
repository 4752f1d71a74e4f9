import math

import pytest
import torch

from metaprior.likelihoods import Categorical, Gaussian
from metaprior.metagrad.problem import InnerLoop
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models import MLP
from metaprior.runs.build import FirstTasks
from metaprior.runs.config import Evaluate
from metaprior.runs.validation import Validator, error_of_a_constant
from metaprior.tasks import Examples, Sinusoids, Task

SETTINGS = Evaluate(tasks=3, samples=2)


def labels(*values: int) -> Task:
    y = torch.tensor(values)
    return Task(Examples(torch.zeros(len(y), 1), y), Examples(torch.zeros(len(y), 1), y))


def test_error_of_a_constant_by_hand() -> None:
    tasks = FirstTasks([labels(0, 1, 1), labels(0, 0, 0)], 2)
    assert error_of_a_constant(tasks, continuous=False) == pytest.approx(1 / 3)
    values = [
        Task(Examples(y, y), Examples(y, y)) for y in (torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]]))
    ]
    assert error_of_a_constant(FirstTasks(values, 2), continuous=True) == pytest.approx(math.sqrt(5))


def test_a_forecast_of_the_mean_has_no_skill_and_a_perfect_one_has_skill_1() -> None:
    y = torch.tensor([[1.0], [-1.0]])
    task = Task(Examples(y, y), Examples(y, y))
    module = MLP(1, [], 1)
    learner = MetaLearner(module, Gaussian(noise=1.0), inner=InnerLoop(steps=0, kl_weight=0), relative_sigma=0.0)
    for weight, skill in ((0.0, 0.0), (1.0, 1.0), (3.0, -1.0)):
        with torch.no_grad():
            module.layers[0].weight.fill_(weight)
            module.layers[0].bias.zero_()
        theta = learner.problem(1).network.initial(0.0)
        found = Validator(learner, FirstTasks([task], 1), SETTINGS, lambda: None)(theta)
        assert found.skill == pytest.approx(skill)
        expected = 0.5 * (weight - 1) ** 2 + 0.5 * math.log(2 * math.pi)
        assert found.score == pytest.approx(expected)
        assert found.measures["before"]["nll"] == found.measures["after"]["nll"] == pytest.approx(expected)


def test_skill_of_classes_is_by_chance() -> None:
    learner = MetaLearner(MLP(1, [], 2), Categorical(), inner=InnerLoop(steps=0, kl_weight=0), relative_sigma=0.0)
    with torch.no_grad():
        for parameter in learner.network.module.parameters():
            parameter.zero_()
        learner.network.module.layers[0].bias[0] = 1.0  # always says class 0
    theta = learner.problem(1).network.initial(0.0)
    found = Validator(learner, FirstTasks([labels(0, 1, 0, 1)], 1), SETTINGS, lambda: None)(theta)
    assert found.skill == pytest.approx(0.0)


def test_failing_tasks_never_make_a_score_better() -> None:
    good, wild = Sinusoids()[0], Sinusoids()[1]
    wild = wild._replace(support=Examples(wild.support.x * 1e18, wild.support.y * 1e18))
    learner = MetaLearner(MLP(1, [4], 1), Gaussian(noise=1.0), inner=InnerLoop(steps=3, lr=1e-3, kl_weight=0))
    theta = learner.problem(1).network.initial(0.01)
    alone = Validator(learner, FirstTasks([good], 1), SETTINGS, lambda: None)(theta)
    both = Validator(learner, FirstTasks([good, wild], 2), SETTINGS, lambda: None)(theta)
    assert both.measures["after"]["failed"] == 1
    assert both.score == pytest.approx(alone.score)
    none = Validator(learner, FirstTasks([wild], 1), SETTINGS, lambda: None)(theta)
    assert none.score == math.inf


def test_a_damaged_validation_task_is_refused_before_training_begins() -> None:
    task = Sinusoids()[0]
    damaged = task._replace(query=Examples(task.query.x, task.query.y * math.nan), name="broken")
    learner = MetaLearner(MLP(1, [4], 1), Gaussian(noise=1.0))
    with pytest.raises(ValueError, match="query y of task 'broken' has 10 NaN"):
        Validator(learner, FirstTasks([task, damaged], 2), SETTINGS, lambda: None)
