"""What the demo prints at its end: one table of both parts, and a sentence for each, chosen by intervals."""

from collections.abc import Mapping

from examples.demo import maps, plants
from examples.demo.maps import MapOutcome
from examples.demo.plants import PlantOutcome
from metaprior.report.wording import Change, counted
from metaprior.solar.maps.report.story import change as change_of_maps
from metaprior.solar.sites.report.over_plants import Entry, change
from metaprior.solar.value_units import units_text
from metaprior.text_table import Row

ADAPTING = {
    plants.PACKAGED: plants.PACKAGED,
    plants.TRAINED: plants.TRAINED,
    plants.TUNED: plants.NETWORK,
    plants.SMART: plants.SMART,
}
"""Methods of the table about plants, and what each of them is without data of a plant."""


def table(of_plants: PlantOutcome, of_maps: MapOutcome) -> list[Row]:
    """Return both parts as rows: the error (RMSE) without and with data of a new plant or place, and the change."""
    days, windows = of_plants.settings.told_days, of_maps.world.test.k_shot
    names = {"adapted": f"{days} days / {windows} windows"}
    rows = [*_plant_rows(of_plants), *_map_rows(of_maps)]
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def _plant_rows(outcome: PlantOutcome) -> list[Row]:
    result, days = outcome.result, outcome.settings.told_days
    rmse, coverage = result.table("rmse"), result.table("coverage")
    part = "plants, % of capacity"
    return [
        _row(
            part,
            method,
            (rmse.loc[without, 0], rmse.loc[method, days]),
            change(result, Entry(method, days), Entry(without, 0)),
            coverage.loc[method, days],
        )
        for method, without in ADAPTING.items()
    ]


def _map_rows(outcome: MapOutcome) -> list[Row]:
    part = f"maps, {units_text(outcome.world.test.frames.attrs['units'])}"
    rows = []
    for method, without in ((maps.ADAPTED, maps.PRIOR), (maps.TUNED, maps.NETWORK)):
        one, other = outcome.scores[method], outcome.scores[without]
        row, errors = one.row(), (other.row()["rmse"], one.row()["rmse"])
        name = maps.PRIOR if method == maps.ADAPTED else method
        rows.append(_row(part, name, errors, change_of_maps(one, other, "rmse"), 100 * row["coverage_90"]))
    smart = outcome.scores[maps.SMART].row()["rmse"]
    return [*rows, {"RMSE": part, "method": maps.SMART, "no data": f"{smart:.1f}"}]


def _row(part: str, method: str, errors: tuple[float, float], found: Change, coverage: float) -> Row:
    return {
        "RMSE": part,
        "method": method,
        "no data": f"{errors[0]:.1f}",
        "adapted": f"{errors[1]:.1f}",
        "change": signed(found.value),
        "95 % interval": f"{signed(found.low)} to {signed(found.high)}",
        "in 90 % band": f"{coverage:.0f} %",
    }


def signed(share: float) -> str:
    """Return a share in percent with its sign, never -0.0."""
    return f"{round(100 * share, 1) + 0.0:+.1f} %" if abs(share) >= 0.0005 else "0.0 %"


def sentences(of_plants: PlantOutcome, of_maps: MapOutcome) -> list[str]:
    """Return what adapting was worth and what it was not worth, a sentence for each part."""
    return [plant_sentence(of_plants), map_sentence(of_maps)]


def plant_sentence(outcome: PlantOutcome) -> str:
    """Return what the first days of a plant were worth, and what the last ones were."""
    result, days = outcome.result, outcome.settings.told_days
    ours = Entry(plants.PACKAGED, days)
    others = {
        "no data": Entry(plants.PACKAGED, 0),
        "one network fine-tuned on the same days": Entry(plants.TUNED, days),
        "smart persistence": Entry(plants.SMART, days),
    }
    *_, fewer, most = outcome.settings.days
    more = change(result, Entry(plants.PACKAGED, most), Entry(plants.PACKAGED, fewer))
    compared = {name: change(result, ours, other) for name, other in others.items()}
    return (
        f"Plants: adapting to {counted(days, 'day')} of a new plant {worth(compared['no data'])}: {_told(compared)}; "
        f"going on from {fewer} to {counted(most, 'day')} {worth(more)}: the error is {more}."
    )


def map_sentence(outcome: MapOutcome) -> str:
    """Return what some windows of a place were worth."""
    ours, windows = outcome.scores[maps.ADAPTED], counted(outcome.world.test.k_shot, "window")
    others = {
        "no windows": maps.PRIOR,
        "a network fine-tuned on the same windows": maps.TUNED,
        "smart persistence": maps.SMART,
    }
    compared = {name: change_of_maps(ours, outcome.scores[other], "rmse") for name, other in others.items()}
    return f"Maps: adapting to {windows} of a new place {worth(compared['no windows'])}: {_told(compared)}."


def _told(changes: Mapping[str, Change]) -> str:
    first, *others = (f"compared with {name}, {one}" for name, one in changes.items())
    return "; ".join([first.replace(", ", ", the error is ", 1), *others])


def worth(found: Change) -> str:
    """Return a judgement of a change of the error, which depends on its interval alone."""
    if found.is_negligible:
        return "is worth next to nothing"
    if found.low <= 0 <= found.high:
        return "makes no measurable difference"
    return "pays" if found.value < 0 else "does harm"


def basis(of_plants: PlantOutcome, of_maps: MapOutcome) -> str:
    """Return what the intervals are over, and what the numbers do not tell."""
    places = len(of_maps.scores[maps.ADAPTED].tasks)
    return (
        f"Brackets are 95 % intervals over {len(of_plants.result.extents)} plants and {places} places, from one "
        "training each. Plants and weather are simulated; docs/solar/sites/accuracy.md has the scores of real plants."
    )


def days_table(outcome: PlantOutcome) -> list[Row]:
    """Return error, width of the band and hours inside it by days of data, for the prior of the package."""
    result = outcome.result
    bands = outcome.intervals.loc[plants.PACKAGED].xs(0.9, level="level")
    values = {
        "error (RMSE), % of capacity": (result.table("rmse").loc[plants.PACKAGED], 1),
        "width of the 90 % band, % of capacity": (bands["width"], 1),
        "hours inside the band, %": (result.table("coverage").loc[plants.PACKAGED], 0),
    }
    return [
        {"days of data": name, **{str(days): f"{one[days]:.{digits}f}" for days in outcome.settings.days}}
        for name, (one, digits) in values.items()
    ]
