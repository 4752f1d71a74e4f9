"""Tables of the power of clean plants, for tests."""

import numpy as np
import pandas as pd

START = np.datetime64("2025-05-01T00:00", "s")


def sunny_power(days: int = 30, step: int = 900, seed: int = 0, noon: float = 12.0, peak: float = 80.0):
    """Return the power of a plant under changing clouds, (T,), in kW, zero at night."""
    rng = np.random.default_rng(seed)
    slots = 86400 // step
    hour = (np.arange(days * slots) + 0.5) % slots * 24 / slots
    sun = np.clip(np.cos((hour - noon) * np.pi / 14), 0, None) ** 1.2
    day = np.repeat(rng.uniform(0.45, 1.0, days), slots)
    cloud = np.repeat(rng.uniform(0.6, 1.0, days * 24), slots // 24) * rng.uniform(0.93, 1.0, days * slots)
    return np.round(peak * sun * day * cloud, 4)


def stamps(count: int, step: int = 900, start=START):
    return pd.DatetimeIndex(start + np.arange(count) * np.timedelta64(step, "s"))


def long_frame(power=None, *, step: int = 900, site: str = "roof", **columns):
    """Return a table with columns site, time and power_kw of one plant, in UTC."""
    power = sunny_power(step=step) if power is None else np.asarray(power)
    time = stamps(len(power), step).tz_localize("UTC")
    return pd.DataFrame({"site": site, "time": time, "power_kw": power, **columns})


def text_frame(power=None, *, step: int = 900, zone_text: str = "Z", start=START, **columns):
    """Return such a table with texts, as a CSV file has them."""
    power = sunny_power(step=step) if power is None else np.asarray(power)
    time = stamps(len(power), step, start).strftime("%Y-%m-%d %H:%M:%S") + zone_text
    frame = pd.DataFrame({"site": "roof", "time": np.asarray(time, object), "power_kw": power, **columns})
    return frame.astype({"power_kw": object})
