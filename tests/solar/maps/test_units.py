from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from pvlib.solarposition import get_solarposition

from metaprior.solar import sun
from metaprior.solar.maps.baselines import persistence, smart_persistence
from metaprior.solar.maps.units import ClearSkyIndex, ScaledValues, Units
from tests.solar.maps.tiny_archive import LATITUDE, LONGITUDE, irradiance

NOON = np.datetime64("2024-03-04T10:00", "ns") + np.arange(5) * np.timedelta64(30, "m")
MIDNIGHT = NOON - np.timedelta64(12, "h")
HERE = sun.Place.of(LATITUDE, LONGITUDE)
SINE = sun.sine_of_elevation(NOON, HERE)
SHAPE = (len(LATITUDE), len(LONGITUDE))


def values() -> np.ndarray:
    return irradiance(NOON).astype(np.float64)


@pytest.mark.parametrize("units", [ScaledValues(-20.0, 1300.0), ClearSkyIndex(), ClearSkyIndex(highest=2.0)])
def test_decoding_inverts_encoding(units: Units) -> None:
    loc, scale = units.decoding(5, SINE)
    back = loc.astype(np.float64) + scale.astype(np.float64) * units.encode(values(), SINE)  # type: ignore[arg-type]
    np.testing.assert_allclose(back, values(), rtol=3e-7, atol=1e-4)  # float32 in between, of up to 1300 W/m2
    assert np.broadcast_shapes(loc.shape, scale.shape, values().shape) == values().shape


def test_scaled_values_run_from_minus_one_to_one() -> None:
    units = ScaledValues(10.0, 30.0)
    frames = np.array([10.0, 15.0, 20.0, 30.0, 40.0]).reshape(5, 1, 1)
    found = units.encode(frames, None)  # type: ignore[arg-type]
    assert found.ravel().tolist() == [-1.0, -0.5, 0.0, 1.0, 2.0]
    assert found.dtype == np.float32
    loc, scale = units.decoding(2, None)
    assert (loc.ravel().tolist(), scale.ravel().tolist()) == ([20.0, 20.0], [10.0, 10.0])


def test_the_clear_sky_index_runs_from_minus_one_to_one() -> None:
    clear = sun.clear_sky(NOON, LATITUDE, LONGITUDE)
    for index, expected in ((0.0, -1.0), (0.6, 0.0), (1.2, 1.0), (0.9, 0.5)):
        found = ClearSkyIndex().encode(index * clear, SINE)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    loc, scale = ClearSkyIndex(1.5).decoding(5, SINE)
    np.testing.assert_allclose(scale, 0.75 * clear, rtol=1e-6)
    np.testing.assert_array_equal(loc, scale)


def test_what_is_known_is_the_sine_of_the_suns_elevation() -> None:
    assert (ScaledValues(0.0, 1.0).known_per_target, ClearSkyIndex().known_per_target) == (0, 1)
    assert ScaledValues(0.0, 1.0).known(None, SHAPE).shape == (0, *SHAPE)
    found = ClearSkyIndex().known(sun.sine_of_elevation(np.concatenate([NOON, MIDNIGHT]), HERE), SHAPE)
    stamps = pd.DatetimeIndex(np.concatenate([NOON, MIDNIGHT])).tz_localize("UTC")
    assert found.shape == (10, *SHAPE)
    assert found.dtype == np.float32
    for row, column in ((0, 0), (3, 11), (11, 5)):
        elevation = get_solarposition(stamps, LATITUDE[row], LONGITUDE[column])["elevation"].to_numpy()
        np.testing.assert_allclose(found[:, row, column], np.sin(np.radians(elevation)), atol=1e-4)
    assert (found[5:] < 0).all(), "by night too"


def test_holding_the_index_is_smart_persistence() -> None:
    """The last number again and again, decoded, is what the baseline computes in W/m2."""
    units, frames = ClearSkyIndex(), irradiance(NOON)
    last = units.encode(frames[:2], SINE[:2])[-1]
    loc, scale = units.decoding(3, SINE[2:])
    clear = torch.tensor(sun.clear_sky(NOON, LATITUDE, LONGITUDE), dtype=torch.float32)[None]
    expected = smart_persistence(torch.from_numpy(frames)[None, :2], clear[:, 1], clear[:, 2:])
    np.testing.assert_allclose(loc + scale * last, expected[0], rtol=1e-5)
    held = persistence(torch.from_numpy(frames)[None, :2], 3)
    assert not np.allclose(held, expected, rtol=1e-3), "the sun moved"


def test_an_index_needs_coordinates() -> None:
    units = ClearSkyIndex()
    for use in (
        lambda: units.encode(irradiance(NOON), None),
        lambda: units.decoding(5, None),
        lambda: units.known(None, SHAPE),
    ):
        with pytest.raises(ValueError, match=r"needs frames with latitude and longitude.*or scale by data_min"):
            use()


def test_by_night_there_is_no_index() -> None:
    with pytest.raises(ValueError, match="the sun is down in some of these frames, where a clear-sky index does not"):
        ClearSkyIndex().encode(irradiance(NOON), sun.sine_of_elevation(MIDNIGHT, HERE))


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0)])
def test_frames_that_are_all_the_same_cannot_be_scaled(low: float, high: float) -> None:
    with pytest.raises(ValueError, match=f"data_min must be less than data_max, got {low} and {high}"):
        ScaledValues(low, high)


@pytest.mark.parametrize("highest", [0.0, -1.0, float("nan")])
def test_the_highest_index_is_positive(highest: float) -> None:
    with pytest.raises(ValueError, match=f"highest must be a positive number, got {highest}"):
        replace(ClearSkyIndex(), highest=highest)
