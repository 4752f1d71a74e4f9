"""Missing targets in evaluation: as if the observations had been dropped by hand, and single targets not scored."""

import math
from typing import Any

import pytest
import torch

from metaprior.evaluation import Evaluation, evaluate
from metaprior.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from metaprior.missing import TargetCount, any_of_row, mean_of_present, present_labels, present_numbers
from metaprior.posterior import Posterior
from metaprior.tasks.task import Examples, Task
from tests.test_evaluation import adapt_line, certain, line_task

KINDS: dict[str, tuple[Likelihood, float]] = {
    "gaussian": (Gaussian(noise=0.5), math.nan),
    "categorical": (Categorical(), -100),
    "bernoulli": (Bernoulli(), math.nan),
}


def targets_of(kind: str, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if kind == "categorical":
        return torch.randint(3, (len(x),), generator=generator)
    values = x + torch.randn(x.shape, generator=generator).double()
    return values if kind == "gaussian" else (values > 0).double()


def tasks_of(kind: str, count: int = 3, size: int = 12) -> list[Task]:
    generator = torch.Generator().manual_seed(1)
    tasks = []
    for number in range(count):
        x = 2 * torch.randn(size, 3, generator=generator).double()
        y = targets_of(kind, x, generator)
        tasks.append(Task(Examples(x[:4], y[:4]), Examples(x[4:], y[4:]), f"task {number}"))
    return tasks


def scored(kind: str, tasks: list[Task]) -> tuple[Evaluation, list[Examples | None]]:
    likelihood, _ = KINDS[kind]
    supports: list[Examples | None] = []

    def adapt(support: Examples | None, steps: int) -> Posterior:
        supports.append(support)
        return certain(torch.eye(3).double(), likelihood)

    return evaluate(adapt, tasks, shots=(0, None), steps=(1,), present=likelihood.present), supports


def test_where_targets_are() -> None:
    holes = torch.tensor([[1.0, math.nan], [math.nan, math.nan]])
    assert present_numbers(holes).tolist() == [[True, False], [False, False]]
    assert any_of_row(present_numbers(holes)).tolist() == [True, False]
    assert present_numbers(torch.tensor([-100, 3])).tolist() == [True, True]  # integers that are real-valued targets
    assert present_labels(torch.tensor([-100, 3])).tolist() == [False, True]
    assert mean_of_present(torch.tensor([[1.0, math.nan], [3.0, 5.0]]), [0]).tolist() == [2.0, 5.0]
    assert TargetCount.of(present_numbers(holes)) + TargetCount(1, 2) == TargetCount(4, 6)


def test_a_note_says_how_many_targets_are_missing() -> None:
    TargetCount(0, 7).warn()
    with pytest.warns(UserWarning, match="3 of 7 targets are missing and were left out"):
        TargetCount(3, 7).warn()


@pytest.mark.parametrize("kind", KINDS)
def test_observations_without_a_target_are_scored_as_if_they_were_dropped(kind: str) -> None:
    whole, dropped, missing = tasks_of(kind), [], KINDS[kind][1]
    holes = [Task(Examples(x, y.clone()), Examples(qx, qy.clone()), name) for (x, y), (qx, qy), name in whole]
    kept = torch.arange(8) % 3 > 0
    for task in holes[:2]:
        task.support.y[1] = missing
        task.query.y[~kept] = missing
        dropped.append(Task(task.support.rows(torch.tensor([0, 2, 3])), task.query.rows(kept), task.name))
    found, supports = scored(kind, holes)
    expected, by_hand = scored(kind, [*dropped, whole[2]])
    width = 1 if kind == "categorical" else 3
    assert [row.pop("missing") for row in found.rows] == [6 * width] * 2
    assert [row.pop("missing") for row in found.per_task] == [3 * width, 3 * width, 0] * 2
    assert "missing" not in expected.rows[0]
    assert [*found.rows, *found.per_task] == [*expected.rows, *expected.per_task]
    assert found.as_json()["reliability"] == expected.as_json()["reliability"]
    for one, other in zip(supports, by_hand, strict=True):
        assert one is other is None or all(map(torch.equal, one or (), other or ()))


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
def test_single_missing_targets_are_not_scored(kind: str) -> None:
    likelihood, _ = KINDS[kind]
    (task,) = tasks_of(kind, count=1)
    gone = torch.arange(24).reshape(8, 3) % 4 == 1
    holes = task._replace(query=Examples(task.query.x, task.query.y.masked_fill(gone, math.nan)))
    found = scored(kind, [holes])[0].row(shots=0)
    forecast: Any = certain(torch.eye(3).double(), likelihood).predict(task.query.x, samples=50)
    y, there = task.query.y, ~gone
    losses = likelihood.elementwise_nll(task.query.x, y, {}) * there
    assert found["missing"] == 6
    assert found["nll"] == pytest.approx(float(losses.sum(1).mean()))
    if kind == "bernoulli":
        assert found["error"] == pytest.approx(float((forecast.labels != y)[there].double().mean()))
        assert found["confidence"] == pytest.approx(
            float(torch.maximum(forecast.mean, 1 - forecast.mean)[there].mean())
        )
        return
    assert found["nll_per_value"] == pytest.approx(float(losses.sum() / there.sum()))
    low, high = forecast.interval(0.9)
    assert found["mse"] == pytest.approx(float((forecast.mean - y)[there].square().mean()))
    assert found["coverage_90"] == pytest.approx(float(((y >= low) & (y <= high))[there].double().mean()))
    assert found["std"] == pytest.approx(0.5)
    assert 0 < found["crps"] < 10


def test_a_task_without_any_query_target_is_a_failure() -> None:
    task = line_task(1.0, "empty")
    empty = task._replace(query=Examples(task.query.x, task.query.y * math.nan))
    found = evaluate(adapt_line, [empty, line_task(3.0)])
    assert [failure.message for failure in found.failures] == [
        "its query set has no target to be scored on: all 3 are missing"
    ]
    with pytest.raises(FloatingPointError, match="no target to be scored on"):
        evaluate(adapt_line, [empty])
