"""The record: what is in it, and that it is a function of seed and time alone."""

import re

import numpy as np
import pytest
import torch
import xarray as xr

from metaprior.solar.simulator import Region, Simulator, simulate
from metaprior.solar.simulator.region import PIXEL_METRES
from metaprior.solar.simulator.weather import Innovations, State
from metaprior.solar.sun import clear_sky

STEADY = {"wind_spread": 0.0, "wind_regime": 0.0, "cloudiness_spread": 0.0, "orography": 0.0, "fog": 0.0}


@pytest.fixture(scope="module")
def record() -> xr.DataArray:
    return simulate(days=2, size=12, seed=3, progress=False)


def test_frames_are_irradiance_on_a_grid(record: xr.DataArray) -> None:
    assert record.dims == ("time", "y", "x")
    assert record.dtype == np.float32
    assert record.attrs["units"] == "W m-2"
    assert record.attrs["data_max"] == record.values.max()
    assert record["latitude"].mean() == pytest.approx(46.0)
    assert np.diff(record["latitude"]) == pytest.approx(0.05)
    assert np.diff(record["longitude"]) == pytest.approx(0.05 / np.cos(np.radians(46.0)))
    ceiling = clear_sky(record["time"].values, record["latitude"].values, record["longitude"].values)
    assert np.isfinite(record).all()
    assert (record.values >= 0).all()
    assert (record.values <= ceiling * (1 + 1e-6)).all()
    assert record.values.std() > 10


def test_a_shorter_record_is_the_beginning_of_a_longer_one(record: xr.DataArray) -> None:
    shorter = simulate(days=1, size=12, seed=3, progress=False)
    np.testing.assert_array_equal(shorter["time"], record["time"][: len(shorter)])
    np.testing.assert_array_equal(shorter.values, record.values[: len(shorter)])


def test_nights_are_left_out_or_dark(record: xr.DataArray) -> None:
    whole = simulate(days=2, size=12, seed=3, daylight_only=False, progress=False)
    assert len(whole) == 96
    np.testing.assert_array_equal(np.diff(whole["time"]), np.timedelta64(30, "m"))
    np.testing.assert_array_equal(whole.sel(time=record["time"]).values, record.values)
    assert len(record) < 96
    assert (whole.drop_sel(time=record["time"]) == 0).all()
    assert (record.max(("y", "x")) > 0).all()


def test_a_seed_is_all_the_randomness() -> None:
    before = torch.get_rng_state()
    first, again, other = (simulate(days=1, size=8, seed=seed, progress=False) for seed in (0, 0, 1))
    xr.testing.assert_identical(first, again)
    assert not np.array_equal(first.values, other.values)
    assert torch.equal(torch.get_rng_state(), before)


def test_states_are_found_again_in_any_order() -> None:
    forward, anyhow = (Simulator(days=3, size=8) for _ in range(2))
    frames = forward.frames(progress=False).values
    for index in (40, 3, len(frames) - 1, 41, 40):
        there, here = forward.state_at(index), anyhow.state_at(index)
        assert there.step == here.step
        assert torch.equal(there.octaves, here.octaves)
        assert torch.equal(there.regime, here.regime)
    assert anyhow.index_of(anyhow.times[40]) == 40


def best_shift(frames: np.ndarray, furthest: int = 6) -> tuple[int, int]:
    """Pixels along y and x by which the middle of a frame correlates most with where it is in the next one.

    Correlation around the edges, as by Fourier transforms of the frames, would be biased towards no shift.
    """
    size = frames.shape[-1]
    middle = frames[:-1, furthest:-furthest, furthest:-furthest]
    found = {}
    for y in range(2 * furthest + 1):
        for x in range(2 * furthest + 1):
            later = frames[1:, y : y + size - 2 * furthest, x : x + size - 2 * furthest]
            found[y - furthest, x - furthest] = np.corrcoef(middle.ravel(), later.ravel())[0, 1]
    return max(found, key=lambda shift: found[shift])


@pytest.mark.parametrize("pixels", [(2, -1), (-3, 2), (0, 4)])
def test_clouds_drift_with_the_wind_of_the_region(pixels: tuple[int, int]) -> None:
    eastward, northward = (count * PIXEL_METRES / 1800 for count in pixels)
    region = Region(wind=(eastward, northward), **STEADY)  # type: ignore[arg-type]
    simulator = Simulator(days=1, size=48, region=region)
    sky = np.concatenate([simulator.clear_sky_index(simulator.state_at(index)) for index in range(16)])
    assert best_shift(sky) == (pixels[1], pixels[0])


def test_a_cadence_changes_what_is_seen_and_not_the_weather() -> None:
    """Without innovations, two steps of a quarter of an hour are one of half an hour."""
    region = Region(wind=(PIXEL_METRES / 900, 0.0), **STEADY)  # type: ignore[arg-type]
    kept = {}
    for cadence, steps in (("15min", 2), ("30min", 1)):
        simulator = Simulator(days=1, size=8, cadence=cadence, region=region)
        torus = simulator.torus
        wave = torch.sin(torch.arange(torus) * (2 * torch.pi / torus))
        state = State(0, wave.expand(1, 4, torus, torus), torch.ones(1, 4))
        for _ in range(steps):
            state = simulator.advance(state, Innovations(torch.zeros(1, torus, torus), torch.zeros(1, 4)))
        kept[cadence] = state
    torch.testing.assert_close(kept["15min"].octaves, kept["30min"].octaves, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kept["15min"].regime, kept["30min"].regime)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"days": 0}, "days must be an integer of at least 1, got 0"),
        ({"size": 2}, "size must be an integer of at least 4, got 2"),
        ({"cadence": "7min"}, "cadence must divide a day, such as 15min or 1h, got '7min'"),
        ({"cadence": "often"}, "cadence must be a time such as 30min, got 'often'"),
    ],
)
def test_arguments_that_make_no_record(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Simulator(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "start",
    [
        *("1.3.2025", "3/1/2025", "2025-3-1", "20250301", "2025-W09-6", "2025-02-30", "2025-03", "spring", "now", ""),
        *("2025-03-01T06:00", "2025-03-01T00:00+02:00", "2025-03-01T00:00Z", " 2025-03-01", "2025-03-01\n"),
    ],
)
def test_a_start_that_is_no_day_or_could_be_read_as_another_is_refused(start: str) -> None:
    message = f"start must be a day of the calendar in UTC, written YYYY-MM-DD as in 2025-03-01, got {start!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Simulator(days=1, size=4, start=start)


@pytest.mark.parametrize("start", ["2024-02-29", "2024-02-29T00:00", "2024-02-29 00:00:00"])
def test_a_day_may_be_written_with_its_midnight(start: str) -> None:
    times = Simulator(days=1, size=4, start=start, daylight_only=False).times
    assert times[[0, -1]].astype("datetime64[m]").astype(str).tolist() == ["2024-02-29T00:00", "2024-02-29T23:30"]


def test_frames_that_are_not_there() -> None:
    simulator = Simulator(days=1, size=4)
    last = len(simulator.times) - 1
    with pytest.raises(IndexError, match=f"time_index must be 0 to {last}, got -1"):
        simulator.state_at(-1)
    with pytest.raises(ValueError, match="there is no frame at 2025-03-01T00:00"):
        simulator.index_of(np.datetime64("2025-03-01T00:00"))
    with pytest.raises(ValueError, match="continuations must be an integer of at least 1, got 0"):
        simulator.futures(0, continuations=0)
