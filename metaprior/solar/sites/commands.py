"""``metaprior inspect`` and ``metaprior sites``: a table of power in, its defects and forecasts out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from metaprior.cli.application import integers

if TYPE_CHECKING:
    from metaprior.solar.sites.reading.reader import PowerTable

TABLES = (".csv", ".gz", ".txt", ".tsv", ".parquet", ".pq")
AT_MOST_TOLD = 5
"""Plants whose estimated places are printed."""


Power = Annotated[Path, typer.Argument(help="A table of power: .csv, .csv.gz or .parquet, long or wide.")]
Unit = Annotated[
    str | None, typer.Option(help="W, kW, MW, Wh, kWh, MWh (per interval), share or % (default: detected).")
]
Zone = Annotated[
    str | None, typer.Option(help="Zone of stamps without one, as Australia/Sydney or +08:00 (default: unknown).")
]
Stamps = Annotated[
    Literal["auto", "begin", "end"], typer.Option(help="Whether stamps are begins or ends of intervals.")
]
Sites = Annotated[
    Path | None, typer.Option(help="A second table with capacity, latitude, longitude, ... of each plant.")
]
Columns = Annotated[
    str | None, typer.Option(help="Columns that are not recognised, as site=Anlage,power=PolyPwr,time=Zeit.")
]
Prior = Annotated[
    Path | None, typer.Option(help="A prior of your own: the folder of a run (default: that of the package).")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]

HELP = """Forecast the power of single plants.

Example: metaprior sites forecast power.csv --out forecast.csv
"""
sites = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)


def inspect(
    path: Power,
    unit: Unit = None,
    zone: Zone = None,
    stamps: Stamps = "auto",
    sites: Sites = None,
    columns: Columns = None,
    out: Annotated[Path | None, typer.Option(help="The picture (default: the table's name with .png, here).")] = None,
    rows: Annotated[
        Path | None, typer.Option(help="A CSV file to write, with every row that was left out or is doubtful.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Check a table of power: what was recognised, what is doubtful, and a picture of it.

    Prints what the columns, units and clock were taken for, every defect with its rows, and counts for each plant.

    Example: metaprior inspect power.csv --zone Europe/Berlin --out power.png
    """
    from metaprior.report.canvas import save
    from metaprior.solar.sites.forecast_file import check_path
    from metaprior.solar.sites.reading.reader import read_power
    from metaprior.solar.sites.report.record_figure import AT_MOST, record_figure
    from metaprior.text_table import text_table

    _check_table(path)
    if rows is not None:
        check_path(rows, overwrite=overwrite, endings=(".csv",))
    if out is not None:
        check_path(out, overwrite=overwrite, endings=(".png", ".svg", ".pdf"))
    table = read_power(path, unit=unit, zone=zone, stamps=stamps, sites=sites, columns=_roles(columns))
    for line in table.findings.lines():
        typer.echo(f"- {line}")
    typer.echo("")
    typer.echo(text_table(_counts(table)))
    drawn = [plant for plant in table if len(plant)][:AT_MOST]
    if drawn:
        out = out or Path(path.name.split(".")[0] + ".png")
        save(record_figure(drawn), out)
        left = len(table) - len(drawn)
        typer.echo(f"written: {out}" + f", without {left} more plants" * bool(left))
    if rows is not None:
        typer.echo(f"written: {rows}, {_write_rows(table, rows):,} rows")


def _counts(table: "PowerTable") -> list[dict[str, object]]:
    """Return a row for each plant: its record, and the number of doubtful intervals by reason."""
    from metaprior.solar.sites.checks import DOUBTS, count_doubts

    counts = {plant.name: count_doubts(plant) for plant in table}
    kinds = [name for name in DOUBTS if any(name in own for own in counts.values())]
    return [
        {
            "plant": plant.name,
            "from": str(plant.start)[:10],
            "to": str(plant.end)[:10],
            "minutes": plant.step // 60,
            "capacity": plant.capacity,
            "unit": plant.unit,
            "intervals": len(plant),
            "missing": int((plant.power != plant.power).sum()),
            **{name: counts[plant.name].get(name, 0) for name in kinds},
        }
        for plant in table
    ]


