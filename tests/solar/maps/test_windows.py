import itertools

import numpy as np
import pytest

from metaprior.solar.maps.days import ONE_DAY, Days, all_days, divide_times, has_few_days, split_days, split_times
from metaprior.solar.maps.windows import gapless_starts

STEP = np.timedelta64(30, "m")
START = np.datetime64("2024-03-04T08:00", "ns")


def at(*numbers: int) -> np.ndarray:
    """Half-hours with these numbers."""
    return START + np.array(numbers, dtype=int) * STEP


def days(count: int) -> Days:
    first = np.datetime64("2024-03-04")
    return Days(first, first + count * ONE_DAY)


@pytest.mark.parametrize(
    ("numbers", "length", "starts"),
    [
        (range(5), 3, [0, 1, 2]),
        (range(5), 5, [0]),
        (range(5), 6, []),
        (range(5), 1, [0, 1, 2, 3, 4]),
        ([0, 1, 2, 4, 5, 6, 7], 3, [0, 3, 4]),
        ([0, 2, 4], 2, []),
        ([], 1, []),
    ],
)
def test_windows_start_where_enough_frames_follow(numbers: list[int], length: int, starts: list[int]) -> None:
    assert gapless_starts(at(*numbers), STEP, length).tolist() == starts


def test_a_gap_is_found_wherever_it_is() -> None:
    generator = np.random.default_rng(0)
    numbers = np.flatnonzero(generator.random(200) < 0.8)
    for length in (2, 3, 8):
        expected = [
            start for start in range(len(numbers) - length + 1) if (np.diff(numbers[start : start + length]) == 1).all()
        ]
        assert expected
        assert gapless_starts(at(*numbers), STEP, length).tolist() == expected


def test_a_window_has_at_least_one_frame() -> None:
    with pytest.raises(ValueError, match="must be an integer of at least 1, got 0"):
        gapless_starts(at(0, 1), STEP, 0)


def test_days_hold_windows_whose_frames_are_all_within() -> None:
    times = np.datetime64("2024-03-03T23:00", "ns") + np.arange(6) * STEP  # midnight is number 2
    starts = gapless_starts(times, STEP, 2)
    second, first = days(1), Days(np.datetime64("2024-03-03"), np.datetime64("2024-03-04"))
    assert first.select(times, starts, 2).tolist() == [0]
    assert second.select(times, starts, 2).tolist() == [2, 3, 4]


def test_all_days_are_those_of_the_first_and_last_frame() -> None:
    found = all_days(at(0, 48))
    assert (found.count, str(found)) == (2, "2024-03-04 to 2024-03-05")


def test_days_backwards_are_refused() -> None:
    with pytest.raises(ValueError, match="stop must be later than first, got 2024-03-04 and 2024-03-04"):
        days(0)


@pytest.mark.parametrize(
    ("count", "shares", "gap", "lengths"),
    [
        (22, (0.7, 0.15, 0.15), 1, [13, 3, 4]),
        (5, (0.7, 0.15, 0.15), 1, [1, 1, 1]),
        (10, (1.0, 1.0), 2, [4, 4]),
        (9, (0.5, 0.5), 3, [3, 3]),
        (4, (1.0,), 1, [4]),
    ],
)
def test_parts_have_their_shares_and_a_gap_between(
    count: int, shares: tuple[float, ...], gap: int, lengths: list[int]
) -> None:
    parts = split_days(days(count), shares, gap)
    assert [part.count for part in parts] == lengths
    assert parts[0].first == days(count).first
    assert parts[-1].stop == days(count).stop
    for before, after in itertools.pairwise(parts):
        assert after.first - before.stop == gap * ONE_DAY


@pytest.mark.parametrize("count", range(5, 60, 7))
def test_no_day_is_lost_but_those_of_the_gaps(count: int) -> None:
    parts = split_days(days(count))
    assert sum(part.count for part in parts) == count - 2
    assert min(part.count for part in parts) >= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gap": 0}, "gap must be an integer of at least 1, got 0"),
        ({"shares": (0.5, 0.0)}, r"shares must be positive, got \(0\.5, 0\.0\)"),
        ({}, r"3 parts with 1 days between need at least 5 days, got 4 \(2024-03-04 to 2024-03-07\)"),
    ],
)
def test_a_split_that_cannot_be_says_why(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_days(days(4), **arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Try split_days\(all_days\(times\)\)"):
        split_days(np.zeros(3, "datetime64[m]"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "apart"), [(144, 8), (26, 8), (19, 8), (60, 2)])
def test_times_of_few_days_are_divided_with_a_window_between(count: int, apart: int) -> None:
    times = at(*range(count))
    parts = split_times(times, apart=apart)
    inside = [times[(times >= part.first) & (times < part.stop)] for part in parts]
    assert min(map(len, inside)) >= 1
    assert sum(map(len, inside)) == count - 2 * apart
    assert (inside[0][0], inside[-1][-1]) == (times[0], times[-1])
    for before, after in itertools.pairwise(inside):
        assert int((after[0] - before[-1]) / np.diff(times)[0]) == apart + 1
    starts = np.arange(count - 1)
    for part, own in zip(parts, inside, strict=True):
        chosen = part.select(times, starts, 2)
        assert len(chosen) == len(own) - 1


def test_few_days_are_divided_by_hours_and_many_by_days() -> None:
    assert has_few_days(days(4))
    assert not has_few_days(days(5))
    assert has_few_days(days(6), test_from="2024-03-07")
    parts = divide_times(at(*range(4 * 48)), 8, test_from="2024-03-07")
    assert str(parts["test"]) == "2024-03-07 to 2024-03-08"
    assert parts["train"].first == START
    assert parts["val"].stop <= np.datetime64("2024-03-06")
    assert parts["train"].count == 2
    assert str(parts["val"]).startswith("2024-03-05T")
    with pytest.raises(ValueError, match=r"need at least 19 frames in daylight, got 18\. Use shorter windows"):
        split_times(at(*range(18)))
