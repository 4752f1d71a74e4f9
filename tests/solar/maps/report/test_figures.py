import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from metaprior.solar.maps.report import figures
from metaprior.solar.maps.report.embedding import colour_map, colour_table
from tests.solar.maps.report.invented import example


def lightness(colours: np.ndarray) -> np.ndarray:
    """Return CIE L* of sRGB colours."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126729, 0.7151522, 0.0721750])
    return 116 * np.cbrt(luminance) - 16


def test_errors_get_darker_evenly_and_equally_to_both_sides() -> None:
    low, high = np.split(lightness(colour_map("error")(np.arange(256))[:, :3]), 2)
    expected = np.linspace(97, 36, 128)
    assert high == pytest.approx(expected, abs=0.6)
    assert low[::-1] == pytest.approx(expected, abs=0.6)
    assert len({colour_table(kind) for kind in ("value", "std", "error")}) == 3


def test_the_picture_has_a_row_for_each_quantity_and_a_column_for_each_lead_time(tmp_path: Path) -> None:
    maps = example(leads=3, height=8, width=8)
    figure = figures._forecast(maps)
    panels, bars = figure.axes[:12], figure.axes[12:]
    assert [axes.get_title() for axes in panels[:3]] == [
        "t+30 min\n03:30 UTC",
        "t+60 min\n04:00 UTC",
        "t+90 min\n04:30 UTC",
    ]
    assert [axes.get_ylabel() for axes in panels[::3]] == [
        "target",
        "mean",
        "uncertainty\n(std)",
        "error\n(mean − target)",
    ]
    assert [bar.get_ylabel() for bar in bars] == ["reflectance"] * 4
    images = [axes.images[0] for axes in panels]
    assert np.array_equal(images[4].get_array(), maps.mean[1])
    assert np.array_equal(images[11].get_array(), (maps.mean - maps.target)[2])
    assert images[0].get_clim() == images[5].get_clim() != images[6].get_clim()
    assert images[6].get_clim() == (0.0, maps.std.max())
    assert images[9].get_clim() == (-np.abs(maps.error).max(), np.abs(maps.error).max())
    figures.forecast_figure(tmp_path / "new" / "forecast.png", maps)
    assert imread(tmp_path / "new" / "forecast.png").std() > 0.05


def test_names_are_not_formulas_and_unknown_values_are_no_colour(tmp_path: Path) -> None:
    maps = example("costs $5 & $6_", leads=1, height=4, width=4)
    maps.mean[0, 0, 0] = math.nan
    figures.forecast_figure(tmp_path / "forecast.png", maps)
    flat = example(leads=1, target=np.full((1, 4, 4), np.nan), mean=np.zeros((1, 4, 4)), std=np.zeros((1, 4, 4)),
                   inputs=None, samples=None, latitude=None, longitude=None)  # fmt: skip
    figures.forecast_figure(tmp_path / "flat.png", flat)
