"""Forecasts of simulated plants by the packaged prior, after 0 to 14 days of their power, for the second panel.

The page shows two days of each plant: at every hour, the forecast of the next six hours that is issued then. Support
days end where the two days begin; the hours between are read as recent power, as they would be in use. Scores are
those of ``metaprior.solar.sites.backtest`` over several weeks, with the same numbers of support days.
"""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.backtest.methods import LEVELS, adapted
from metaprior.solar.sites.backtest.queries import DAY, Case, Place, case_of
from metaprior.solar.sites.backtest.scores import score_rows
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.simulator import PlantParameters, simulate_fleet
from metaprior.text_table import Row

DAYS = (0, 1, 3, 7, 14)
LEADS, SHOWN_DAYS, WEEKS = 6, 2, 6
SHOWN_LEVELS = (0.05, 0.25, 0.75, 0.95)
SEED, FLEET, START, RECORD = 1, 20, "2023-04-01", 14 + 7 * WEEKS
"""Seed, number of plants, first day and days of the fleet; the packaged prior was trained on plants of seed 0."""
KINDS = {"roof": "A roof", "ground": "A solar park", "tracking": "A park with trackers"}
"""Kinds of the plants that are shown; of each kind, the first one of the fleet."""
PLACES: dict[str, Place] = {"known": "given", "unknown": "unknown"}
STEP = 1e-4
"""Power is stored as 16-bit integers, in these shares of the capacity."""


def plant_forecasts() -> dict[str, Any]:
    """Return power, forecasts and scores of the plants, for JSON."""
    fleet, forecaster = simulate_fleet(FLEET, RECORD, seed=SEED, start=START), SiteForecaster.pretrained()
    first = {kind: next(one for one in fleet.parameters if one.kind == kind) for kind in KINDS}
    chosen = [(truth, fleet.plants[truth.number]) for truth in first.values()]
    return {
        "days": DAYS,
        "leads": LEADS,
        "levels": SHOWN_LEVELS,
        "step": STEP,
        "weeks": WEEKS,
        "plants": [_shown(forecaster, truth, plant) for truth, plant in chosen],
    }


def _shown(forecaster: SiteForecaster, truth: PlantParameters, plant: Plant) -> dict[str, Any]:
    """Return what the page has of one plant, with its place known and not."""
    cases = {name: backtest_case(plant, place) for name, place in PLACES.items()}
    begin = first_hour(cases["known"], truth)
    power = cases["known"].plant.power[begin - LEADS : begin + DAY * SHOWN_DAYS + LEADS]
    return {
        "title": f"{KINDS[truth.kind]}, {_latitude(truth.latitude)}, {truth.climate.name} climate",
        "capacity_kw": round(truth.nameplate, 1),
        "before": LEADS,
        "power": _stored(power),
        "forecasts": {
            name: {str(days): issued_forecasts(forecaster, case, days, begin) for days in DAYS}
            for name, case in cases.items()
        },
        "scores": {name: _scores(forecaster, case) for name, case in cases.items()},
    }


def first_hour(case: Case, truth: PlantParameters) -> int:
    """Return the hour of the record in which the days that are shown begin: midnight of the sun's clock."""
    solar = round(truth.longitude / 15)  # hours that this clock is ahead of UTC
    return int(case.queries.origins[-1]) // DAY * DAY + (-solar) % DAY


def _latitude(degrees: float) -> str:
    return f"{abs(degrees):.0f}° {'north' if degrees >= 0 else 'south'}"


def backtest_case(plant: Plant, place: Place) -> Case:
    """Return the backtest of a plant."""
    case = case_of(plant, DAYS, WEEKS, LEADS, place)
    if isinstance(case, str):
        raise ValueError(f"every plant of the page must have a record that can be scored, got: {case}")
    return case


def issued_forecasts(forecaster: SiteForecaster, case: Case, days: int, begin: int) -> str:
    """Return mean and quantiles of the forecasts issued at every hour that is shown, (issues, 5, leads)."""
    plant = forecaster.adapt(case.plant, days=days)[case.plant.name]
    issue, lead = np.meshgrid(np.arange(begin, begin + DAY * SHOWN_DAYS), np.arange(1, LEADS + 1), indexing="ij")
    found = plant.forecast(issue.ravel(), lead.ravel(), SHOWN_LEVELS, end=begin)
    values = np.stack([found.mean, *found.quantiles]).reshape(1 + len(SHOWN_LEVELS), *issue.shape)
    return _stored(values.transpose(1, 0, 2))


def _stored(values: NDArray[np.floating]) -> str:
    """Return shares of the capacity as little-endian 16-bit integers in base 64."""
    codes = np.rint(np.clip(values, 0.0, None) / STEP).astype("<u2")
    return base64.b64encode(codes.tobytes()).decode("ascii")


def _scores(forecaster: SiteForecaster, case: Case) -> list[Row]:
    """Return error, width and coverage by number of support days, over all weeks of the backtest."""
    rows = []
    for days in DAYS:
        found = adapted(forecaster)(case, days)
        assert found is not None
        of_all = next(row for row in score_rows(case.queries, found) if row["by"] == "all")
        width = 100 * float((found.quantiles[_index(0.95)] - found.quantiles[_index(0.05)]).mean())
        scores = {"rmse": of_all["rmse"], "coverage": of_all["coverage"], "width": width}
        rows.append({"days": days, **{name: round(value, 2) for name, value in scores.items()}})
    return rows


def _index(level: float, levels: Sequence[float] = LEVELS) -> int:
    return levels.index(level)
