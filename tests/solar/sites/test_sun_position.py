import numpy as np
import pandas as pd
import pytest
from pvlib.clearsky import haurwitz as pvlib_haurwitz
from pvlib.solarposition import get_solarposition

from metaprior.solar.sites.sun_position import haurwitz, sun_of_intervals

SECOND = np.timedelta64(1, "s")


@pytest.mark.parametrize(("latitude", "longitude"), [(-35.3, 149.1), (64.0, -21.9), (0.0, 179.5), (22.34, 114.26)])
def test_the_sun_agrees_with_the_exact_algorithm(latitude: float, longitude: float) -> None:
    rng = np.random.default_rng(0)
    times = np.datetime64("1995-01-01", "s") + rng.integers(0, 40 * 365 * 86400, 500) * SECOND
    sun = sun_of_intervals(times, 2, latitude, longitude / 15.0)
    exact = get_solarposition(pd.to_datetime(times + SECOND, utc=True), latitude, longitude)
    np.testing.assert_allclose(sun.elevation, exact["elevation"], atol=0.013)
    flat = np.abs(sun.elevation) < 80
    turned = (sun.azimuth - exact["azimuth"].to_numpy() + 180.0) % 360.0 - 180.0
    np.testing.assert_allclose(turned[flat], 0.0, atol=0.06)


def test_clear_sky_is_haurwitz_averaged_over_the_interval() -> None:
    times = np.datetime64("2024-04-01T00", "s") + np.arange(24) * 3600 * SECOND
    sun = sun_of_intervals(times, 3600, 47.0, 0.5)
    moments = times[:, None] + np.arange(30, 3600, 60) * SECOND
    zenith = get_solarposition(pd.to_datetime(moments.ravel(), utc=True), 47.0, 7.5)["zenith"]
    mean = pvlib_haurwitz(zenith)["ghi"].to_numpy().reshape(24, -1).mean(1)
    np.testing.assert_allclose(sun.clear_sky, mean, atol=1.0)
    assert (sun.clear_sky[[0, 1, 2, 22]] == 0).all()
    np.testing.assert_allclose(haurwitz(np.array([-0.5, 0.0, 1.0])), [0.0, 0.0, 1098.0 * np.exp(-0.059)])


def test_a_batch_is_its_plants_one_by_one() -> None:
    rng = np.random.default_rng(1)
    starts = np.datetime64("2020-01-01", "s") + rng.integers(0, 8760, 5) * 3600 * SECOND
    times = starts[:, None] + np.arange(48) * 3600 * SECOND
    latitude, offset = rng.uniform(-60, 60, 5), rng.uniform(-12, 12, 5)
    together = sun_of_intervals(times, 3600, latitude, offset)
    for i in range(5):
        alone = sun_of_intervals(times[i], 3600, latitude[i], offset[i])
        for name in ("elevation", "azimuth", "clear_sky"):
            np.testing.assert_array_equal(getattr(together, name)[i], getattr(alone, name))
    assert sun_of_intervals(times[0], 3600, latitude, offset).elevation.shape == (5, 48)


def test_a_latitude_in_metres_raises() -> None:
    with pytest.raises(ValueError, match="latitude must lie within -90 and 90 degrees"):
        sun_of_intervals(np.array(["2020-01-01"], "datetime64[s]"), 3600, 4_700_000.0, 0.0)
