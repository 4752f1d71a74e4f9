"""A digest sees a change of any number, and does not see the rounding of another CPU."""

import pytest
import torch

from tests.golden.digest import FLOAT32, FLOAT64, Entry, differences, digest, exact_digest

VALUES = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def moved(by: float) -> torch.Tensor:
    changed = VALUES.clone()
    changed[40, 1] += by
    return changed


@pytest.mark.parametrize("tolerance", [FLOAT64, FLOAT32])
def test_rounding_is_no_difference_and_one_changed_value_is(tolerance: float) -> None:
    expected = {"x": digest(VALUES), "y": digest(2.5)}
    assert not differences({"x": digest(moved(0.01 * tolerance)), "y": digest(2.5)}, expected, tolerance)
    assert differences({"x": digest(moved(200 * tolerance)), "y": digest(2.5)}, expected, tolerance)
    assert differences({"x": digest(VALUES), "y": digest(2.5 * (1 + 3 * tolerance))}, expected, tolerance)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (VALUES, VALUES.reshape(3, 50)),
        (VALUES, VALUES.where(VALUES > -2, -torch.inf)),
        (torch.zeros(3), torch.tensor([0.0, 0.0, -torch.inf])),
        (True, False),
        (3, 4),
        ("a", "b"),
        (None, 0.0),
        (1.0, float("nan")),
    ],
)
def test_other_shapes_words_and_infinities_are_differences(one: Entry, other: Entry) -> None:
    assert differences({"x": digest(one)}, {"x": digest(other)}, FLOAT32)
    assert differences({"x": digest(other)}, {"x": digest(one)}, FLOAT32)
    assert exact_digest(one) != exact_digest(other)


def test_missing_and_new_entries_are_differences() -> None:
    assert differences({"x": 1}, {"y": 1}, FLOAT64) == ["y: is missing", "x: is new"]
