"""What ``metaprior inspect`` says about tables of power, forecasts of plants and priors over plants."""

import gzip
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaprior.checkpoint import DESCRIPTION, read_description
from metaprior.cli.inspection import Inspection, Inspector
from metaprior.errors import CheckpointError
from metaprior.files import bare_name
from metaprior.solar.contents import variable_names
from metaprior.solar.sites.next_commands import (
    backtest_command,
    can_be_backtested,
    forecast_command,
    without_capacity,
)
from metaprior.solar.sites.options import (
    ARGUMENTS,
    TABLES,
    Columns,
    Overwrite,
    Sites,
    Stamps,
    Unit,
    Zone,
    roles,
    table_options,
)
from metaprior.solar.sites.task_settings import LEAST_DAYS
from metaprior.text_table import four_digits

if TYPE_CHECKING:
    from metaprior.solar.sites.reading.reader import PowerTable

FORECAST_COLUMNS = {"site", "issued", "time", "mean"}
FORECAST_VARIABLES = {"power", "power_quantiles", "forecast_reference_time"}
HOURS_OF_A_DAY = 24
"""Examples of a shot, by which a prior over plants is recognised."""


def is_table(path: Path) -> bool:
    """Return whether a file has the ending of a table, compressed or not."""
    inner = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    return path.is_file() and inner in TABLES


def is_forecast(path: Path) -> bool:
    """Return whether a file is a CSV or NetCDF file that ``metaprior sites forecast`` has written."""
    if path.is_file() and path.suffix == ".nc":
        return variable_names(path) >= FORECAST_VARIABLES
    if not is_table(path) or path.suffix.lower() in (".parquet", ".pq"):
        return False
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            header = file.readline(4096).strip().split(",")
    except (OSError, ValueError, EOFError):
        return False
    return set(header) >= FORECAST_COLUMNS


def inspect_power(
    path: Path,
    *,
    unit: Unit = None,
    zone: Zone = None,
    stamps: Stamps = "auto",
    sites: Sites = None,
    columns: Columns = None,
    out: Annotated[
        Path | None, typer.Option(help="Tables: the picture (default: the table's name with .png, here).")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="Tables: a CSV file to write, with every row that was left out or is doubtful.")
    ] = None,
    overwrite: Overwrite = False,
) -> Inspection:
    """Return what the columns, units and clock of a table were taken for, its defects, and counts for each plant."""
    from metaprior.cli.options import as_options, messages_name_options
    from metaprior.solar.sites.forecast_file import check_path
    from metaprior.solar.sites.reading.reader import read_power
    from metaprior.text_table import counted, text_table

    if rows is not None:
        check_path(rows, overwrite=overwrite, endings=(".csv",))
    if out is not None:
        check_path(out, overwrite=overwrite, endings=(".png", ".svg", ".pdf"))
    with messages_name_options(ARGUMENTS):
        table = read_power(path, unit=unit, zone=zone, stamps=stamps, sites=sites, columns=roles(columns))
    lines = [f"- {as_options(line, ARGUMENTS)}" for line in table.findings.lines()]
    lines += ["", text_table(_counts(table))]
    problems = _draw(table, out or Path(f"{bare_name(path)}.png"), lines)
    if rows is not None:
        lines.append(f"written: {rows}, {_write_rows(table, rows):,} rows")
    given = {"unit": unit, "zone": zone, "stamps": stamps, "sites": sites, "columns": columns}
    options = table_options(given)
    following = [backtest_command(path, options)] if can_be_backtested(table.plants) else []
    if unknown := without_capacity(table.plants):
        problems.append(
            f"nothing can be forecast before the capacity of {', '.join(unknown)} is known, which has no power to "
            "estimate it from. Try --sites with a table of capacities"
        )
    else:
        following = [forecast_command(path, options), *following]
    kind = f"a table of the power of {counted(len(table), 'plant')}"
    found = Inspection(kind, {}, problems, following, "\n".join(lines))
    return _with_training(found, path, table, given)


def fit_power(path: Path) -> Inspection:
    """Return the changes that train a prior on a table, and what it lacks if there are none."""
    from metaprior.cli.options import messages_name_options
    from metaprior.solar.sites.reading.reader import read_power

    with messages_name_options({name: f"--set tasks.{name}=" for name in ("unit", "zone", "sites")}):
        table = read_power(path)
    too_few = f"a prior is trained on at least three plants with {LEAST_DAYS} days each, and the table has fewer"
    found = Inspection("a table of power", {}, [too_few])
    return _with_training(found, path, table, {"unit": None, "zone": None, "sites": None, "columns": None})


def _draw(table: "PowerTable", out: Path, lines: list[str]) -> list[str]:
    """Draw the plants that have power, and add a line about it; return the problem if nothing can be drawn."""
    from metaprior.report.canvas import has_matplotlib, save
    from metaprior.solar.sites.report.record_figure import AT_MOST, record_figure
    from metaprior.text_table import counted

    drawn = [plant for plant in table if len(plant)][:AT_MOST]
    if not drawn:
        return []
    if not has_matplotlib():
        return ["no picture, which needs matplotlib. Try: pip install 'metaprior[report]'"]
    save(record_figure(drawn), out)
    left = len(table) - len(drawn)
    more = f", without {counted(left, 'more plant')}" if left else ""
    lines.append(f"written: {out}{more}")
    return []


