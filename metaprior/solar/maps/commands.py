"""``metaprior nowcast`` and ``metaprior predict``: frames in, forecast maps out."""

import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from metaprior.cli.application import announce, integers
from metaprior.cli.options import as_options, messages_name_options
from metaprior.cli.training import Device, say_unfinished

if TYPE_CHECKING:
    import xarray as xr

ARGUMENTS = {
    "variable": "--variable ",
    "time_pattern": "--time-pattern ",
    "on_bad": "--on-bad ",
    "overwrite": "--overwrite",
}
"""Options by the arguments of Python that messages name."""

TOLD = 5
"""Frames that are left out and told one by one."""
NOWCAST_ARGUMENTS = {
    "variable": "--variable ",
    "cadence": "--cadence ",
    "time_pattern": "--time-pattern ",
    "value_units": "--value-units ",
    "overwrite": "--overwrite",
    "at": "--at ",
}


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


def nowcast(
    archive: Annotated[
        str, typer.Argument(help="Frames up to now: .nc, .zarr, .npz, a folder, or a pattern of files.")
    ],
    out: Annotated[Path | None, typer.Option(help="File of the forecast: .nc, .zarr or .tif.")] = None,
    at: Annotated[
        str | None, typer.Option(help="Time of the last frame seen, UTC (default: the archive's last with light).")
    ] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Learn from the archive's earlier frames first: about a minute.")
    ] = False,
    page: Annotated[Path | None, typer.Option(help="A page to write, with maps and scores: .html.")] = None,
    variable: Annotated[str | None, typer.Option(help="Name of the variable, for files with several.")] = None,
    cadence: Annotated[str, typer.Option(help="Time between frames, such as 15min; auto finds it.")] = "auto",
    time_pattern: Annotated[
        str | None, typer.Option(help="How times are written in file names, as for strptime: %Y%m%d_%H%M.")
    ] = None,
    value_units: Annotated[str | None, typer.Option(help="Units of the values, for files that state none.")] = None,
    prior: Annotated[
        Path | None,
        typer.Option(
            help="Another prior than that of the package, or the folder of a run of `metaprior train nowcast`."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Forecast the next four frames of any archive, with bands, without any training.

    The prior of the package knows simulated worlds seen through simulated sensors. It forecasts a product that it has
    never seen, of any unit, from the last four frames. Moments earlier in the archive tell how far to trust it: there
    it is compared with persistence and optical flow, and its bands are corrected until they hold. With --adapt it also
    learns from them.

    Example: metaprior nowcast archive.nc --out forecast.nc --page forecast.html
    """
    from metaprior.solar.maps.archives.frames import BadFramesSkipped, GapsInTime, open_frames
    from metaprior.solar.maps.nowcast.file import check_geotiff, check_nowcast_path, write_nowcast
    from metaprior.solar.maps.nowcast.forecaster import PRIOR, Nowcaster
    from metaprior.solar.maps.nowcast.nowcasting import nowcast_archive
    from metaprior.solar.maps.windows import utc
    from metaprior.text_table import text_table

    check_nowcast_path(out, page, overwrite=overwrite)
    forecaster = Nowcaster.pretrained(prior or PRIOR)
    if prior is not None:
        say_unfinished(prior)
    with messages_name_options(NOWCAST_ARGUMENTS):
        with warnings.catch_warnings():
            for told in (BadFramesSkipped, GapsInTime):  # in the lines below
                warnings.simplefilter("ignore", told)
            frames = open_frames(
                archive,
                variable=variable,
                cadence=cadence,
                time_pattern=time_pattern,
                value_units=value_units,
                on_bad="skip",
                missing="keep",
            )
        check_geotiff(out, frames)
        for line in [*frames.attrs["findings"], *_left_out(frames)]:
            typer.echo(f"- {as_options(line, NOWCAST_ARGUMENTS)}")
        announce("learning from earlier frames, then forecasting" if adapt else "forecasting, first earlier frames")
        found = nowcast_archive(frames, at=at, adapt=adapt, forecaster=forecaster, progress=True)
    if found.checked is not None:
        typer.echo(f"\nforecasts of {len(found.checked.times)} earlier moments, in the units of the frames")
        typer.echo(text_table(found.checked.by_method()))
    for line in (*found.assumed, *found.trusted):
        typer.echo(f"- {line}")
    typer.echo(f"issued:  {utc(found.issued)}")
    typer.echo(f"valid:   {', '.join(utc(time) for time in found.valid)}")
    if out is not None:
        write_nowcast(out, found, overwrite=overwrite)
        typer.echo(f"written: {out}")
    if page is not None:
        from metaprior.solar.maps.report.nowcast_page import write_nowcast_page

        write_nowcast_page(page, found)
        typer.echo(f"written: {page}, to be opened in a browser")
    if out is not None and out.suffix in (".nc", ".zarr"):
        typer.echo(f"next: {shlex.join(['metaprior', 'inspect', str(out)])}")
    elif out is None and page is None:
        typer.echo(f"next: {shlex.join(['metaprior', 'nowcast', archive, '--out', 'forecast.nc'])}")


def _left_out(frames: "xr.DataArray") -> list[str]:
    """Return which frames are not used, and how many gaps there are, nights apart."""
    from metaprior.text_table import counted

    skipped, gaps = frames.attrs["skipped"], frames.attrs["gaps"]
    more = [f"and {counted(len(skipped) - TOLD, 'more frame')}"] * (len(skipped) > TOLD)
    told = [f"left out: {one}" for one in [*skipped[:TOLD], *more]]
    return [*told, *(f"{counted(len(gaps), 'gap')} in time, the first {gap}" for gap in gaps[:1])]
