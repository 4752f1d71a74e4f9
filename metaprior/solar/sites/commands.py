"""``metaprior sites``: a table of power in, forecasts and their scores out."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from metaprior.cli.application import announce, integers
from metaprior.cli.options import as_options, messages_name_options
from metaprior.solar.sites.options import (
    ARGUMENTS,
    Columns,
    Overwrite,
    Power,
    Prior,
    Sites,
    Stamps,
    Unit,
    Zone,
    check_table,
    numbers,
    roles,
    table_options,
)

AT_MOST_TOLD = 5
"""Plants whose estimated places are printed."""

HELP = """Forecast the power of single plants.

Example: metaprior sites forecast power.csv --out forecast.csv
"""
sites = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)


@sites.command()
def forecast(
    power: Power,
    out: Annotated[Path | None, typer.Option(help="The file to write: .csv, .parquet or .nc.")] = None,
    hours: Annotated[
        int, typer.Option(min=1, max=48, help="Hours to forecast: up to 6, up to 48 with a base forecast or weather.")
    ] = 6,
    at: Annotated[
        str | None,
        typer.Option(help="Time of issue, as 2025-06-01T12:00, in the table's zone; a full hour (default: its end)."),
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
    a row for each plant and hour: mean and quantiles of the power of an hour, in the unit and the zone of the table, at
    its begin or end, as the table has its stamps.

    Example: metaprior sites forecast power.csv --out forecast.csv --page forecast.html

    A plant without any power yet: an empty table (its header alone), and --sites with its capacity and place.
    """
    from metaprior.solar.sites.forecast_file import check_path, write_forecast
    from metaprior.solar.sites.forecaster import PRIOR, SiteForecaster
    from metaprior.solar.sites.forecasting import (
        forecast_table,
        needs_zone,
        place_in_words,
        plant_rows,
        short_findings,
    )
    from metaprior.solar.sites.next_commands import backtest_command, can_be_backtested, forecast_command
    from metaprior.solar.sites.reading.reader import read_power
    from metaprior.text_table import counted, text_table

    check_table(power)
    quantiles = numbers("--levels", levels)
    if out is not None:
        check_path(out, overwrite=overwrite)
    if page is not None:
        check_path(page, overwrite=overwrite, endings=(".html",))
    forecaster = SiteForecaster.pretrained(prior or PRIOR)
    given = {"unit": unit, "zone": zone, "stamps": stamps, "sites": sites, "columns": columns}
    options = table_options(given)
    with messages_name_options(ARGUMENTS):
        table = read_power(power, unit=unit, zone=zone, stamps=stamps, sites=sites, columns=roles(columns))
        everything = f"all findings: {shlex.join(['metaprior', 'inspect', str(power), *options])}"
        for line in [*short_findings(table.findings, table.plants), everything]:
            typer.echo(f"- {as_options(line, ARGUMENTS)}")
        scored = "; the page also scores forecasts of the last days, which takes longer" if page is not None else ""
        announce(f"forecasting {counted(hours, 'hour')} of {counted(len(table), 'plant')}{scored}")
        found = forecast_table(forecaster, table, at=at, hours=hours, levels=quantiles)
    typer.echo(f"\nissued {found.shown(found.issue)}, mean ({100 * quantiles[0]:g} % to {100 * quantiles[-1]:g} %)")
    typer.echo(text_table(plant_rows(found)))
    estimated = [one.plant for one in found.plants.values() if place_in_words(one.plant).startswith("estimated")]
    for plant in estimated[:AT_MOST_TOLD]:
        typer.echo(f"{plant.name}: the place is {place_in_words(plant)}")
    if len(estimated) > AT_MOST_TOLD:
        rest = len(estimated) - AT_MOST_TOLD
        typer.echo(f"{rest} more place{'s are' if rest > 1 else ' is'} estimated")
    for note in found.notes:
        typer.echo(f"note: {as_options(note, ARGUMENTS)}")
    if out is not None:
        write_forecast(out, found, overwrite=overwrite)
        typer.echo(f"written: {out}, {counted(len(found.frame), 'row')} of {counted(len(found.plants), 'plant')}")
    if page is not None:
        from metaprior.solar.sites.report.pages import write_forecast_page

        write_forecast_page(page, found, forecaster)
        typer.echo(f"written: {page}, to be opened in a browser")
    if needs_zone(table.findings):
        typer.echo(f"next: {forecast_command(power, [*options, '--zone', 'YOUR/ZONE'])}")
    if can_be_backtested(table.plants):
        typer.echo(f"next: {backtest_command(power, options)}")


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
    from metaprior.solar.sites.next_commands import forecast_command
    from metaprior.solar.sites.reading.reader import read_power
    from metaprior.text_table import counted, finite_or_none, text_table

    check_table(power)
    for path, ending in ((json_file, ".json"), (page, ".html")):
        if path is not None:
            check_path(path, overwrite=overwrite, endings=(ending,))
    forecaster = SiteForecaster.pretrained(prior or PRIOR)
    counts = integers("--days", days) or ()
    arguments = {**ARGUMENTS, "weather": "--weather ", "days": "--days ", "weeks": "--weeks "}
    with messages_name_options(arguments):
        table = read_power(power, unit=unit, zone=zone, stamps=stamps, sites=sites, columns=roles(columns))
        for line in short_findings(table.findings, table.plants):
            typer.echo(f"- {as_options(line, arguments)}")
        announce(
            f"forecasting up to {counted(weeks, 'week')} of {counted(len(table), 'plant')} from {days} days of data by "
            "every method, some of which are fitted for each; progress is shown"
        )
        result = run_backtest(table.plants, forecaster, days=counts, weeks=weeks, weather=weather, progress=True)
    typer.echo(f"\n{result.answer()}")
    for measure, told in (("rmse", "RMSE in % of capacity"), ("coverage", "% of hours in the 90 % band")):
        typer.echo(f"\n{told}, by days of data")
        rows = result.table(measure).round(2).reset_index().to_dict("records")
        typer.echo(text_table([{str(name): value for name, value in row.items()} for row in rows]))
    for note in result.notes:
        typer.echo(f"note: {as_options(note, arguments)}")
    if json_file is not None:
        content = {"answer": result.answer(), "notes": list(result.notes), "rows": result.rows.to_dict("records")}
        write_file(json_file, (json.dumps(finite_or_none(content)) + "\n").encode())
        typer.echo(f"written: {json_file}, {len(result.rows):,} scores")
    if page is not None:
        from metaprior.solar.sites.report.pages import write_backtest_page

        write_backtest_page(page, result)
        typer.echo(f"written: {page}, to be opened in a browser")
    given = {"unit": unit, "zone": zone, "stamps": stamps, "sites": sites, "columns": columns}
    typer.echo(f"next: {forecast_command(power, table_options(given))}")
