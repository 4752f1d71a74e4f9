from dataclasses import replace

import numpy as np
import pytest

from metaprior.report.canvas import new_figure
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.report.day_forecasts import (
    DAY,
    LEVELS,
    DayForecasts,
    axis_top,
    day_forecasts,
    day_svg,
    draw_day,
    midnights,
)
from metaprior.solar.sites.simulator import simulate_fleet


@pytest.fixture(scope="module")
def plant() -> Plant:
    return simulate_fleet(1, 6, seed=5).plants[0].share().hourly()


@pytest.fixture(scope="module")
def found(plant: Plant) -> DayForecasts:
    return day_forecasts(SiteForecaster.pretrained(), plant, int(midnights(plant)[-1]), (0, 1, 3))


def test_days_begin_at_night_and_are_whole(plant: Plant) -> None:
    begins = midnights(plant)
    assert begins[0] >= DAY
    assert begins[-1] + DAY <= len(plant)
    assert (np.diff(begins) == DAY).all()
    assert plant.longitude is not None
    clock = (plant.times[begins].astype("datetime64[h]").astype(int) + plant.longitude / 15) % DAY
    assert ((clock < 1) | (clock > 23.999)).all()


def test_a_forecast_knows_its_days_and_the_morning_alone(plant: Plant, found: DayForecasts) -> None:
    assert found.midnight < found.issue < found.midnight + DAY
    hours = found.midnight + DAY - found.issue
    for days, forecast in found.by_days.items():
        assert forecast.quantiles.shape == (len(LEVELS), hours)
        for unknown in (slice(0, found.midnight - DAY * days), slice(found.issue, None)):
            power = plant.power.copy()
            power[unknown] = 0.5
            other = replace(plant, power=power)
            again = day_forecasts(SiteForecaster.pretrained(), other, found.midnight, [days]).by_days[days]
            np.testing.assert_array_equal(again.mean, forecast.mean)


def test_error_and_width_are_of_the_hours_that_are_forecast(found: DayForecasts) -> None:
    assert found.truth.shape == found.by_days[0].mean.shape
    perfect = replace(found.by_days[1], mean=found.truth, quantiles=np.stack([found.truth] * 3 + [found.truth + 0.1]))
    made = replace(found, by_days={1: perfect})
    assert made.error(1) == 0
    assert made.width(1) == pytest.approx(0.1)
    assert axis_top([made]) > max(found.truth) + 0.1


def test_yesterday_is_drawn_as_known_only_with_data_of_it(found: DayForecasts) -> None:
    def recorded(days: int) -> float:
        axes = new_figure(2, 2).add_subplot()
        draw_day(axes, found, days, top=1.0)
        (line,) = (line for line in axes.lines if line.get_label() == "recorded")
        return float(np.asarray(line.get_xdata()).min())

    assert recorded(0) > 0
    assert recorded(1) < -DAY + 1


def test_drawings_of_a_page_share_no_ids(found: DayForecasts) -> None:
    one, other = (day_svg(found, days, top=1.0) for days in (0, 1))
    assert one.startswith("<svg")
    assert "today" in one
    assert one != other
