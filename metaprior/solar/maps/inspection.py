"""What ``metaprior inspect`` says about archives of frames and forecast maps."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from metaprior.cli.inspection import Inspection, Inspector
from metaprior.solar.contents import variable_names

NETCDF = (".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".hdf", ".he5")
ENDINGS = (*NETCDF, ".npz", ".zarr")
FORECAST, EXAMPLES = {"mean", "std", "forecast_reference_time", "lead_time"}, {"mean", "std", "target", "lead_time"}
Variable = Annotated[str | None, typer.Option(help="Archives: name of the variable, for files with several.")]
TimePattern = Annotated[
    str | None, typer.Option(help='Archives: form of the times in names of files, as strptime takes it: "%Y%m%d_%H%M".')
]


def is_archive(path: Path) -> bool:
    """Return whether a path has the ending or the content of an archive of frames."""
    if path.is_file():
        return path.suffix.lower() in ENDINGS
    if path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zgroup")):
        return path.is_dir()
    try:
        from metaprior.solar.maps.archives.file_list import holds_frames
    except ImportError:  # without the extra "solar"
        return False
    return holds_frames(path)


def is_forecast(path: Path) -> bool:
    """Return whether a file holds forecast maps, or the example forecasts of a run."""
    names = variable_names(path) if path.suffix in (*NETCDF, ".zarr") else set()
    return names >= FORECAST or names >= EXAMPLES


def inspect_archive(path: Path, *, variable: Variable = None, time_pattern: TimePattern = None) -> Inspection:
    """Return what an archive holds, everything that keeps it from being trained on, and the command that trains."""
    from metaprior.solar.maps.archive_facts import frame_variables
    from metaprior.solar.maps.archive_facts import inspect_archive as inspect

    several = frame_variables(path) if variable is None else []
    if len(several) > 1:
        commands = [shlex.join(["metaprior", "inspect", str(path), "--variable", name]) for name in several]
        problem = "there are several variables with times and places: choose one of them"
        return Inspection("an archive of several variables", {"variables": ", ".join(several)}, [problem], commands)
    return inspect(path, variable, time_pattern)


def inspect_forecast(path: Path) -> Inspection:
    """Return times, size and range of forecast maps."""
    import numpy as np

    from metaprior.solar.maps.forecast_file import read_forecast

    if not variable_names(path) >= FORECAST:
        run = shlex.join(["metaprior", "inspect", str(path.parent)])
        return Inspection("example forecasts of a run", {}, [], [run])
    with read_forecast(path) as dataset:
        mean = dataset["mean"]
        leads = (dataset["lead_time"].values / np.timedelta64(1, "m")).astype(int)
        issued = dataset["forecast_reference_time"].values.astype("datetime64[m]")
        facts = {
            "of": f"{mean.attrs.get('long_name', 'mean')}, in {mean.attrs.get('units', 'unknown units')}",
            "issued": ", ".join(map(str, issued[:3])) + (f" and {len(issued) - 3} more" if len(issued) > 3 else ""),
            "lead times": f"{', '.join(map(str, leads))} minutes",
            "maps": " x ".join(map(str, mean.shape[-2:])) + " pixels",
            "mean": f"{float(mean.min()):.4g} to {float(mean.max()):.4g}",
            "std": f"{float(dataset['std'].min()):.4g} to {float(dataset['std'].max()):.4g}",
            "variables": ", ".join(map(str, dataset.data_vars)),
            "comment": str(dataset.attrs.get("comment", "none")),
        }
        unknown = int(np.isnan(mean.values).sum())
    return Inspection("a forecast of maps", facts, [f"{unknown} values of the mean are missing"] if unknown else [])


INSPECTORS = (
    Inspector("forecast maps (.nc or .zarr of metaprior predict)", is_forecast, inspect_forecast),
    Inspector(
        "an archive of frames (.nc, .h5, .npz, .zarr, or a folder of .nc, .h5 or YYYY-MM-DD_hhmm.npy files)",
        is_archive,
        inspect_archive,
        fit=inspect_archive,
    ),
)
