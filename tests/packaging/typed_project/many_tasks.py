"""Many tasks: tasks of one's own, learning, adapting, scoring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_type

import torch
from torch import Tensor

import metaprior as mp
from metaprior.tasks import Sinusoids


@dataclass(frozen=True)
class Lines:
    """An endless collection of straight lines; the package knows it by its ``__getitem__`` alone."""

    shots: int = 5

    def __getitem__(self, index: int) -> mp.Task:
        draw = torch.Generator().manual_seed(index)
        x = torch.rand(2 * self.shots, 1, generator=draw)
        y = torch.randn(1, generator=draw) * x
        return mp.Task(mp.Examples(x[: self.shots], y[: self.shots]), mp.Examples(x[self.shots :], y[self.shots :]))


def learners() -> list[mp.MetaLearner]:
    net = mp.MLP(1, [20], 1)
    return [
        mp.MetaLearner(net, mp.Gaussian(), adaptation=mp.ClosedForm()),
        mp.MetaLearner(net, mp.Gaussian(), adaptation=mp.Descent(steps=2)),
        mp.MetaLearner(net, mp.Gaussian(), adaptation=mp.Context() + mp.ClosedForm()),
        mp.MetaLearner(net, mp.Gaussian(), adaptation="auto"),
    ]


def learn(learner: mp.MetaLearner, validation: Sequence[mp.Task]) -> mp.MetaLearner:
    learner.fit(Sinusoids(k_shot=5, k_query=5), validation=validation, epochs=1, tasks_per_epoch=20, progress=False)
    return learner.fit(Lines(), shots=(0, 5), epochs=1, tasks_per_epoch=20, progress=False)


def use(learner: mp.MetaLearner, task: mp.Task) -> str:
    posterior = learner.adapt(task.support)
    assert_type(posterior, mp.Predictive)
    assert_type(learner.prior_predictive(), mp.Predictive)
    forecast = posterior.predict(task.query.x)
    assert_type(forecast.mean, Tensor)
    low, high = forecast.interval(0.9)
    assert_type(high - low, Tensor)
    learner.save("prior")
    return learner.evaluate([task], shots=(0, 5)).table()


def hierarchy(tasks: Sequence[mp.Task]) -> mp.HierarchicalVI:
    return mp.HierarchicalVI(mp.MLP(1, [20], 1), mp.Gaussian()).fit(tasks, epochs=2, progress=False)


def gradient(network: mp.BayesianNetwork, task: mp.Task) -> Tensor:
    problem = mp.Problem(network, mp.Gaussian(noise=0.5), mp.Descent(steps=5, lr=0.01))
    theta = problem.initial(task.query.y)
    value = mp.metagrad.twice_reverse(problem, theta, problem.check(task), mp.Noise(0)).or_raise()
    return value.grads.mu
