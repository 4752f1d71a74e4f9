"""Tasks without support examples train, are adapted to and are evaluated: the forecast is that of the prior."""

from typing import Any

import pytest
import torch

import metaprior as mp
from tests.methods.small_learner import QUICK
from tests.training.lines import line, lines


def learner_of(likelihood: mp.Likelihood | None = None, outputs: int = 1, **changes: Any) -> mp.MetaLearner:
    torch.manual_seed(0)
    return mp.MetaLearner(mp.MLP(1, [3], outputs).double(), likelihood or mp.Gaussian(), **changes)


def without_support(task: mp.Task) -> mp.Task:
    return task._replace(support=task.support.first(0))


MIXED = [line(index) if index % 3 else without_support(line(index)) for index in range(9)]


@pytest.mark.parametrize("objective", ["query", "abml"])
def test_supports_of_any_size_train_and_forecast(objective: str) -> None:
    learner = learner_of(objective=objective).fit(MIXED, **{**QUICK, "search_step_size": True, "warm_start": 2})
    assert learner.history_[-1].bad_tasks == 0
    task = line(20)
    prior = learner.prior_predictive().predict(task.query.x, samples=9, seed=4)
    found = learner.adapt((task.support.x[:0], task.support.y[:0]), seed=7).predict(task.query.x, samples=9, seed=4)
    assert torch.equal(found.mean, prior.mean)
    assert torch.equal(found.std, prior.std)
    rows = learner.evaluate(MIXED, shots=(0, None), samples=5, progress=False).rows
    assert [row["failed"] for row in rows] == [0, 0]


def test_a_training_without_any_support_learns_the_prior() -> None:
    tasks = [without_support(task) for task in lines(4)]
    learner = learner_of().fit(tasks, **{**QUICK, "search_step_size": True})
    start = learner_of().start(tasks)
    assert learner.theta_.log_lr is not None
    assert torch.equal(learner.theta_.log_lr, start.theta_.log_lr), "no step was taken, so none was learned"
    assert not torch.equal(learner.theta_.mu, start.theta_.mu)


def test_targets_without_an_axis_and_labels_may_be_missing_altogether() -> None:
    flat = [mp.Task(*(mp.Examples(x, y[:, 0]) for x, y in task[:2]), task.name) for task in MIXED]
    learner = learner_of().fit(flat, **QUICK)
    x, y = flat[1].support
    assert learner.adapt((x[:0], y[:0])).predict(x).mean.shape == y.shape
    labelled = [mp.Task(*(mp.Examples(x, (y[:, 0] > 0).long()) for x, y in task[:2]), task.name) for task in MIXED]
    classes = learner_of(mp.Categorical(), outputs=2).fit(labelled, **QUICK)
    x, y = labelled[1].support
    assert classes.adapt((x[:0], y[:0])).predict(x).mean.shape == (4, 2)


def test_an_epoch_of_your_own_takes_them() -> None:
    learner = learner_of().start(MIXED)
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-3)
    record = mp.meta_train_one_epoch(learner, MIXED, optimizer, meta_batch=3, progress=False)
    assert (record.tasks, record.bad_tasks) == (9, 0)
