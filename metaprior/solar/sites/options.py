"""Options that the commands about tables of power share, and how they are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
TABLES = (".csv", ".gz", ".txt", ".tsv", ".parquet", ".pq")
ARGUMENTS = {name: f"--{name} " for name in ("unit", "zone", "stamps", "sites", "columns", "hours", "at")}
"""Options by the arguments of Python that messages name."""
ARGUMENTS["overwrite"] = "--overwrite"

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


def table_options(given: Mapping[str, object]) -> list[str]:
    """Return the words of the options that were given, for a command about the same table."""
    chosen = {name: value for name, value in given.items() if value not in (None, "auto")}
    return [word for name, value in chosen.items() for word in (f"--{name}", str(value))]


def check_table(path: Path) -> None:
    """Raise unless the name of a file is that of a table."""
    if path.suffix.lower() in SPREADSHEETS:
        raise typer.BadParameter(
            f"{path} is a spreadsheet. Save it as CSV in your spreadsheet program (File, Save as), and give that file."
        )
    if path.suffix.lower() not in TABLES:
        raise typer.BadParameter(f"{path} must be a table of power, one of {', '.join(TABLES)}")


def numbers(option: str, text: str) -> list[float]:
    """Return the numbers of an option such as ``--levels 0.05,0.5,0.95``."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} must be numbers with commas between, got {text!r}") from None


def roles(text: str | None) -> dict[str, str] | None:
    """Return the columns by role of an option such as ``--columns site=Anlage,power=PolyPwr``."""
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(role and equals and name for role, equals, name in pairs):
        raise typer.BadParameter(f"--columns must be as site=Anlage,power=PolyPwr, got {text!r}")
    return {role.strip(): name.strip() for role, _, name in pairs}
