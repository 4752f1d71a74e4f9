import math

import pytest
import torch

from metaprior import scores
from metaprior.forecasts import CategoricalForecast, GaussianForecast


def test_r_squared_is_zero_for_the_mean_and_one_for_the_truth() -> None:
    targets = torch.tensor([[1.0, 5.0], [2.0, 0.0], [6.0, 1.0]])
    assert scores.r_squared(targets.mean(0).expand(3, 2), targets) == pytest.approx(0.0)
    assert scores.r_squared(targets, targets) == pytest.approx(1.0)
    one_constant_output = torch.tensor([[1.0, 7.0], [2.0, 7.0]])
    assert scores.r_squared(one_constant_output, one_constant_output) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="constant"):
        scores.r_squared(torch.zeros(3), torch.ones(3))


def test_root_mean_squared_error() -> None:
    assert scores.root_mean_squared_error(torch.zeros(2), torch.tensor([3.0, 4.0])) == pytest.approx(math.sqrt(12.5))


def test_coverage_of_a_true_forecast_is_its_level() -> None:
    torch.manual_seed(0)
    forecast = GaussianForecast(torch.zeros(2, 20_000), torch.ones(2, 20_000))
    assert scores.coverage(forecast, torch.randn(20_000), 0.8) == pytest.approx(0.8, abs=0.01)


def test_calibration_error_of_an_overconfident_forecast() -> None:
    """Always 90 % sure, right in half of the cases: a gap of 0.4."""
    forecast = CategoricalForecast(torch.tensor([0.9, 0.1]).log().expand(2, 100, 2))
    labels = torch.arange(100) % 2
    assert scores.expected_calibration_error(forecast, labels) == pytest.approx(0.4, abs=1e-6)
    assert scores.error_rate(forecast, labels) == pytest.approx(0.5)


def test_mis_shaped_targets_are_refused() -> None:
    for score in (scores.root_mean_squared_error, scores.r_squared):
        with pytest.raises(ValueError, match="targets have shape"):
            score(torch.zeros(3), torch.zeros(3, 1))


def test_standard_error_of_one_value_is_unknown() -> None:
    assert math.isnan(scores.standard_error(torch.ones(1)))
    assert scores.standard_error(torch.tensor([0.0, 2.0])) == pytest.approx(1.0)
