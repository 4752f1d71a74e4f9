import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from metaprior.solar.maps.report import solar_figures as module
from metaprior.solar.maps.report.page.colours import ERROR, SPREAD, VALUES, blue_white_orange
from metaprior.solar.maps.report.page.measures import measure
from metaprior.solar.maps.report.solar_figures import Point, curves_of, curves_svg, forecast_figure, pens_of
from tests.report.solar_content import example


def lightness(colours: np.ndarray) -> np.ndarray:
    """CIE L* of sRGB colours."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126729, 0.7151522, 0.0721750])
    return 116 * np.cbrt(luminance) - 16


def test_errors_get_darker_evenly_and_equally_to_both_sides() -> None:
    low, high = np.split(lightness(blue_white_orange()(np.arange(256))[:, :3]), 2)
    expected = np.linspace(97, 36, 128)
    assert high == pytest.approx(expected, abs=0.05)
    assert low[::-1] == pytest.approx(expected, abs=0.05)


def test_values_spread_and_error_do_not_share_colours() -> None:
    middle = {colours.name: colours(0.5)[:3] for colours in (VALUES, SPREAD, ERROR)}
    assert len(set(middle.values())) == 3
    assert min(middle[ERROR.name]) > 0.95


def test_the_picture_has_a_row_for_each_quantity_and_a_column_for_each_lead_time(tmp_path: Path) -> None:
    maps = example(leads=3, height=8, width=8)
    figure = module._maps_figure(maps)
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
    forecast_figure(tmp_path / "new" / "forecast.png", maps)
    assert imread(tmp_path / "new" / "forecast.png").std() > 0.05


def test_north_is_on_top() -> None:
    maps = example(leads=1, height=3, width=2)
    south_first = example(
        leads=1, height=3, width=2, latitude=np.array([1.0, 2.0, 3.0]), longitude=np.array([9.0, 8.0])
    )
    turned = south_first.north_up()
    assert turned.target == pytest.approx(maps.target[:, ::-1, ::-1])
    assert turned.latitude == pytest.approx([3, 2, 1])
    assert turned.longitude == pytest.approx([8, 9])
    assert maps.north_up().target == pytest.approx(maps.target)


def test_names_are_not_formulas_and_unknown_values_are_no_colour(tmp_path: Path) -> None:
    maps = example("costs $5 & $6_", leads=1, height=4, width=4)
    maps.mean[0, 0, 0] = math.nan
    forecast_figure(tmp_path / "forecast.png", maps)
    flat = example(leads=1, target=np.full((1, 4, 4), np.nan), mean=np.zeros((1, 4, 4)), std=np.zeros((1, 4, 4)),
                   inputs=None, samples=None, latitude=None, longitude=None)  # fmt: skip
    forecast_figure(tmp_path / "flat.png", flat)


def test_curves_leave_out_what_is_not_known() -> None:
    rows = [
        {"method": "a", "lead_minutes": 60, "coverage_90": 0.8, "coverage_90_low": 0.7, "coverage_90_high": 0.85},
        {"method": "a", "lead_minutes": 30, "coverage_90": 0.9},
        {"method": "a", "lead_minutes": "all", "coverage_90": 0.85},
        {"method": "a", "lead_minutes": 90, "coverage_90": math.nan},
        {"method": "b", "lead_minutes": 30, "coverage_90": None},
    ]
    curves = curves_of(rows, measure("coverage_90", "W/m2"), "lead_minutes")
    assert list(curves) == ["a"]
    first, second = curves["a"]
    assert first[:2] == (30, 90)
    assert math.isnan(first.low)
    assert second == pytest.approx((60, 80, 70, 85))


def test_svg_is_only_a_drawing_with_units() -> None:
    svg = curves_svg(
        {"a": [Point(30, 1.0), Point(60, 2.0)]}, pens_of(["a"]), ours="a", x_label="t (min)", y_label="$ <&"
    )
    assert svg.startswith("<svg")
    assert svg.endswith("</svg>")
    assert ">t (min)</text>" in svg
    assert ">$ &lt;&amp;</text>" in svg
    assert "<metadata" not in svg
    assert "<style" not in svg


def test_too_many_methods() -> None:
    with pytest.raises(ValueError, match="a page compares at most 12 methods, got 13; write several pages"):
        pens_of([str(i) for i in range(13)])
