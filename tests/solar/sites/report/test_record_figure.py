from dataclasses import replace

import numpy as np
import pytest

from metaprior.report.canvas import png
from metaprior.solar.sites import DOUBTS, Plant, check
from metaprior.solar.sites.report.record_figure import record_figure
from tests.solar.sites.tables import START, sunny_power


def outage_plant():
    power = sunny_power(days=20)
    power[500:510] = np.nan
    power[9 * 96 + 44 : 9 * 96 + 56] = 0
    return check(Plant("roof", START, 900, power, np.zeros(len(power), np.uint8), capacity=90.0))


def test_a_panel_has_power_and_a_legend_with_counts():
    figure = record_figure([outage_plant()])
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["outage: 12", "missing: 10"]
    assert axes.get_title(loc="left") == "roof: 98.9% usable, capacity 90 kW"
    assert axes.get_ylabel() == "time of day, UTC"
    assert png(figure).startswith(b"\x89PNG")


def test_doubtful_cells_have_the_colour_of_their_reason():
    plant = outage_plant()
    power, colours = (image.get_array() for image in record_figure([plant]).axes[0].get_images())
    assert power.shape == colours.shape[:2]
    assert (colours[..., 3] > 0).sum() == (plant.doubt == 1 + DOUBTS.index("outage")).sum()


def test_a_name_is_drawn_literally_and_an_unknown_zone_is_said():
    plant = replace(outage_plant(), name="$x$", zone_known=False, capacity=80.0, capacity_estimated=True)
    (axes,) = record_figure([plant]).axes
    assert axes.get_title(loc="left").startswith("$x$: ")
    assert axes.get_title(loc="left").endswith("capacity 80 kW (estimated)")
    assert axes.get_ylabel() == "time of day, of the stamps"


def test_the_number_of_plants_is_limited():
    with pytest.raises(ValueError, match="plants must number 1 to 12, got 13"):
        record_figure([outage_plant()] * 13)
