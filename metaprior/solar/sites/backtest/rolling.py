"""Backtests: forecasts of past weeks with rolling origins, by several methods and numbers of support days."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd  # type: ignore[import-untyped]

from metaprior.checks import check_counts, check_integer
from metaprior.progress import progress_bar
from metaprior.solar.sites.backtest.methods import ADAPTED, BASELINES, Method, adapted, baseline
from metaprior.solar.sites.backtest.networks import POOLED, TUNED, fine_tuned, pooled
from metaprior.solar.sites.backtest.queries import DAYS, Case, Place, case_of
from metaprior.solar.sites.backtest.result import KEYS, Backtest, Extent, fallback_notes
from metaprior.solar.sites.backtest.scores import score_rows
from metaprior.solar.sites.forecaster import POOLED as POOLED_FOLDER
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.reading.reader import plants_of
from metaprior.solar.sites.weather import Use, usable_weather, weather_notes, weather_source
from metaprior.text_table import Row

TOO_GOOD = "weather counts as forecast in time; if it was measured, these scores are too good"


def usual_methods(forecaster: SiteForecaster) -> dict[str, Method]:
    """Return the methods of a backtest unless others are given, by name."""
    network = SiteForecaster.pretrained(POOLED_FOLDER)
    networks = {POOLED: pooled(network), TUNED: fine_tuned(network)}
    return {ADAPTED: adapted(forecaster)} | {name: baseline(name) for name in BASELINES} | networks


def backtest(
    plants: Any,
    forecaster: SiteForecaster,
    *,
    days: Sequence[int] = DAYS,
    weeks: int = 26,
    leads: int = 6,
    methods: Mapping[str, Method] | None = None,
    place: Place = "given",
    weather: Use = "auto",
    progress: bool = False,
) -> Backtest:
    """Return the scores of forecasts of the plants' past weeks, each from the days before it alone.

    Args:
        plants: One plant or several, as ``SiteForecaster.adapt`` takes them; capacities must be known.
        forecaster: The prior, for the usual methods.
        days: Numbers of support days directly before each query week. Those for which a record is too short are left
            out for that plant.
        weeks: Query weeks of a plant, spread over its record; fewer if it is shorter.
        leads: Hours ahead; forecasts are issued at every hour of a query week.
        methods: Methods by name; those of ``usual_methods`` if not given.
        place: What methods are told about a plant's place: what is "given"; the place as "known", estimated from the
            whole record where it is not given; or "unknown".
        weather: Whether columns of weather count as known when forecasts are issued: "always", "never", or "auto" for
            those that go on after the last power, as forecasts do and measurements do not.
        progress: Show a progress bar.

    Raises:
        ValueError: No plant has a record that is long enough, or an argument is out of its range.
    """
    check_counts(weeks=weeks, leads=leads)
    for count in days:
        check_integer("days", count, 0)
    chosen = usual_methods(forecaster) if methods is None else methods
    rows: list[Row] = []
    extents: dict[str, Extent] = {}
    notes: list[str] = []
    given, _ = plants_of(plants)
    total = len(given) * len(chosen)
    with progress_bar("backtest", total, unit="methods", show=progress) as bar:
        for plant in given:
            notes += weather_notes(plant, weather)
            plant = usable_weather(plant, weather)
            notes += [TOO_GOOD] if weather_source(plant) is not None else []
            case = case_of(plant, days, weeks, leads, place)
            if isinstance(case, str):
                notes.append(case)
                bar.update(len(chosen))
                continue
            left_out = sorted(set(days) - set(case.days))
            if left_out:
                notes.append(
                    f"{plant.name}: the record is too short for {', '.join(map(str, left_out))} days of support"
                )
            extents[plant.name] = _extent(case)
            rows += _plant_rows(case, chosen, bar.update)
    if not rows:
        raise ValueError(
            f"a backtest needs at least one plant with enough power, got none: {'; '.join(notes) or 'no plants'}. Try "
            "a longer record or fewer days of support."
        )
    frame = pd.DataFrame(rows)
    return Backtest(frame, extents, leads, tuple(dict.fromkeys([*notes, *fallback_notes(frame)])))


def _plant_rows(case: Case, methods: Mapping[str, Method], advance: Callable[[], object]) -> list[Row]:
    """Return the scores of all methods and numbers of days; ``advance`` is called after each method."""
    place = "unknown" if case.sun is None else "known"
    rows = []
    for name, method in methods.items():
        for days in case.days:
            found = method(case, days)
            if found is not None:
                keys = dict(zip(KEYS, (case.plant.name, place, name, days), strict=True))
                rows += [{**keys, **row} for row in score_rows(case.queries, found)]
        advance()
    return rows


def _extent(case: Case) -> Extent:
    times = case.plant.times[[case.queries.origins[0], case.queries.issue.max()]]
    return Extent(case.weeks, len(case.queries), times[0], times[1])
