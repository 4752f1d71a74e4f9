import numpy as np
import pytest

from metaprior.solar.sites.plant import Plant


def plant(power, step=900, start="2025-06-01T00:00", **known):
    power = np.asarray(power, float)
    known.setdefault("doubt", np.zeros(len(power), np.uint8))
    return Plant("roof", np.datetime64(start), step, power, **known)


def test_hours_are_means_of_usable_intervals_on_full_hours():
    doubt = np.array([0, 0, 3, 0, 0, 2, 2, 2], np.uint8)
    hours = plant([1, 2, 90, 3, 4, 5, 6, 7], start="2025-06-01T00:30", doubt=doubt).hourly()
    assert hours.start == np.datetime64("2025-06-01T00:00")
    np.testing.assert_array_equal(hours.power, [1.5, 3.5, np.nan])  # two of four intervals are enough, one is not
    assert hours.doubt.tolist() == [0, 0, 2]
    assert hours.step == 3600


def test_hours_of_hours_are_the_usable_values():
    hourly = plant([1, np.nan, 3], step=3600, doubt=np.array([0, 0, 1], np.uint8)).hourly()
    np.testing.assert_array_equal(hourly.power, [1, np.nan, np.nan])


def test_known_columns_keep_their_future():
    long = plant([1, 2, 3, 4], future={"base": np.arange(12.0)}, capacity=4.0)
    np.testing.assert_array_equal(long.hourly().future["base"], [1.5, 5.5, 9.5])
    np.testing.assert_array_equal(long.share().future["base"], np.arange(12) / 4)
    part = long.between(long.times[1], long.times[3])
    assert part.power.tolist() == [2, 3]
    assert part.start == long.times[1]
    np.testing.assert_array_equal(part.future["base"], np.arange(1, 12))


@pytest.mark.parametrize(
    ("start", "end", "values"),
    [
        (None, None, [0, 1, 2, 3]),
        ("2025-06-01T00:10", None, [1, 2, 3]),
        (None, "2025-06-01T00:15", [0]),
        ("2025-05-01", "2025-07-01", [0, 1, 2, 3]),
        ("2025-06-01T00:30", "2025-06-01T00:15", []),
        ("2025-07-01", None, []),
        ("2025-05-01", "2025-05-02", []),
    ],
)
def test_a_part_has_the_intervals_that_begin_in_it(start, end, values):
    part = plant([0, 1, 2, 3]).between(start and np.datetime64(start), end and np.datetime64(end))
    assert part.power.tolist() == values


def test_shares_of_the_capacity():
    assert plant([1, 2], capacity=4.0).share().power.tolist() == [0.25, 0.5]
    assert plant([0.1], unit="share").share().capacity == 1.0
    with pytest.raises(ValueError, match=r"the capacity of roof must be known.*Try read_power"):
        plant([1, 2]).share()


def test_a_plant_without_power_is_allowed():
    empty = plant([], future={"base": np.ones(8)})
    assert len(empty.hourly()) == 0
    assert len(empty.hourly().future["base"]) == 2
    assert empty.end == empty.start


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 7200}, "step must be 60 to 3600 seconds"),
        ({"step": 700}, "divide 3600, got 700"),
        ({"unit": "kWh"}, "unit must be one of W, kW, MW, share, got 'kWh'"),
        ({"capacity": 0.0}, "capacity of roof must be a positive number, got 0.0"),
        ({"doubt": np.zeros(3, np.uint8)}, r"power and doubt must be \(T,\), got \(2,\) and \(3,\)"),
        ({"future": {"ghi": np.zeros(1)}}, r"future\['ghi'\] must have at least 2 values"),
    ],
)
def test_what_is_no_plant(change, message):
    with pytest.raises(ValueError, match=message):
        plant([1, 2], **change)
