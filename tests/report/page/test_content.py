from typing import Any

import numpy as np
import pytest

from tests.report.solar_content import OURS, content, example


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": np.zeros((4, 4))}, r"maps 'x': target has shape \(4, 4\); give \(lead times, rows, columns\)"),
        ({"std": np.zeros((4, 32, 41))}, r"std has shape \(4, 32, 41\), target \(4, 32, 40\); give \(4, 32, 40\)"),
        ({"samples": np.zeros((4, 32, 40))}, r"samples has shape .*; give \(any number, 4, 32, 40\)"),
        ({"latitude": np.zeros(3)}, r"latitude has shape \(3,\), .*; give \(32\)"),
        ({"std": np.full((4, 32, 40), -0.5)}, "std goes down to -0.5; it cannot be negative"),
        ({"mean": np.full((4, 32, 40), np.inf)}, "mean holds infinite values; give NaN"),
        ({"issued": "yesterday"}, "issued is 'yesterday'; give an ISO time such as 2026-02-11T03:00"),
        ({"cadence_minutes": 0}, "cadence_minutes is 0; give at least 1"),
    ],
)  # fmt: skip
def test_maps_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        example("x", **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ours": "nobody"}, f"ours is 'nobody', which has no row in scores; there are {OURS}, "),
        ({"scores": [{"method": "a"}]}, r"scores\[0\] lacks lead_minutes; it has method"),
        ({"scores": [{"method": "a", "lead_minutes": "30"}]}, r"lead_minutes is '30'; give a number or \"all\""),
        ({"learning_curve": [{"method": "a", "shots": 1}] * 2}, r"learning_curve\[1\]: 'a' has shots 1 twice"),
    ],
)
def test_rows_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        content(**given)


def test_times_are_told_in_utc() -> None:
    assert example(issued="2026-02-11T23:45+01:00", leads=2).valid_texts == [
        "2026-02-11 23:15 UTC",
        "2026-02-11 23:45 UTC",
    ]
    assert example(issued="2026-02-11T03:00:00.000000000").issued_text == "2026-02-11 03:00 UTC"
