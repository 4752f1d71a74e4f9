"""New tasks: coverage where tasks differ much and pooled observations mislead, by shots, with failures and gaps."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior import conformal
from metaprior.forecasts import Forecast
from metaprior.tasks import FewShotClasses, Sinusoids
from metaprior.tasks.task import Examples, Task
from tests.conformal.made_up import drawn, normal
from tests.team.fake import together

REPEATS = 2000


class Told:
    """A posterior whose forecast is told."""

    def __init__(self, forecast: Forecast) -> None:
        self.forecast = forecast

    def predict(self, x: Tensor, *, samples: int = 50, seed: int = 0) -> Forecast:
        return self.forecast


class Blind:
    """A learner that forecasts the mean of the support examples, or 0, whatever the task."""

    likelihood: Any = mp.Gaussian()
    examples_per_shot = 1

    def __init__(self, query: int, outputs: int) -> None:
        self.shape = (query, outputs)

    def prior_predictive(self) -> Any:
        return Told(normal(torch.zeros(self.shape, dtype=torch.float64)))

    def adapt(self, support: Examples) -> Any:
        return Told(normal(support.y.mean(0).expand(self.shape)))


def offsets(count: int, query: int, outputs: int, support: int = 3, seed: int = 0) -> list[Task]:
    """Tasks that differ by an offset of about 3, with noise of 0.2; every output is a world of its own."""

    def task(i: int) -> Task:
        offset = 3 * drawn(1, outputs, seed=seed + 2 * i)
        y = offset + 0.2 * drawn(support + query, outputs, seed=seed + 2 * i + 1)
        return Task.split(torch.zeros(len(y), 1), y, support, f"task {i}")

    return [task(i) for i in range(count)]


def fitted(learner: Any, tasks: Sequence[Task], **options: Any) -> Any:
    return conformal.over_tasks(learner, tasks, progress=False, **options)


def standard_error(share: float) -> float:
    return math.sqrt(share * (1 - share) / REPEATS)


@pytest.mark.parametrize("score", ["quantile", "std"])
def test_a_new_observation_of_a_new_task_is_covered_where_pooled_ones_are_not_enough(score: str) -> None:
    count, query, level = 12, 20, 0.9
    *tasks, new = offsets(count + 1, query, REPEATS)
    learner = Blind(query, REPEATS)
    found = fitted(learner, tasks, shots=(0, 3), level=level, score=score)
    zero = normal(torch.zeros(1, REPEATS, dtype=torch.float64))
    covered = found.after(0).coverage(zero, new.query.y[:1])
    assert level - 4 * standard_error(level) <= covered <= level + 2 / (count + 1) + 4 * standard_error(level)
    pooled = conformal.intervals(
        normal(torch.zeros(count * query, REPEATS, dtype=torch.float64)),
        torch.cat([task.query.y for task in tasks]),
        level,
        score=score,
    )
    assert pooled.coverage(zero, new.query.y[:1]) < level - 5 * standard_error(level)

    adapted = learner.adapt(new.support).predict(new.query.x)
    low, high = found.after(3).interval(adapted)
    inside = ((low <= new.query.y) & (new.query.y <= high))[0].double().mean()
    assert float(inside) > level - 4 * standard_error(level)
    prior_low, prior_high = found.after(0).interval(zero)
    assert float((high - low).mean()) < 0.5 * float((prior_high - prior_low).mean())


def test_a_share_of_the_whole_task_is_covered_with_the_level() -> None:
    count, query, level, share = 19, 5, 0.9, 0.8
    *tasks, new = offsets(count + 1, query, REPEATS)
    found = fitted(Blind(query, REPEATS), tasks, shots=(0,), level=level, share=share).after(0)
    low, high = found.interval(normal(torch.zeros(query, REPEATS, dtype=torch.float64)))
    enough = ((low <= new.query.y) & (new.query.y <= high)).sum(0) >= share * query
    assert float(enough.double().mean()) == pytest.approx(level, abs=4 * standard_error(level))  # 18 of 20: exact
    assert (found.tasks, found.observations) == (19, 95)
    assert "share 0.8 of a task" in repr(found)


def test_the_threshold_is_that_of_groups_that_are_new() -> None:
    tasks = [
        task._replace(query=Examples(*(part[: 3 + i % 4] for part in task.query)))
        for i, task in enumerate(offsets(12, 6, 1))
    ]

    class Zero(Blind):
        def prior_predictive(self) -> Any:
            posterior: Any = Told(normal(torch.zeros(1)))
            posterior.predict = lambda x, samples, seed: normal(torch.zeros(len(x), 1, dtype=torch.float64))
            return posterior

    found = fitted(Zero(0, 0), tasks, shots=(0,)).after(0)
    y = torch.cat([task.query.y for task in tasks])
    names = [task.name for task in tasks for _ in range(task.query.size)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grouped = conformal.intervals(normal(torch.zeros_like(y)), y, groups=names)
    assert torch.equal(found.threshold, grouped.threshold)


def test_missing_targets_are_left_out_of_their_task_and_counted() -> None:
    tasks = offsets(12, 6, 2)
    for task in tasks[:3]:
        task.query.y[:, 1] = math.nan
    tasks[3].query.y[:] = math.nan
    found = fitted(Blind(6, 2), tasks, shots=(0,), level=0.8).after(0)
    assert (found.tasks, found.missing, found.observations) == (11, 30, 66)
    rest = fitted(Blind(6, 2), tasks[4:], shots=(0,), level=0.8).after(0)
    assert float(found.threshold[1]) == float(rest.threshold[1])
    nothing = [task._replace(query=Examples(task.query.x, task.query.y * math.nan)) for task in tasks]
    with pytest.raises(ValueError, match="targets to calibrate on, got 144 that are all missing"):
        fitted(Blind(6, 2), nothing, shots=(0,))


def test_numbers_of_shots_are_those_that_were_calibrated() -> None:
    tasks = [*offsets(12, 6, 1, support=3), *offsets(10, 6, 1, support=1, seed=99)]
    found = fitted(Blind(6, 1), tasks, shots=(0, 2, None, 2))
    assert [found.after(n).tasks for n in (0, 2, None)] == [22, 12, 22]
    with pytest.raises(ValueError, match=r"shots must be among the calibrated numbers \(0, 2, None\), got 1"):
        found.after(1)
    assert "\n    all shots: ConformalIntervals(level 0.9," in repr(found)
    with pytest.raises(ValueError, match="enough support examples, got none after 7 shots"):
        fitted(Blind(6, 1), tasks, shots=(7,))


def test_tasks_without_a_finite_forecast_are_counted_and_warned_of() -> None:
    class Failing(Blind):
        def adapt(self, support: Examples) -> Any:
            if float(support.y[0]) > 3:
                raise FloatingPointError("the loss is nan")
            return super().adapt(support)

    tasks = offsets(30, 6, 1)
    bad = sum(float(task.support.y[0]) > 3 for task in tasks)
    with pytest.warns(UserWarning, match=f"{bad} of 30 tasks have no finite forecast after 2 shots .* the loss is nan"):
        found = fitted(Failing(6, 1), tasks, shots=(0, 2))
    assert bad > 0
    assert found.after(2).tasks == 30 - bad
    assert f"({bad} more tasks failed)" in repr(found)
    high = [task._replace(support=Examples(task.support.x, task.support.y + 100)) for task in tasks]
    with pytest.raises(
        FloatingPointError, match="none of 30 tasks has a finite forecast after 1 shots; the first: task 0"
    ):
        fitted(Failing(6, 1), high, shots=(1,))


def test_too_few_tasks_give_infinite_intervals_and_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"needs at least 9 tasks with a target, got 8 in all"):
        found = fitted(Blind(6, 1), offsets(8, 6, 1), shots=(0,))
    assert math.isinf(found.after(0).threshold)


def test_ranks_share_the_tasks() -> None:
    tasks = offsets(12, 6, 2)
    alone = fitted(Blind(6, 2), tasks, shots=(0, 2))
    for found in together(3, lambda team: fitted(Blind(6, 2), tasks, shots=(0, 2))):
        for n in (0, 2):
            assert torch.equal(found.after(n).threshold, alone.after(n).threshold)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": ()}, r"shots must be a sequence of integers such as \(0, 1, 5\), got \(\)"),
        ({"shots": 5}, "shots must be a sequence of integers"),
        ({"shots": (-1,)}, "shots must be an integer of at least 0"),
        ({"level": 1.5}, "level must lie strictly between 0 and 1"),
        ({"share": 0}, "share must be above 0 and at most 1, or None, got 0"),
        ({"score": "crps"}, "score must be one of 'quantile', 'std', 'aps'"),
        ({"samples": 1}, "samples must be an integer of at least 2"),
    ],
)
def test_wrong_settings_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(Blind(6, 1), offsets(3, 6, 1), **options)


def test_a_method_for_one_data_set_raises() -> None:
    with pytest.raises(TypeError, match="learner must be a MetaLearner or a HierarchicalVI, got BayesByBackprop"):
        fitted(mp.BayesByBackprop(mp.MLP(1, [2], 1), mp.Gaussian()), offsets(3, 6, 1))


def test_a_forecast_whose_spread_is_infinite_is_a_failure() -> None:
    class Endless(Blind):
        def adapt(self, support: Examples) -> Any:
            mean = torch.zeros(self.shape, dtype=torch.float64)
            return Told(normal(mean, math.inf if float(support.y[0]) > 3 else 1.0))

    tasks = offsets(30, 6, 1)
    bad = sum(float(task.support.y[0]) > 3 for task in tasks)
    with pytest.warns(UserWarning, match=f"{bad} of 30 tasks have no finite forecast"):
        assert fitted(Endless(6, 1), tasks, shots=(1,), score="std").after(1).tasks == 30 - bad


def test_tasks_without_an_end_raise() -> None:
    with pytest.raises(ValueError, match="tasks must have an end"):
        fitted(Blind(6, 1), Sinusoids(k_shot=2, k_query=2))  # type: ignore[arg-type]


def test_a_meta_learner_with_numbers() -> None:
    torch.manual_seed(0)
    waves: dict[str, Any] = {"k_shot": 5, "k_query": 10, "noise": 0.1}
    learner = mp.MetaLearner(mp.MLP(1, [16], 1), mp.Gaussian(), adaptation=mp.ClosedForm())
    learner.fit(Sinusoids(**waves), epochs=1, tasks_per_epoch=20, meta_batch=5, progress=False)
    held_out, new = ([Sinusoids(**waves, seed=seed)[i] for i in range(40)] for seed in (1, 2))
    found = fitted(learner, held_out, shots=(0, 5), level=0.8)
    for n in (0, 5):
        shares = [
            found.after(n).coverage(
                (learner.adapt(task.support) if n else learner.prior_predictive()).predict(task.query.x), task.query.y
            )
            for task in new
        ]
        assert sum(shares) / len(shares) == pytest.approx(0.8, abs=0.1)


def test_a_meta_learner_with_labels() -> None:
    torch.manual_seed(0)
    labels = torch.arange(10).repeat_interleave(12)
    images = torch.randn(10, 6)[labels] + 0.7 * torch.randn(120, 6)
    tasks = FewShotClasses(images, labels, ways=3, k_shot=2, k_query=4)
    learner = mp.MetaLearner(mp.MLP(6, [8], 3), mp.Categorical(), adaptation=mp.ClosedForm(), examples_per_shot=3)
    learner.fit(tasks, epochs=1, tasks_per_epoch=10, meta_batch=5, progress=False)
    found = fitted(learner, [tasks[i] for i in range(100, 130)], shots=(0, 2), score="aps")
    assert "shots of 3 examples:" in repr(found)
    sets = found.after(2).sets(learner.adapt(tasks[200].support).predict(tasks[200].query.x))
    assert sets.shape == (12, 3)
    shares = [
        found.after(2).coverage(learner.adapt(tasks[i].support).predict(tasks[i].query.x), tasks[i].query.y)
        for i in range(200, 240)
    ]
    assert 0.83 < sum(shares) / len(shares) <= 1
    with pytest.raises(TypeError, match="or score='aps' over tasks"):
        fitted(learner, [tasks[i] for i in range(10)], shots=(0,))
