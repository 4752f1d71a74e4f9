"""Invented forecasts of maps."""

import numpy as np

from metaprior.solar.maps.report.example import ExampleForecast


def example(
    name: str = "Taipei & <coast>",
    *,
    seed: int = 0,
    leads: int = 4,
    height: int = 32,
    width: int = 40,
    **others: object,
) -> ExampleForecast:
    """Return drifting waves and a forecast that is uncertain where they change."""
    noise = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / 6

    def frame(step: int) -> np.ndarray:
        wave = np.sin(x + seed - step / 3) * np.cos(y + 0.7 * np.sin(x / 2 + step / 5))
        return 0.45 + 0.3 * wave + 0.004 * noise.standard_normal((height, width))

    target = np.stack([frame(step) for step in range(1, leads + 1)])
    growing = 0.02 * np.sqrt(np.arange(1, leads + 1))[:, None, None]
    std = growing * (1 + 1.5 * np.abs(np.gradient(target, axis=2)) / 0.05)
    mean = target + 0.8 * std * np.sin(2 * y + seed)
    arguments = {
        "name": name,
        "issued": "2026-02-11T03:00:00",
        "cadence_minutes": 30,
        "target": target,
        "mean": mean,
        "std": std,
        "samples": mean + std * noise.standard_normal((3, leads, height, width)),
        "inputs": np.stack([frame(step) for step in (-1, 0)]),
        "units": "reflectance",
        "latitude": np.linspace(26.0, 24.4, height),
        "longitude": np.linspace(120.5, 122.5, width),
    }
    return ExampleForecast(**{**arguments, **others})  # type: ignore[arg-type]
