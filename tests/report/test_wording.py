import math

import pytest

from metaprior.report.wording import Change, calibration, counted


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ((-0.05, -0.08, -0.012), "5.0 % lower (1.2 to 8.0 %)"),
        ((0.2, 0.1, 0.3), "20 % higher (10 to 30 %)"),
        ((-0.01, -0.03, 0.02), "1.0 % lower, not significantly (3.0 % lower to 2.0 % higher)"),
        ((-0.01, math.nan, math.nan), "1.0 % lower (a single task: no interval)"),
        # A change that would be shown as 0.0 % is neither lower nor higher.
        ((-0.0004, -0.03, 0.02), "the same (3.0 % lower to 2.0 % higher)"),
        ((-0.0004, -0.001, -0.0001), "the same (0.1 % lower to 0 %)"),
        ((0.0001, -0.0002, 0.0004), "the same to 0.1 %"),
        ((0.0, math.nan, math.nan), "the same (a single task: no interval)"),
    ],
)
def test_changes_in_words(change: tuple[float, float, float], text: str) -> None:
    assert str(Change(*change)) == text


def test_a_change_is_negligible_if_all_of_its_interval_is() -> None:
    assert Change(0.001, -0.005, 0.009).is_negligible
    assert not Change(0.001, -0.005, 0.011).is_negligible
    assert not Change(0.0, math.nan, math.nan).is_negligible


@pytest.mark.parametrize(
    ("inside", "low", "high", "judgement"),
    [
        (0.94, 0.89, 0.97, "consistent with calibration"),
        (0.85, 0.80, 0.91, "consistent with calibration"),
        (0.91, 0.905, 0.915, "close to calibrated"),
        (0.94, 0.93, 0.95, "too wide"),
        (0.85, None, None, "too narrow"),
    ],
)
def test_intervals_are_wrong_only_if_their_coverage_excludes_the_level(
    inside: float, low: float | None, high: float | None, judgement: str
) -> None:
    assert calibration(0.9, inside, low, high) == judgement


def test_small_counts_are_words() -> None:
    assert [counted(n, "window") for n in (0, 1, 5, 40)] == ["no windows", "one window", "five windows", "40 windows"]
