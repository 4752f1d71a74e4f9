import math

import pytest

from metaprior.report.curves import curves_of
from metaprior.report.measures import measure


def test_curves_leave_out_what_is_not_known() -> None:
    rows = [
        {"method": "a", "lead_minutes": 60, "coverage_90": 0.8, "coverage_90_low": 0.7, "coverage_90_high": 0.85},
        {"method": "a", "lead_minutes": 30, "coverage_90": 0.9},
        {"method": "a", "lead_minutes": "all", "coverage_90": 0.85},
        {"method": "a", "lead_minutes": 90, "coverage_90": math.nan},
        {"method": "b", "lead_minutes": 30, "coverage_90": None},
    ]
    curves = curves_of(rows, measure("coverage_90", "W/m2"), "lead_minutes")
    assert list(curves) == ["a"]
    first, second = curves["a"]
    assert first[:2] == (30, 90)
    assert math.isnan(first.low)
    assert second == pytest.approx((60, 80, 70, 85))
