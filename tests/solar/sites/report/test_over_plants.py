import numpy as np
import pandas as pd
import pytest

from metaprior.solar.sites.backtest import Backtest
from metaprior.solar.sites.report.over_plants import Entry, change, day_rows_with_limits

DAYS = (0, 3)


def result(rmse: dict[Entry, list[float]]) -> Backtest:
    rows = [
        {
            "plant": f"plant {number}",
            "place": "known",
            "method": method,
            "days": days,
            "by": "all",
            "group": "all",
            "hours": 10,
            "rmse": value,
            "mae": value / 2,
            "bias": 0.0,
            "crps": value / 3,
            "coverage": 90.0 + number,
        }
        for (method, days), values in rmse.items()
        for number, value in enumerate(values)
    ]
    return Backtest(pd.DataFrame(rows), {}, 6)


def test_a_common_factor_is_known_exactly_however_much_plants_differ() -> None:
    plants = [1.0, 5.0, 25.0]
    found = change(
        result({Entry("a", 3): [0.8 * one for one in plants], Entry("a", 0): plants}), Entry("a", 3), Entry("a", 0)
    )
    np.testing.assert_allclose(found, [-0.2, -0.2, -0.2])


def test_the_interval_has_the_width_of_the_spread_over_plants() -> None:
    noise = np.random.default_rng(1).normal(size=400)
    scored = result({Entry("a", 3): (10 + noise).tolist(), Entry("a", 0): [10.0] * 400})
    found = change(scored, Entry("a", 3), Entry("a", 0))
    assert found.high - found.low == pytest.approx(2 * 1.96 * noise.std() / 20 / 10, rel=0.1)
    assert found.low < found.value < found.high


def test_rows_by_days_have_limits_around_their_values() -> None:
    rows = day_rows_with_limits(result({Entry("a", days): [8.0, 10.0, 12.0] for days in DAYS}))
    assert [(row["method"], row["shots"]) for row in rows] == [("a", 0), ("a", 3)]
    for row in rows:
        assert 8 <= row["rmse_low"] < row["rmse"] == 10 < row["rmse_high"] <= 12
        assert row["coverage_90"] == pytest.approx(0.91)
        assert 0.9 <= row["coverage_90_low"] < 0.91 < row["coverage_90_high"] <= 0.92
