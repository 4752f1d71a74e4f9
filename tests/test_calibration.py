"""Factors for the spread of forecasts: against known answers, for every likelihood, and on several processes."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from metaprior.calibration import LOG_FACTORS, CalibrationByShots, fit_calibration
from metaprior.evaluation import evaluate
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast
from metaprior.tasks.task import Examples, Task
from tests.team.fake import together


class Posterior:
    """A posterior whose forecast is told."""

    def __init__(self, forecast: Callable[[Tensor], Forecast]) -> None:
        self.forecast = forecast

    def predict(self, x: Tensor, *, samples: int, seed: int) -> Forecast:
        return self.forecast(x)


def stated(forecast: Callable[[Tensor], Forecast]) -> Any:
    return Posterior(forecast)


def normal(x: Tensor, spread: float) -> GaussianForecast:
    """Two components whose means differ, so that both means and scales have to be scaled."""
    means = torch.stack([x - 0.6 * spread, x + 0.6 * spread])
    return GaussianForecast(means, torch.full_like(means, 0.8 * spread))


def drawn_tasks(count: int, support: int = 20, query: int = 30, outputs: int = 1) -> list[Task]:
    """y is x plus what ``normal`` with a spread of 1 states."""
    generator = torch.Generator().manual_seed(0)

    def examples(size: int) -> Examples:
        x = torch.randn(size, outputs, generator=generator)
        signs = torch.randint(2, x.shape, generator=generator) * 2.0 - 1
        return Examples(x, x + 0.6 * signs + 0.8 * torch.randn(x.shape, generator=generator))

    return [Task(examples(support), examples(query), f"task {i}") for i in range(count)]


def too_narrow(n: int) -> float:
    """The spread that is stated after n examples, where 1 is right."""
    return math.exp(-1 + 0.5 * math.log1p(n))


def adapt(support: Examples | None, steps: int) -> Any:
    n = 0 if support is None else support.size
    return stated(lambda x: normal(x, too_narrow(n)))


@pytest.mark.parametrize("outputs", [1, 7])
def test_factors_undo_a_wrong_spread_at_every_number_of_examples(outputs: int) -> None:
    found = fit_calibration(adapt, drawn_tasks(100, outputs=outputs))
    assert found.examples == (0, 1, 2, 5, 10, 20)
    assert found.tasks == 100
    for n in (0, 1, 2, 3, 5, 8, 10, 14, 20):
        assert found.factor(n) * too_narrow(n) == pytest.approx(1.0, rel=0.06), n
    assert all(0.88 < share < 0.92 for share in found.coverage)


def test_with_the_factors_a_forecast_covers_what_it_states_on_new_tasks() -> None:
    found = fit_calibration(adapt, drawn_tasks(100))

    def calibrated(support: Examples | None, steps: int) -> Any:
        n = 0 if support is None else support.size
        return stated(lambda x: normal(x, too_narrow(n)).widened(found.factor(n)))

    new = drawn_tasks(260)[160:]
    before, after = (evaluate(one, new, shots=(0, 1, 7, 20)) for one in (adapt, calibrated))
    for row, raw in zip(after.rows, before.rows, strict=True):
        assert 0.87 < row["coverage_90"] < 0.93
        assert row["nll"] < raw["nll"] + 0.005


def test_few_tasks_say_little_and_neighbours_share() -> None:
    """A single number of examples is badly off in one task; the walk in log(1 + n) keeps its factor near the others."""
    tasks = drawn_tasks(2, support=12, query=3)
    alone = fit_calibration(lambda support, steps: stated(lambda x: normal(x, 0.05)), tasks, shots=(11,))
    many = drawn_tasks(200, support=12, query=3)
    sure = fit_calibration(lambda support, steps: stated(lambda x: normal(x, 0.05)), many, shots=(11,))
    assert 1 < alone.factors[0] < sure.factors[0]
    odd = fit_calibration(
        lambda support, steps: stated(lambda x: normal(x, 0.3 if support and support.size == 11 else 1.0)),
        tasks,
        shots=(10, 11, 12),
    )
    assert odd.factors[1] < 1.5 * max(odd.factors[0], odd.factors[2])


def test_classes_get_a_temperature() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(2000, 3, generator=generator)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    tasks = [
        Task(Examples(x[:6], y[:6]), Examples(x[6:], y[6:]), "t")
        for x, y in zip(logits.split(50), labels.split(50), strict=True)
    ]
    overconfident = stated(lambda x: CategoricalForecast(torch.stack([3 * x, 3 * x])))
    found = fit_calibration(lambda support, steps: overconfident, tasks, examples_per_shot=3)
    assert found.examples == (0, 3, 6)
    assert found.coverage == ()
    assert all(factor == pytest.approx(3.0, rel=0.15) for factor in found.factors)
    assert "coverage" not in str(found)
    binary = [task._replace(query=Examples(task.query.x[:, :1], (task.query.y == 1).float())) for task in tasks]
    never = stated(lambda x: BernoulliForecast(torch.full((2, len(x)), 5.0)))
    assert min(fit_calibration(lambda support, steps: never, binary, shots=(0,)).factors) > 3


def test_tasks_with_fewer_examples_and_failed_forecasts_are_left_out() -> None:
    tasks = [*drawn_tasks(20, support=4), *drawn_tasks(5, support=9)]

    def fails_at_two(support: Examples | None, steps: int) -> Any:
        if support is not None and support.size == 2:
            raise FloatingPointError("the nll became inf")
        return adapt(support, steps)

    found = fit_calibration(fails_at_two, tasks)
    assert found.examples == (0, 1, 4, 5, 9)
    with pytest.raises(FloatingPointError, match="none of the 5 validation tasks had a finite forecast"):
        fit_calibration(fails_at_two, tasks[:5], shots=(2,))
    with pytest.raises(ValueError, match="shots must be"):
        fit_calibration(adapt, tasks, shots=(-1,))


def test_ranks_share_the_tasks_and_find_the_same() -> None:
    tasks = drawn_tasks(9)
    alone = fit_calibration(adapt, tasks)

    assert together(2, lambda team: fit_calibration(adapt, tasks)) == [alone, alone]


def test_between_the_fitted_numbers_the_logarithm_is_linear_and_beyond_them_constant() -> None:
    found = CalibrationByShots((1, 5, 20), (2.0, 1.0, 0.5), (0.9, 0.91, 0.89), tasks=30)
    assert [found.factor(n) for n in (0, 1, 5, 20, 10**6)] == pytest.approx([2.0, 2.0, 1.0, 0.5, 0.5])
    share = math.log(3 / 2) / math.log(6 / 2)
    assert found.factor(2) == pytest.approx(2 ** (1 - share))
    assert CalibrationByShots.from_json(found.as_json()) == found
    assert str(found) == (
        "spread by examples 1: 2.00, 5: 1.00, 20: 0.50; coverage of the 90 % interval on 30 validation tasks "
        "1: 0.90, 5: 0.91, 20: 0.89"
    )


@pytest.mark.parametrize("wrong", [((), ()), ((1, 0), (1.0, 1.0)), ((0,), (1.0, 2.0)), ((0,), (-1.0,))])
def test_impossible_factors_are_refused(wrong: tuple[tuple[int, ...], tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match="must be"):
        CalibrationByShots(*wrong)


def test_the_factors_that_can_be_found_include_one() -> None:
    assert 0.0 in LOG_FACTORS.tolist()
