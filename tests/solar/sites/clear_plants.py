"""Plants of a few lines under a changing sky, with their true places, for tests."""

import numpy as np

from metaprior.solar.sites.sun_position import Floats, Times, sun_of_intervals


def cloudy_plants(
    seed: int, latitude: Floats, offset: Floats, *, days: int, step: int = 3600, start: str = "random"
) -> tuple[Floats, Times]:
    """Return shares (plants, T) and times (plants, T) of plants that face any way and are shaded by a horizon."""
    rng = np.random.default_rng(seed)
    count, fine = len(latitude), days * 288
    first = np.datetime64("2015-01-01" if start == "random" else start, "s")
    begin = first + (rng.integers(0, 3650 * 24, count) if start == "random" else np.zeros(count, int)) * 3600
    times = begin[:, None] + np.arange(fine) * np.timedelta64(300, "s")
    sun = sun_of_intervals(times, 300, latitude, offset)
    level = rng.normal(0.5, 1.5, (count, days)).repeat(288, axis=1) + rng.normal(0, 1, (count, fine // 6)).repeat(6, 1)
    index = 0.15 + 0.9 / (1.0 + np.exp(-level))
    facing = np.where(latitude >= 0, 180.0, 0.0) + rng.normal(0, 40, count)
    towards = np.cos(np.radians(sun.azimuth - facing[:, None])) * np.cos(np.radians(sun.elevation))
    gain = 1.0 + rng.uniform(0, 0.6, count)[:, None] * (index - 0.15) * towards
    horizon = np.where(sun.azimuth < 180.0, *rng.gamma(1.5, 3.0, (2, count, 1)))
    seen = np.where(sun.elevation > horizon, 1.0, 0.25)
    power = sun.clear_sky / 1000.0 * index * np.maximum(gain, 0.1) * seen
    power = np.where(power < rng.choice([0.0, 0.005, 0.01], count)[:, None], 0.0, power)
    per = step // 300
    return power.reshape(count, -1, per).mean(2), times[:, ::per]
