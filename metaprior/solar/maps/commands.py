"""``metaprior predict``: frames in, forecast maps out."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from metaprior.cli.application import announce, integers
from metaprior.cli.options import messages_name_options
from metaprior.cli.training import Device, say_unfinished

ARGUMENTS = {
    "variable": "--variable ",
    "time_pattern": "--time-pattern ",
    "on_bad": "--on-bad ",
    "overwrite": "--overwrite",
}
"""Options by the arguments of Python that messages name."""


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run of `metaprior train` on frames.")],
    support: Annotated[Path, typer.Option(help="Frames of the last days, to adapt to: a file, a folder or a pattern.")],
    inputs: Annotated[Path, typer.Option(help="Frames up to now; may be the same archive.")],
    out: Annotated[Path, typer.Option(help="File of the forecast: .nc or .zarr.")],
    samples: Annotated[int, typer.Option(min=2, help="Weight samples.")] = 20,
    steps: Annotated[int | None, typer.Option(min=0, help="Adaptation steps (default: the run's).")] = None,
    place: Annotated[
        str | None,
        typer.Option(
            help="First row,column of a patch (default: the whole frame), counted from the south-west where latitudes "
            "are known."
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="Time of the last frame seen, UTC (default: the archive's last).")
    ] = None,
    variable: Annotated[str | None, typer.Option(help="Name of the variable, for files with several.")] = None,
    time_pattern: Annotated[
        str | None,
        typer.Option(help="Form of the times in names of files, as strptime takes it (default: as the run, or found)."),
    ] = None,
    on_bad: Annotated[
        Literal["raise", "skip"] | None,
        typer.Option(help="What to do with bad frames: stop, or leave them out and list them (default: as the run)."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    device: Device = "cpu",
) -> None:
    """Forecast the next frames of a place.

    Adapts the run's prior to the latest windows of the place, then predicts.

    The prior adapts to the most recent windows in daylight that were over when the forecast is issued, as many as the
    run's k_shot. The file has mean, std (and its parts), quantiles, valid and lead times, in the units of the frames.

    Example: metaprior predict runs/solar --support data/sim.nc --inputs data/sim.nc --at 2025-04-29T10:00 --out now.nc

    Several processes share the weight samples: torchrun --nproc-per-node 2 -m metaprior predict RUN ... All must see
    the run and the frames; the forecast is bitwise identical to that of one process.
    """
    from metaprior.solar.maps.forecast_inputs import ForecastRequest
    from metaprior.solar.maps.prediction import predict as run_forecast
    from metaprior.team import team_of_torchrun

    corner = integers("--place", place)
    if corner is not None and len(corner) != 2:
        raise typer.BadParameter(f"--place must be a row and a column such as 16,32, got {place!r}")
    patch = None if corner is None else (corner[0], corner[1])
    request = ForecastRequest(
        run,
        support,
        inputs,
        out,
        samples,
        steps,
        patch,
        at,
        variable,
        time_pattern,
        on_bad,
        overwrite,
        device=device,
    )
    with team_of_torchrun() as team, messages_name_options(ARGUMENTS):
        team.on_first(lambda: say_unfinished(run))
        team.on_first(lambda: announce(f"adapting to {support}, then drawing {samples} samples of weights"))
        run_forecast(request, typer.echo if team.first else lambda _: None)
        team.on_first(lambda: typer.echo(f"next: {shlex.join(['metaprior', 'inspect', str(out)])}"))
