"""The page of the demo: pictures of a new plant, errors and reliability by days of data, then maps."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape

from benchmarks.common.result import versions
from examples.demo import maps, plants
from examples.demo.maps import MapOutcome
from examples.demo.plants import PlantOutcome, days_to_show
from examples.demo.settings import PlantSettings, Settings
from examples.demo.verdict import basis, map_sentence, plant_sentence
from metaprior.report.canvas import Pen, pens_of
from metaprior.report.curves import curves_of, curves_svg, interval_curves, interval_svgs
from metaprior.report.measures import measure
from metaprior.report.page.content import PageContent, Section
from metaprior.report.page.figures import INTERVAL_CAPTIONS, Figures, key_of
from metaprior.report.page.tables import shot_columns, summary_columns
from metaprior.report.page.writing import figures_html, table_html
from metaprior.report.wording import counted
from metaprior.solar.maps.report.content import maps_section
from metaprior.solar.maps.report.example import ExampleForecast
from metaprior.solar.sites.report.day_forecasts import DayForecasts, axis_top, day_svg
from metaprior.solar.sites.report.over_plants import day_rows_with_limits
from metaprior.solar.value_units import units_text
from metaprior.text_table import Row

TITLE = "A new solar plant, and maps of irradiance: what adapting is worth"
OPENING = "Below, one prior forecasts new plants from 0 to 14 days of their data; maps of irradiance follow."
UNITS, DAYS = "% of capacity", "days of data"
STYLE = """
.days { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px; margin: 0 0 20px; }
.days figcaption { margin-top: 2px; line-height: 1.35; }
.days figcaption b { color: var(--ink); }
h3 { font-size: 16px; margin: 20px 0 8px; }
.told { max-width: 90ch; margin: 0 0 16px; }
@media (max-width: 560px) { .days { grid-template-columns: 1fr 1fr; gap: 8px; } }
@media print { .days { grid-template-columns: repeat(5, 1fr); gap: 6pt; } h3 { break-after: avoid; } }
"""
KEY = (
    "Line: recorded, as far as the forecast knows it; dotted: recorded, not known to it. Blue: the forecast of "
    "the prior of the package, issued at the dashed line, with its 50 % and 90 % bands. Dots: what happened. In % of "
    "capacity. Error (mean absolute) and width (of the 90 % band) are of the hours that are drawn in blue."
)
MEASURES = ("rmse", "skill_smart_persistence", "crps", "coverage_90")
"""What the table of maps shows."""


def content(
    settings: Settings, of_plants: PlantOutcome, of_maps: MapOutcome, examples: Sequence[ExampleForecast]
) -> PageContent:
    """Return the content of the page."""
    pens, rows = pens_of(plants.METHODS), _day_rows(of_plants)
    shown = asdict(settings)
    shown["maps"]["tunings"] = [str(tuning) for tuning in settings.maps.tunings]
    return PageContent(
        title=TITLE,
        story=f"{OPENING} {basis(of_plants, of_maps)}",
        units=UNITS,
        sections=[
            Section("A new plant", pictures(days_to_show(of_plants)), style=STYLE),
            Section("Error by days of data", _errors(of_plants, rows, pens)),
            Section("Reliability by days of data", _reliability(of_plants, rows, pens)),
            _maps(of_maps, examples),
        ],
        settings={**shown, "fine-tuning of the map network": of_maps.tuning, "versions": versions()},
    )


def _done(own: PlantSettings) -> str:
    return (
        f"{own.plants} simulated plants that no training has seen were forecast 1 to 6 hours ahead, at every hour of "
        f"{counted(own.weeks, 'week')} each, from 0 to {max(own.days)} days of their own data. The prior of the "
        f"package is used as it is. The prior trained here is a smaller one: {own.steps:,} steps on "
        f"{own.training_plants:,} other simulated plants. One network for all plants has no other way to adapt than "
        "fine-tuning. The place of a plant is known to all methods."
    )


def pictures(found: Mapping[str, DayForecasts]) -> str:
    """Return the pictures of one day each, side by side by days of data."""
    parts = [f'<p class="caption">{KEY}</p>']
    for title, one in found.items():
        top = axis_top([one])
        figures = "".join(_picture(one, days, top, title) for days in one.by_days)
        parts.append(f'<h3>{escape(title)}</h3><div class="days">{figures}</div>')
    return "".join(parts)


def _picture(found: DayForecasts, days: int, top: float, title: str) -> str:
    told = f"error {100 * found.error(days):.1f} %, band {100 * found.width(days):.0f} % wide"
    label = escape(f"{title}, {counted(days, 'day')} of data: {told}")
    drawing = day_svg(found, days, top=top)
    caption = f"<b>{_of_days(days)} of data</b><br>{told}"
    return f'<figure><div role="img" aria-label="{label}">{drawing}</div><figcaption>{caption}</figcaption></figure>'


def _of_days(days: int) -> str:
    return f"{days} day{'' if days == 1 else 's'}"


def _day_rows(outcome: PlantOutcome) -> list[Row]:
    """Return the scores by days of data with the mean width of the 90 % band."""
    widths = outcome.intervals["width"]
    return [
        {**row, "width_90": float(widths[row["method"], row["shots"], 0.9])}
        for row in day_rows_with_limits(outcome.result)
    ]


def _figures(rows: Sequence[Row], names: Mapping[str, str], pens: Mapping[str, Pen]) -> str:
    """Return figures of measures by days of data; ``names`` are their captions by name of the measure."""
    drawn = {name: curves_of(rows, measure(name, UNITS), "shots") for name in names}
    svgs = {
        caption: curves_svg(drawn[name], pens, ours=plants.PACKAGED, x_label=DAYS, of=measure(name, UNITS))
        for name, caption in names.items()
    }
    key = key_of(" ".join(names), list(drawn.values()), pens, ours=plants.PACKAGED)
    return figures_html(Figures(svgs, key))


def _errors(outcome: PlantOutcome, rows: Sequence[Row], pens: Mapping[str, Pen]) -> str:
    captions = {
        "rmse": "Error (RMSE) by days of data. Band: 95 % interval over plants of the prior of the package.",
        "crps": "CRPS, which judges bands as well, by days of data. Lower is better.",
    }
    columns = shot_columns(rows, "rmse", "", {days: _of_days(days) for days in outcome.settings.days})
    table = table_html("RMSE in % of capacity, by days of data", columns, ours=plants.PACKAGED)
    note = (
        "Small numbers are 95 % intervals over plants. They are wide because plants differ; changes within the same "
        "plants, as in the sentence above, are known better."
    )
    told = _told(plant_sentence(outcome)) + _told(_done(outcome.settings))
    return f'{told}{_figures(rows, captions, pens)}{table}<p class="caption">{note}</p>'


def _reliability(outcome: PlantOutcome, rows: Sequence[Row], pens: Mapping[str, Pen]) -> str:
    captions = {
        "coverage_90": "Hours inside the 90 % band by days of data: the dashed line is what it should hold.",
        "width_90": "Width of the 90 % band by days of data. Narrower is better where it still holds 90 %.",
    }
    columns = shot_columns(rows, "coverage_90", "", {days: _of_days(days) for days in outcome.settings.days})
    inside = outcome.intervals["inside"].loc[plants.PACKAGED]
    curves = interval_curves({_of_days(days): list(inside.loc[days].items()) for days in outcome.settings.days})
    day_pens = pens_of(list(curves))
    drawn = zip(INTERVAL_CAPTIONS, interval_svgs(curves, day_pens, ours=None), strict=True)
    own = {f"Prior of the package: {caption[0].lower()}{caption[1:]}": svg for caption, svg in drawn}
    by_level = figures_html(Figures(own, key_of("levels", [curves], day_pens, ours=None)))
    table = table_html("Hours inside the 90 % band, by days of data", columns, ours=plants.PACKAGED)
    return _figures(rows, captions, pens) + table + by_level


def _maps(outcome: MapOutcome, examples: Sequence[ExampleForecast]) -> Section:
    rows = [
        {"method": method, "lead_minutes": "all", **{name: value for name, value in one.row().items() if _shown(name)}}
        for method, one in outcome.scores.items()
    ]
    columns = summary_columns(rows, units_text(outcome.world.test.frames.attrs["units"]))
    table = table_html("All lead times together, 30 to 120 minutes", columns, ours=maps.ADAPTED)
    panel = maps_section(examples)
    told = (
        "There is no prior for maps in the package yet: this one was trained here, on the west of a simulated map, and "
        "is scored on places in the east and on later days. The maps below are forecasts of the adapted prior."
    )
    return panel._replace(body=f"{_told(map_sentence(outcome))}{_told(told)}{table}{panel.body}")


def _shown(name: str) -> bool:
    """Return whether a number of a row of scores is one of the measures of the table, or a limit of one."""
    return name.removesuffix("_low").removesuffix("_high") in MEASURES


def _told(text: str) -> str:
    return f'<p class="told">{escape(text)}</p>'
