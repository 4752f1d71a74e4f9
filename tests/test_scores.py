import math

import pytest
import torch
from torch import Tensor
from torchmetrics.functional.classification import multiclass_calibration_error

from metaprior import scores
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, GaussianForecast


def test_calibration_error_of_an_overconfident_forecast() -> None:
    """Always 90 % sure, right in half of the cases: a gap of 0.4."""
    forecast = CategoricalForecast(torch.tensor([0.9, 0.1]).log().expand(2, 100, 2))
    labels = torch.arange(100) % 2
    reliability = scores.Reliability()
    reliability.add(forecast, labels)
    assert reliability.ece == pytest.approx(0.4, abs=1e-6)
    assert scores.error_rate(forecast, labels) == pytest.approx(0.5)


def test_standard_error_of_one_value_is_unknown() -> None:
    assert math.isnan(scores.standard_error(torch.ones(1)))
    assert scores.standard_error(torch.tensor([0.0, 2.0])) == pytest.approx(1.0)


def normal_crps(mean: Tensor, scale: Tensor, y: Tensor) -> Tensor:
    """Closed form for one normal: s (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)) (Gneiting and Raftery 2007)."""
    z = (y - mean) / scale
    density = torch.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return scale * (z * (2 * torch.special.ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))


def test_mean_squared_error() -> None:
    assert scores.mean_squared_error(torch.zeros(2), torch.tensor([3.0, 4.0])) == pytest.approx(12.5)
    with pytest.raises(ValueError, match="targets have shape"):
        scores.mean_squared_error(torch.zeros(3), torch.zeros(3, 1))


def test_crps_of_equal_components_is_that_of_one_normal() -> None:
    mean, scale = torch.randn(3, 2, 4, dtype=torch.float64), torch.rand(3, 2, 4, dtype=torch.float64) + 0.1
    y = torch.randn(3, 2, 4, dtype=torch.float64)
    forecast = GaussianForecast(mean.expand(5, 3, 2, 4), scale.expand(5, 3, 2, 4))
    torch.testing.assert_close(scores.crps(forecast, y), normal_crps(mean, scale, y), rtol=1e-7, atol=1e-7)


def test_crps_of_a_mixture_is_the_integral_that_defines_it() -> None:
    means = torch.tensor([[-2.0], [0.5], [3.0]], dtype=torch.float64)
    scales = torch.tensor([[0.3], [1.0], [0.7]], dtype=torch.float64)
    forecast = GaussianForecast(means, scales)
    y = torch.tensor([1.2], dtype=torch.float64)
    t = torch.linspace(-15, 15, 300_001, dtype=torch.float64)
    below = torch.special.ndtr((t - means) / scales).mean(0)
    integral = torch.trapezoid((below - (t >= y).double()).square(), t)
    assert scores.crps(forecast, y).item() == pytest.approx(integral.item(), abs=1e-4)


def test_crps_does_not_depend_on_the_parts_it_is_worked_out_in(monkeypatch: pytest.MonkeyPatch) -> None:
    forecast = GaussianForecast(torch.randn(4, 5, 3), torch.full((1, 1, 1), 0.5))  # one noise for all, to broadcast
    y = torch.randn(5, 3)
    whole = scores.crps(forecast, y)
    assert whole.shape == (5, 3)
    assert whole.dtype == torch.float32
    for pairs in (1, 4**2 * 7):  # one target at a time; parts that do not divide 15
        monkeypatch.setattr(scores, "COMPONENTS_AT_ONCE", pairs)
        torch.testing.assert_close(scores.crps(forecast, y), whole)


def test_crps_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"targets have shape \(3, 1\), but the predictions have \(3,\)"):
        scores.crps(GaussianForecast(torch.zeros(2, 3), torch.ones(2, 3)), torch.zeros(3, 1))


