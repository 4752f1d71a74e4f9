"""``metaprior inspect``: a table of power in, what is wrong with it out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from metaprior.solar.sites.reading.reader import PowerTable

TABLES = (".csv", ".gz", ".txt", ".tsv", ".parquet", ".pq")


def inspect(
    path: Annotated[Path, typer.Argument(help="A table of power: .csv, .csv.gz or .parquet, long or wide.")],
    unit: Annotated[
        str | None, typer.Option(help="W, kW, MW, Wh, kWh, MWh (per interval), share or % (default: detected).")
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="Zone of stamps without one, as Australia/Sydney or +08:00 (default: unknown).")
    ] = None,
    stamps: Annotated[
        Literal["auto", "begin", "end"], typer.Option(help="Whether stamps are begins or ends of intervals.")
    ] = "auto",
    sites: Annotated[
        Path | None, typer.Option(help="A second table with capacity, latitude, longitude, ... of each plant.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The picture (default: the table's name with .png, here).")] = None,
    rows: Annotated[
        Path | None, typer.Option(help="A CSV file to write, with every row that was left out or is doubtful.")
    ] = None,
) -> None:
    """Check a table of power: what was recognised, what is doubtful, and a picture of it.

    Prints what the columns, units and clock were taken for, every defect with its rows, and counts for each plant.

    Example: metaprior inspect power.csv --zone Europe/Berlin --out power.png
    """
    from metaprior.report.canvas import save
    from metaprior.solar.sites.reading.reader import read_power
    from metaprior.solar.sites.report.record_figure import AT_MOST, record_figure
    from metaprior.text_table import text_table

    if path.suffix.lower() not in TABLES:
        raise typer.BadParameter(f"{path} must be a table of power, one of {', '.join(TABLES)}")
    table = read_power(path, unit=unit, zone=zone, stamps=stamps, sites=sites)
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