def _write_rows(table: "PowerTable", path: Path) -> int:
    """Write the kind, plant and number of every row that a finding names; return how many."""
    import csv

    from metaprior.files import written_when_complete

    first = table.findings.first_row
    entries = [
        (int(row) + first, finding.kind, finding.plant or "") for finding in table.findings for row in finding.rows
    ]
    with written_when_complete(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([table.findings.row_word, "kind", "plant"])
        writer.writerows(sorted(entries))
    return len(entries)


def _check_table(path: Path) -> None:
    if path.suffix.lower() not in TABLES:
        raise typer.BadParameter(f"{path} must be a table of power, one of {', '.join(TABLES)}")


@sites.command()
def forecast(
    power: Power,
    out: Annotated[Path | None, typer.Option(help="The file to write: .csv, .parquet or .nc.")] = None,
    hours: Annotated[
        int, typer.Option(min=1, max=48, help="Hours to forecast: 6, or up to 48 with a base forecast or weather.")
    ] = 6,
    at: Annotated[
        str | None, typer.Option(help="Time of issue, as 2025-06-01T12:00, in the table's zone (default: its end).")
    ] = None,
    unit: Unit = None,
    zone: Zone = None,
    stamps: Stamps = "auto",
    sites: Sites = None,
    columns: Columns = None,
    levels: Annotated[str, typer.Option(help="Levels of the quantiles.")] = "0.05,0.1,0.25,0.5,0.75,0.9,0.95",
    page: Annotated[Path | None, typer.Option(help="A page to write, with figures and recent scores: .html.")] = None,
    prior: Prior = None,
    overwrite: Overwrite = False,
) -> None:
    """Forecast the next hours of plants, with bands, from the days that they have recorded.

    Nothing is trained: the prior of the package is adapted to the last days of each plant, from no day on. The file has
    a row for each plant and hour: mean and quantiles of the power in the unit and the zone of the table.

    Example: metaprior sites forecast power.csv --out forecast.csv --page forecast.html

    A plant without any power yet: an empty table (its header alone), and --sites with its capacity and place.
    """
    from metaprior.solar.sites.forecast_file import check_path, write_forecast
    from metaprior.solar.sites.forecaster import PRIOR, SiteForecaster
    from metaprior.solar.sites.forecasting import forecast_table, place_in_words, plant_rows, short_findings
    from metaprior.solar.sites.reading.reader import read_power
    from metaprior.text_table import text_table

    _check_table(power)
    quantiles = _numbers("--levels", levels)
    if out is not None:
        check_path(out, overwrite=overwrite)
    if page is not None:
        check_path(page, overwrite=overwrite, endings=(".html",))
    forecaster = SiteForecaster.pretrained(prior or PRIOR)
    table = read_power(power, unit=unit, zone=zone, stamps=stamps, sites=sites, columns=_roles(columns))
    given = {"--unit": unit, "--zone": zone, "--stamps": None if stamps == "auto" else stamps, "--sites": sites}
    given["--columns"] = columns
    options = "".join(f" {name} {value}" for name, value in given.items() if value is not None)
    for line in [*short_findings(table.findings, table.plants), f"all findings: metaprior inspect {power}{options}"]:
        typer.echo(f"- {line}")
    found = forecast_table(forecaster, table, at=at, hours=hours, levels=quantiles)
    typer.echo(f"\nissued {found.shown(found.issue)}, mean ({100 * quantiles[0]:g} % to {100 * quantiles[-1]:g} %)")
    typer.echo(text_table(plant_rows(found)))
    estimated = [one.plant for one in found.plants.values() if place_in_words(one.plant).startswith("estimated")]
    for plant in estimated[:AT_MOST_TOLD]:
        typer.echo(f"{plant.name}: the place is {place_in_words(plant)}")
    if len(estimated) > AT_MOST_TOLD:
        typer.echo(f"{len(estimated) - AT_MOST_TOLD} more places are estimated")
    for note in found.notes:
        typer.echo(f"note: {note}")
    if out is not None:
        write_forecast(out, found, overwrite=overwrite)
        typer.echo(f"written: {out}, {len(found.frame)} hours of {len(found.plants)} plants")
    if page is not None:
        from metaprior.solar.sites.report.pages import write_forecast_page

        write_forecast_page(page, found, forecaster)
        typer.echo(f"written: {page}")


@sites.command()
def backtest(
    power: Power,
    days: Annotated[str, typer.Option(help="Days of data before each week that are compared.")] = "0,1,3,7,14,30",
    weeks: Annotated[int, typer.Option(min=1, help="Weeks of each plant, spread over its record.")] = 26,
    unit: Unit = None,
    zone: Zone = None,
    stamps: Stamps = "auto",
    sites: Sites = None,
    columns: Columns = None,
    weather: Annotated[
        Literal["auto", "always", "never"],
        typer.Option(help="Whether weather columns were forecasts; auto: those that go on after the power were."),
    ] = "auto",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all scores to this file.")] = None,
    page: Annotated[Path | None, typer.Option(help="A page to write, with figures: .html.")] = None,
    prior: Prior = None,
    overwrite: Overwrite = False,
) -> None:
    """Score forecasts of the past weeks of plants, beside what else could be done.

    Every week is forecast from the days before it alone. Beside the prior: persistence, smart persistence, climatology,
    their blend, boosted trees on the plant alone, one network for all plants, that network fine-tuned on the plant and,
    where the table has one, the base forecast scaled by a factor.

    Example: metaprior sites backtest power.csv --page backtest.html --json backtest.json
    """
    import json

    from metaprior.checkpoint import write_file
    from metaprior.solar.sites.backtest import backtest as run_backtest
    from metaprior.solar.sites.forecast_file import check_path
    from metaprior.solar.sites.forecaster import PRIOR, SiteForecaster
    from metaprior.solar.sites.forecasting import short_findings
    from metaprior.solar.sites.reading.reader import read_power
    from metaprior.text_table import finite_or_none, text_table

    _check_table(power)
    for path, ending in ((json_file, ".json"), (page, ".html")):
        if path is not None:
            check_path(path, overwrite=overwrite, endings=(ending,))
    forecaster = SiteForecaster.pretrained(prior or PRIOR)
    table = read_power(power, unit=unit, zone=zone, stamps=stamps, sites=sites, columns=_roles(columns))
    for line in short_findings(table.findings, table.plants):
        typer.echo(f"- {line}")
    counts = integers("--days", days) or ()
    result = run_backtest(table.plants, forecaster, days=counts, weeks=weeks, weather=weather, progress=True)
    typer.echo(f"\n{result.answer()}")
    for measure, told in (("rmse", "RMSE in % of capacity"), ("coverage", "% of hours in the 90 % band")):
        typer.echo(f"\n{told}, by days of data")
        rows = result.table(measure).round(2).reset_index().to_dict("records")
        typer.echo(text_table([{str(name): value for name, value in row.items()} for row in rows]))
    for note in result.notes:
        typer.echo(f"note: {note}")
    if json_file is not None:
        content = {"answer": result.answer(), "notes": list(result.notes), "rows": result.rows.to_dict("records")}
        write_file(json_file, (json.dumps(finite_or_none(content)) + "\n").encode())
        typer.echo(f"written: {json_file}, {len(result.rows):,} scores")
    if page is not None:
        from metaprior.solar.sites.report.pages import write_backtest_page

        write_backtest_page(page, result)
        typer.echo(f"written: {page}")


def _numbers(option: str, text: str) -> list[float]:
    """Return the numbers of an option such as ``--levels 0.05,0.5,0.95``."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} must be numbers with commas between, got {text!r}") from None


def _roles(text: str | None) -> dict[str, str] | None:
    """Return the columns by role of an option such as ``--columns site=Anlage,power=PolyPwr``."""
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(role and equals and name for role, equals, name in pairs):
        raise typer.BadParameter(f"--columns must be as site=Anlage,power=PolyPwr, got {text!r}")
    return {role.strip(): name.strip() for role, _, name in pairs}