def _with_training(found: Inspection, path: Path, table: "PowerTable", given: Mapping[str, object]) -> Inspection:
    """Return the inspection with the changes that train a prior on a table, if its plants are enough for that."""
    from metaprior.runs.reading import as_change, read_config
    from metaprior.solar.sites.source import long_enough

    if len(long_enough(table.plants)) < 3 or given["columns"] or given.get("stamps", "auto") != "auto":
        return found
    settings = {"path": str(path), **{name: given[name] and str(given[name]) for name in ("unit", "zone", "sites")}}
    changes = [as_change(f"tasks.{name}", value) for name, value in settings.items() if value is not None]
    read_config("sites", changes)
    init = shlex.join(["metaprior", "init", "sites", "--data", str(path), "--out", f"{bare_name(path)}.toml"])
    return replace(found, config="sites", changes=changes, next_commands=[*found.next_commands, init])


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
            "capacity": _plain_digits(plant.capacity),
            "unit": plant.unit,
            "intervals": len(plant),
            "missing": int((plant.power != plant.power).sum()),
            **{name: counts[plant.name].get(name, 0) for name in kinds},
        }
        for plant in table
    ]


def _plain_digits(capacity: float | None) -> float | None:
    """Return a capacity that a table shows without an exponent: an integer where it has more than four digits."""
    return capacity if capacity is None or capacity < 1000 else round(capacity)


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


def inspect_forecast(path: Path) -> Inspection:
    """Return plants, times and levels of a forecast."""
    import pandas as pd  # type: ignore[import-untyped]

    if path.suffix == ".nc":
        return _inspect_netcdf(path)
    frame = pd.read_csv(path)
    levels = [name for name in frame.columns if name.startswith("q") and name[1:2].isdigit()]
    problems = []
    if frame.empty:
        return Inspection("a forecast of plants without any row", {}, ["make it again: metaprior sites forecast"])
    if missing := int(frame["mean"].isna().sum()):
        problems.append(f"{missing} of {len(frame)} hours have no mean")
    if not (frame[levels].diff(axis=1).iloc[:, 1:].fillna(0) >= 0).all(axis=None):
        problems.append("quantiles do not increase with their levels in all rows")
    facts = {
        "plants": f"{frame['site'].nunique()} ({', '.join(map(str, frame['site'].unique()[:5]))})",
        "issued": ", ".join(map(str, frame["issued"].unique()[:3])),
        "hours": f"{frame['time'].iloc[0]} to {frame['time'].iloc[-1]}",
        "columns": ", ".join(frame.columns),
        "mean": f"{four_digits(frame['mean'].min())} to {four_digits(frame['mean'].max())}",
    }
    return Inspection("a forecast of the power of plants", facts, problems)


def _inspect_netcdf(path: Path) -> Inspection:
    import xarray as xr

    with xr.open_dataset(path) as dataset:
        power, times = dataset["power"], dataset["time"].values.astype("datetime64[m]")
        names, levels = dataset["site"].values, dataset["quantile"].values
        missing = int(power.isnull().sum())
        facts = {
            "plants": f"{len(names)} ({', '.join(map(str, names[:5]))})",
            "issued": str(dataset["forecast_reference_time"].values.astype("datetime64[m]")),
            "hours": f"{times[0]} to {times[-1]}",
            "quantiles": ", ".join(f"{level:g}" for level in levels),
            "mean": f"{four_digits(power.min())} to {four_digits(power.max())} {power.attrs.get('units')}",
        }
    problems = [f"{missing} of {power.size} hours have no mean"] if missing else []
    return Inspection("a forecast of the power of plants", facts, problems)


def is_site_prior(path: Path) -> bool:
    """Return whether a folder holds a prior over plants."""
    try:
        described = read_description(path) if (path / DESCRIPTION).is_file() else {}
    except CheckpointError:
        return False
    likelihood, settings = described.get("likelihood") or {}, described.get("settings") or {}
    by_days = settings.get("examples_per_shot") == HOURS_OF_A_DAY
    return described.get("kind") == "MetaLearner" and likelihood.get("name") == "GaussianMixture" and by_days


def inspect_prior(path: Path) -> Inspection:
    """Return what a prior over plants is, and the command that forecasts with it."""
    from metaprior.cli.prior_facts import prior_facts
    from metaprior.solar.sites.forecaster import SiteForecaster

    problems = []
    try:
        SiteForecaster.pretrained(path)
    except (ValueError, OSError, CheckpointError) as error:
        problems.append(f"it cannot be loaded: {error}")
    forecast = shlex.join(["metaprior", "sites", "forecast", "power.csv", "--prior", str(path)])
    facts = {**prior_facts(path, read_description(path)), "network": "SiteNetwork, for the next hours of plants"}
    return Inspection("a prior over plants", facts, problems, [] if problems else [forecast])


INSPECTORS = (
    Inspector("a forecast of plants (.csv or .nc of metaprior sites forecast)", is_forecast, inspect_forecast),
    Inspector("a prior over plants (a folder with checkpoint.json)", is_site_prior, inspect_prior),
    Inspector(f"a table of power ({', '.join(TABLES)})", is_table, inspect_power, fit_power),
)