def test_pooled_calibration_error_is_that_of_torchmetrics() -> None:
    """Also with confidences of exactly 1 and with labels of pixels."""
    torch.manual_seed(0)
    logits = 6 * torch.randn(3, 60, 4, 5)
    logits[:, :4, 0] += 300  # softmax rounds to exactly 1
    labels = torch.randint(0, 4, (60, 5))
    gathered = scores.Reliability()
    for rows in (slice(0, 7), slice(7, 8), slice(8, 60)):
        gathered.add(CategoricalForecast(logits[:, rows]), labels[rows])
    probabilities = CategoricalForecast(logits).probabilities
    expected = multiclass_calibration_error(probabilities, labels, num_classes=4, n_bins=15, norm="l1")
    assert gathered.ece == pytest.approx(float(expected), abs=1e-6)
    assert gathered.count == 300
    assert [row["count"] for row in gathered.rows][-1] >= 20
    assert sum(row["count"] for row in gathered.rows) == 300


def test_bins_of_an_overconfident_forecast() -> None:
    forecast = CategoricalForecast(torch.tensor([0.9, 0.1]).log().expand(2, 100, 2))
    gathered = scores.Reliability(bins=10)
    gathered.add(forecast, torch.arange(100) % 4)  # class 0 is right in a quarter of the cases
    (row,) = [row for row in gathered.rows if row["count"]]
    assert row == pytest.approx({"low": 0.9, "high": 1.0, "confidence": 0.9, "accuracy": 0.25, "count": 100})
    assert len(gathered.rows) == 10
    assert math.isnan(gathered.rows[0]["accuracy"])
    assert gathered.ece == pytest.approx(0.65)


def test_confidence_of_two_kinds_of_labels() -> None:
    p = torch.tensor([0.2, 0.7])
    binary = BernoulliForecast(torch.logit(p).expand(2, 2))
    torch.testing.assert_close(scores.confidence(binary), torch.tensor([0.8, 0.7]))
    assert scores.error_rate(binary, torch.tensor([0.0, 0.0])) == 0.5
    gathered = scores.Reliability()
    gathered.add(binary, torch.tensor([0.0, 0.0]))
    assert gathered.ece == pytest.approx((0.2 + 0.7) / 2)


def test_merged_counts_are_those_of_everything() -> None:
    torch.manual_seed(0)
    forecast, labels = CategoricalForecast(torch.randn(3, 40, 4)), torch.randint(0, 4, (40,))
    whole, first, second = scores.Reliability(), scores.Reliability(), scores.Reliability()
    whole.add(forecast, labels)
    first.add(CategoricalForecast(forecast.logits[:, :9]), labels[:9])
    second.add(CategoricalForecast(forecast.logits[:, 9:]), labels[9:])
    first.merge(second)
    assert first.ece == pytest.approx(whole.ece, rel=1e-12)
    with pytest.raises(ValueError, match="bins must be the same, got 15 and 10"):
        first.merge(scores.Reliability(bins=10))


def test_interval_reliability_is_the_coverage_at_every_level() -> None:
    torch.manual_seed(0)
    forecast = GaussianForecast(torch.randn(4, 200, 3), torch.rand(4, 200, 3) + 0.2)
    y = 1.5 * torch.randn(200, 3)
    gathered = scores.IntervalReliability()
    gathered.add(GaussianForecast(forecast.means[:, :50], forecast.scales[:, :50]), y[:50])
    gathered.add(GaussianForecast(forecast.means[:, 50:], forecast.scales[:, 50:]), y[50:])
    for row in gathered.rows:
        low, high = forecast.interval(row["level"])
        assert row["observed"] == pytest.approx(float(((y >= low) & (y <= high)).double().mean()), abs=1e-9)
        assert row["count"] == 600
    assert gathered.coverage(0.9) == gathered.rows[8]["observed"]
    with pytest.raises(ValueError, match=r"level must be one of \(0\.1, .*, got 0\.42"):
        gathered.coverage(0.42)


def test_nothing_counted_is_not_known() -> None:
    assert math.isnan(scores.Reliability().ece)
    assert math.isnan(scores.IntervalReliability().coverage(0.5))


def test_settings_of_the_counts_are_checked() -> None:
    with pytest.raises(ValueError, match="bins must be an integer of at least 1, got 0"):
        scores.Reliability(bins=0)
