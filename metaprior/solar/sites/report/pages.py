"""Pages about plants: the forecast of a table with yesterday and today, and a backtest."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import takewhile
from pathlib import Path

import numpy as np

from metaprior.cli.options import as_options
from metaprior.report.canvas import pens_of
from metaprior.report.page.content import PageContent, Section
from metaprior.report.page.writing import figures_html, write_page
from metaprior.solar.sites.backtest import ADAPTED, DAYS, Backtest, adapted, backtest, baseline, case_of
from metaprior.solar.sites.checks import DEFECTS, count_doubts
from metaprior.solar.sites.forecaster import MOST_DAYS, SiteForecaster
from metaprior.solar.sites.forecasting import TableForecast, adapted_days, place_in_words, short_findings
from metaprior.solar.sites.next_commands import LEADS
from metaprior.solar.sites.options import ARGUMENTS
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.report.figures import forecast_svg, groups_figures
from metaprior.solar.sites.weather import usable_weather
from metaprior.text_table import Row, counted

UNITS = "% of capacity"
OTHERS = ("persistence", "smart persistence", "climatology")
"""Beside which a forecast is shown on its page."""
RECENT_WEEKS = 2
OPTIONS = {**ARGUMENTS, "weather": "--weather ", "days": "--days ", "weeks": "--weeks "}
"""Arguments that findings and notes name, as options: pages are written by commands."""
AT_MOST = 24
"""Plants with a figure."""
EXPLAINED = "Scores are of daylight hours in % of the capacity. In the learning curve a shot is a day of data."


def write_forecast_page(path: Path, found: TableForecast, forecaster: SiteForecaster) -> None:
    """Write the page of a forecast: bands of every plant, what was masked, and scores of the last days."""
    recent = recent_scores(found, forecaster)
    issued = f"Issued {found.shown(found.issue)} for {counted(len(found.plants), 'plant')}."
    if isinstance(recent, Backtest):
        told = f"{recent.answer()} {EXPLAINED}"
    else:
        told = f"The last days cannot be scored: {recent}."
    story = [f"{issued} {told}", " ".join(_sentences(found.notes, found.plants))]
    findings = short_findings(found.table.findings, found.table.plants)
    masked = _masked([one.plant for one in found.plants.values()])
    sections = [
        Section("Forecasts", _forecasts(found), style=STYLE, leads=True),
        Section("How the table was read", _list(_sentences(findings, found.plants))),
        *([Section("Masked", _table("Intervals that are not used, by reason", masked))] if masked else []),
    ]
    write_page(path, _content("Forecast of the power of plants", story, recent, sections))


def recent_scores(found: TableForecast, forecaster: SiteForecaster) -> Backtest | str:
    """Return the scores of the last two weeks before the time of issue, or why there are none."""
    methods = {ADAPTED: adapted(forecaster)} | {name: baseline(name) for name in OTHERS}
    first = found.issue - np.timedelta64(MOST_DAYS + 7 * RECENT_WEEKS, "D")
    plants = [usable_weather(one.plant, one.weather).between(first, found.issue) for one in found.plants.values()]
    cases = (case_of(plant, DAYS, RECENT_WEEKS, LEADS, "given") for plant in plants)
    reasons = list(takewhile(lambda case: isinstance(case, str), cases))
    if len(reasons) == len(plants):
        more = f" (and {counted(len(plants) - 1, 'more plant')})" if len(plants) > 1 else ""
        return f"{reasons[0]}{more}"
    return backtest(plants, forecaster, weeks=RECENT_WEEKS, days=DAYS, methods=methods, weather="always")


def write_backtest_page(path: Path, result: Backtest) -> None:
    """Write the page of a backtest: scores by lead time, days of data, hour, season and plant."""
    story = [f"{result.answer()} {EXPLAINED}", " ".join(_sentences(result.notes, result.extents))]
    groups = groups_figures(result, pens_of(result.methods), ours=ADAPTED)
    plants = [
        {"plant": name, "weeks": f"{extent.weeks:.3g}", "": result.answer(name)}
        for name, extent in list(result.extents.items())[:AT_MOST]
    ]
    sections = [Section("Hours and seasons", figures_html(groups), style=STYLE)] if groups.figures else []
    sections += [Section("Plants", _table("Each plant", plants), style=STYLE)] if len(plants) > 1 else []
    write_page(path, _content("Backtest of forecasts of plants", story, result, sections))


def _sentences(lines: Sequence[str], plants: Iterable[str]) -> list[str]:
    """Return findings and notes as sentences: names of plants stay as they are, arguments become options."""
    names = tuple(plants)
    shown = [line if line.startswith(names) else line[0].upper() + line[1:] for line in lines]
    return [as_options(line if line.endswith(".") else f"{line}.", OPTIONS) for line in shown]


def _content(title: str, story: Sequence[str], result: Backtest | str, sections: Sequence[Section]) -> PageContent:
    text = "\n\n".join(story)
    if isinstance(result, str):
        return PageContent(title=title, story=text, units=UNITS, sections=sections)
    return PageContent(
        title=title,
        story=text,
        units=UNITS,
        ours=ADAPTED,
        scores=score_rows(result),
        learning_curve=day_rows(result),
        sections=sections,
    )


def score_rows(result: Backtest) -> list[Row]:
    """Return scores by lead time, and over all of them, with the typical number of days, as a page takes them."""
    days, rows = result.typical_days(), []
    for by in ("all", "lead"):
        scores = result.scores(by)
        scores = scores[scores["days"] == days]
        reference = scores[scores["method"] == "persistence"].set_index("group")["rmse"]
        for row in scores.to_dict("records"):
            lead = "all" if by == "all" else 60 * row["group"]
            skill = {"skill_persistence": 1 - row["rmse"] / reference[row["group"]]} if len(reference) else {}
            rows.append({"method": row["method"], "lead_minutes": lead, **_measures(row), **skill})
    return rows


def day_rows(result: Backtest) -> list[Row]:
    """Return scores by days of data, as a page takes them."""
    return [
        {"method": row["method"], "shots": row["days"], **_measures(row)} for row in result.scores().to_dict("records")
    ]


def _measures(row: Row) -> Row:
    return {**{name: row[name] for name in ("rmse", "mae", "bias", "crps")}, "coverage_90": row["coverage"] / 100}


def _forecasts(found: TableForecast) -> str:
    parts = []
    for name, one in list(found.plants.items())[:AT_MOST]:
        days = adapted_days(one, found.issue)
        told = f"Adapted to {days} day{'s' * (days != 1)}; the place is {place_in_words(one.plant)}."
        caption = f"{name}, in {one.plant.unit}. {told}"
        parts.append(
            f'<figure><div role="img" aria-label="{escape(caption)}">{forecast_svg(found, name)}</div>'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    left = len(found.plants) - len(parts)
    verb = "is" if left == 1 else "are"
    more = f'<p class="note">{counted(left, "more plant")} {verb} in the file of the forecast.</p>' if left else ""
    key = "Line: recorded. Blue: mean, 50 % and 90 % bands. Red: recorded and masked. The dashed line is the issue."
    return f'<p class="caption">{key}</p><div class="figures">{"".join(parts)}</div>{more}'


def _list(sentences: Sequence[str]) -> str:
    entries = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="read">{entries}</ul>'


def _masked(plants: Sequence[Plant]) -> list[Row]:
    """Return a row for each plant and reason for which some of its intervals are masked."""
    rows: list[Row] = []
    for plant in plants:
        for name, count in count_doubts(plant).items():
            meaning = next(defect.told for defect in DEFECTS if defect.name == name)
            rows.append({"plant": plant.name, "reason": name, "intervals": f"{count:,}", "meaning": meaning})
    return rows


def _table(caption: str, rows: Sequence[Row]) -> str:
    head = "".join(f'<th scope="col" class="words">{escape(name)}</th>' for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f'<td class="words">{escape(str(value))}</td>' for value in row.values()) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


STYLE = """
.read { max-width: 80ch; margin: 0; padding-left: 20px; }
.words { text-align: left; white-space: normal; }
"""
