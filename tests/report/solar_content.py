"""Invented forecasts and scores for pages and figures, with awkward names and missing numbers."""

import math

import numpy as np

from metaprior.solar.maps.report.page.content import Maps, PageContent
from metaprior.text_table import Row

LEADS = (30, 60, 90, 120)
OURS = "Adapted meta-prior"
METHODS = {
    OURS: 0.062,
    "Meta-prior before adaptation": 0.071,
    "MAML": 0.066,
    "Pooled U-Net, fine-tuned": 0.0632,
    "Deep ensemble of 5, fine-tuned": 0.0618,
    "Pooled U-Net": 0.070,
    "Optical flow <pysteps & co>": 0.085,
    "Smart persistence": 0.096,
    "Persistence": 0.105,
}
POINTS = ("Optical flow <pysteps & co>", "Smart persistence", "Persistence")


def example(
    name: str = "Taipei & <coast>",
    *,
    seed: int = 0,
    leads: int = 4,
    height: int = 32,
    width: int = 40,
    **others: object,
) -> Maps:
    """Waves that drift, a forecast that is unsure where they change."""
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
    return Maps(**{**arguments, **others})  # type: ignore[arg-type]


def score_rows() -> list[Row]:
    rows: list[Row] = []
    for method, level in METHODS.items():
        for lead in (*LEADS, "all"):
            growth = 0.8 + 0.1 * LEADS.index(lead) if lead != "all" else 0.95
            rmse, persistence = level * growth, 0.105 * (growth + 0.1 if lead != "all" else 1.05)
            row: Row = {"method": method, "lead_minutes": lead}
            measures = {
                "rmse": rmse,
                "mae": 0.7 * rmse,
                "bias": 0.1 * (level - 0.068),
                "skill_persistence": 0.0 if method == "Persistence" else 1 - rmse / persistence,
                "ssim": 1 - 4 * rmse,
                "crps": 0.7 * rmse if method in POINTS else 0.5 * rmse,
            }
            if method not in POINTS:
                measures |= {"nll": -1.4 + 5 * rmse, "coverage_90": 0.9 - 3 * (level - 0.062), "width_90": 3.1 * rmse}
            for name, value in measures.items():
                row |= {
                    name: value,
                    f"{name}_low": value - 0.03 * abs(value),
                    f"{name}_high": value + 0.03 * abs(value),
                }
            rows.append(row)
    rows[0]["ssim"] = math.nan
    return rows


def content(**others: object) -> PageContent:
    """A page with everything on it."""
    levels = [0.1 * i for i in range(1, 10)]
    shots: list[Row] = [
        {
            "method": method,
            "shots": k,
            **{
                name + end: scale * level * (0.85 + 0.4 / (1 + k)) * factor
                for name, scale in (("crps", 0.5), ("rmse", 1.0))
                for end, factor in (("", 1), ("_low", 0.97), ("_high", 1.03))
            },
        }
        for method, level in list(METHODS.items())[:5]
        for k in (0, 1, 2, 5, 10)
    ]
    arguments = {
        "title": "Solar forecasts: five windows are enough <to adapt>",
        "story": (
            "A meta-prior was trained on 19 days of satellite frames & adapted to 40 places it had not seen, from five "
            "windows each. Forecasts of the next two hours were scored beside eight other methods.\n\n"
            "A deep ensemble of five networks with the same total time has a slightly lower RMSE."
        ),
        "units": "reflectance",
        "ours": OURS,
        "scores": score_rows(),
        "reliability": {
            method: [(level, level ** (1 + 10 * (size - 0.062))) for level in levels]
            for method, size in METHODS.items()
            if method not in POINTS
        },
        "learning_curve": shots,
        "maps": [
            example(),
            example("Desert", seed=3, height=24, width=24, latitude=None, longitude=None, samples=None),
        ],
        "settings": {"seed": 1, "model": {"width": 32, "<presets>": ["head", "all"]}, "limit": None, "best": math.nan},
    }
    return PageContent(**{**arguments, **others})  # type: ignore[arg-type]
