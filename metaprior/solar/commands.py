"""``metaprior simulate`` and ``report``: for maps of a region, for worlds, and for the power of single plants."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from metaprior.cli.application import announce
from metaprior.cli.options import messages_name_options
from metaprior.cli.training import say_unfinished
from metaprior.text_table import counted


def simulate(
    out: Annotated[Path, typer.Option(help="Maps: .nc, .zarr or a folder of npy files. Sites: .csv or .parquet.")],
    what: Annotated[
        Literal["maps", "worlds", "sites"],
        typer.Argument(help="Maps of a region, one world seen by one sensor, or plants anywhere."),
    ] = "maps",
    days: Annotated[int | None, typer.Option(min=1, help="Length of the record (60; worlds: 3).")] = None,
    size: Annotated[
        int | None, typer.Option(min=4, help="Pixels along each side (maps: 96 of 5.6 km; worlds: 128, at least 16).")
    ] = None,
    frames: Annotated[int, typer.Option(min=2, help="Worlds: frames of each day.")] = 10,
    kind: Annotated[
        Literal["reflectance", "irradiance", "index", "thermal"] | None,
        typer.Option(help="Worlds: what is measured (default: drawn)."),
    ] = None,
    cadence: Annotated[
        int | None, typer.Option(help="Worlds: minutes between frames, 5, 10, 15, 20, 30 or 60 (default: drawn).")
    ] = None,
    plants: Annotated[int, typer.Option(min=1, help="Sites: number of plants.")] = 20,
    minutes: Annotated[int, typer.Option(min=1, max=60, help="Sites: length of an interval; divides 60.")] = 60,
    defects: Annotated[bool, typer.Option("--defects", help="Sites: outages, gaps, spikes and others.")] = False,
    base: Annotated[
        bool, typer.Option("--base", help="Sites: a base forecast, two days longer than the power.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0,
    start: Annotated[str, typer.Option(help="Maps and sites: first day, in UTC.")] = "2025-03-01",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Simulate irradiance maps of an invented region, clouds as any satellite may show them, or the power of plants.

    Maps have drifting clouds, mountain clouds, morning fog and seasons. NetCDF and Zarr files have coordinates; a
    folder of npy files has none.

    Worlds differ in everything that satellite products differ in: what is measured, units, cadence, pixels, clouds,
    wind, and the flaws of the sensor. One world is drawn from the seed and told in words.

    Sites are plants of all kinds under the weather of many climates: a table of power in kW, and beside it a table of
    their places and nameplates, and their true parameters.

    Example: metaprior simulate --out data/sim.nc --days 60 --size 96 --seed 0

    Example: metaprior simulate worlds --out world.nc --seed 7 --kind reflectance --cadence 15

    Example: metaprior simulate sites --out power.csv --plants 20 --days 60
    """
    with messages_name_options({"overwrite": "--overwrite"}):
        if what == "maps":
            _simulate_maps(out, days or 60, size or 96, seed, start, overwrite)
        elif what == "worlds":
            _simulate_world(out, days or 3, size or 128, frames, cadence, kind, seed, overwrite)
        else:
            _simulate_sites(out, days or 60, plants, 60 * minutes, defects, base, seed, start, overwrite)


def _simulate_maps(out: Path, days: int, size: int, seed: int, start: str, overwrite: bool) -> None:
    from metaprior.solar import simulator
    from metaprior.solar.maps.trainable import train_command, trainable

    simulator.check_path(out, overwrite=overwrite)
    announce(f"simulating {counted(days, 'day')} of {size} x {size} pixels, to be written to {out}")
    frames = simulator.simulate(days=days, size=size, seed=seed, start=start)
    simulator.write_frames(frames, out, overwrite=overwrite)
    times = frames["time"].values.astype("datetime64[m]")
    typer.echo(
        f"written: {out}, {len(frames)} frames of {size} x {size} pixels every {frames.attrs['cadence']} by day, "
        f"{times[0]} to {times[-1]} UTC, in {frames.attrs['units']}"
    )
    written = frames if out.suffix else frames.drop_vars(["latitude", "longitude"])  # a folder of npy files has none
    found = trainable(written, {"path": str(out)})
    for reason in found.reasons:
        typer.echo(f"note: {reason}")
    typer.echo(
        f"next: {train_command(out, found) if found.changes else shlex.join(['metaprior', 'inspect', str(out)])}"
    )


def _simulate_world(
    out: Path, days: int, size: int, count: int, cadence: int | None, kind: str | None, seed: int, overwrite: bool
) -> None:
    from metaprior.solar import simulator
    from metaprior.solar.simulator.worlds import draw_world
    from metaprior.solar.simulator.worlds.wording import in_words

    simulator.check_path(out, overwrite=overwrite)
    announce(f"drawing world {seed}, to be written to {out}")
    world = draw_world(seed, size=size, days=days, frames=count, cadence=cadence, kind=kind)
    simulator.write_frames(world.to_frames(), out, overwrite=overwrite)
    typer.echo(f"written: {out}, {counted(days * count, 'frame')} of {size} x {size} pixels")
    for line in in_words(world):
        typer.echo(line)
    typer.echo(f"next: {shlex.join(['metaprior', 'nowcast', str(out), '--out', 'forecast.nc'])}")


def _simulate_sites(
    out: Path, days: int, count: int, step: int, defects: bool, base: bool, seed: int, start: str, overwrite: bool
) -> None:
    from metaprior.solar.sites import simulator
    from metaprior.solar.sites.next_commands import forecast_command
    from metaprior.solar.sites.simulator.writing import check_path, paths_beside, write_power

    check_path(out, overwrite=overwrite)
    announce(f"simulating {counted(days, 'day')} of {counted(count, 'plant')}, to be written to {out}")
    longer = simulator.BASE_DAYS if base else 0
    fleet = simulator.simulate_fleet(count, days + longer, seed=seed, step=step, start=start, clear_power=base)
    plants = simulator.with_base(fleet, days, seed=seed) if base else fleet.plants
    if defects:
        plants = [simulator.with_defects(plant, seed)[0] for plant in plants]
    write_power(plants, fleet.parameters, out, overwrite=overwrite)
    sites, truth = paths_beside(out)
    every = f"every {counted(step // 60, 'minute')}, {counted(days, 'day')} from {start}, in kW"
    typer.echo(f"written: {out}, power of {counted(count, 'plant')} {every}")
    typer.echo(f"written: {sites}, their places and nameplates; {truth}, their true parameters")
    typer.echo(f"next: {shlex.join(['metaprior', 'inspect', str(out)])}")
    typer.echo(f"next: {forecast_command(out)}")


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run of `metaprior train` on frames or plants.")],
    out: Annotated[Path | None, typer.Option(help="The page (default: report.html in the folder).")] = None,
) -> None:
    """Write a page about a run on frames or plants.

    It has a summary, scores and the learning curve; for frames also scores beside persistence, reliability and maps to
    explore.

    The page is one file that needs no network access and no other file.

    Example: metaprior report runs/solar --out report.html
    """
    from metaprior.runs.folder import RunFolder

    if RunFolder(run).tasks_kind == "sites":
        from metaprior.solar.sites.report.run_page import report_run as report_plants

        say_unfinished(run)
        typer.echo(f"written: {report_plants(run, out)}, to be opened in a browser")
        return
    from metaprior.solar.maps.report.content import report_run
    from metaprior.solar.maps.run_scores import SCORES

    say_unfinished(run, "scores", SCORES)
    typer.echo(f"written: {report_run(run, out)}, to be opened in a browser")
