"""What ``metaprior inspect`` says about archives of frames and forecast maps."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from metaprior.cli.inspection import Inspection, Inspector
from metaprior.solar.contents import frame_variables, variable_names
from metaprior.solar.maps.archives.netcdf_folder import (
    NETCDF,
    NOT_READ,
    is_netcdf_folder,
    join_command,
    joined_name,
    netcdf_files,
)

ENDINGS = (".nc", ".nc4", ".npz", ".zarr")
FORECAST, EXAMPLES = {"mean", "std", "forecast_reference_time", "lead_time"}, {"mean", "std", "target", "lead_time"}
AT_MOST_NAMED = 5
"""Files of a folder for which a command is given."""
Variable = Annotated[str | None, typer.Option(help="Archives: name of the variable, for files with several.")]


def is_archive(path: Path) -> bool:
    """Return whether a path has the ending or the content of an archive of frames."""
    if path.is_file():
        return path.suffix in ENDINGS
    zarr = path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zgroup"))
    return path.is_dir() and (zarr or any(path.glob("*.npy")) or any(path.glob("*.NPY")))


def is_forecast(path: Path) -> bool:
    """Return whether a file holds forecast maps, or the example forecasts of a run."""
    names = variable_names(path) if path.suffix in (*NETCDF, ".zarr") else set()
    return names >= FORECAST or names >= EXAMPLES


def inspect_archive(path: Path, *, variable: Variable = None) -> Inspection:
    """Return what an archive holds, everything that keeps it from being trained on, and the command that trains."""
    from metaprior.solar.maps.archive_facts import inspect_archive as inspect

    several = frame_variables(path) if variable is None and path.suffix in (*NETCDF, ".zarr") else []
    if len(several) > 1:
        commands = [shlex.join(["metaprior", "inspect", str(path), "--variable", name]) for name in several]
        problem = "there are several variables with times and places: choose one of them"
        return Inspection("an archive of several variables", {"variables": ", ".join(several)}, [problem], commands)
    return inspect(path, variable)


def inspect_netcdf_folder(path: Path) -> Inspection:
    """Return how to join the files of a folder to one archive."""
    files = netcdf_files(path)
    names = variable_names(files[0])
    facts = {"files": f"{len(files):,}, from {files[0].name} to {files[-1].name}"}
    facts["variables"] = ", ".join(sorted(names)) or "unknown"
    problems = [NOT_READ]
    following = [join_command(path), shlex.join(["metaprior", "inspect", joined_name(path)])]
    if "time" not in names:
        problems.append("the first file has no variable time: add the time of each file before they are joined")
        following = []
    elif variable_names(files[-1]) != names:
        problems.append("the files hold different variables: inspect them one by one, and join those of one kind")
        following = [shlex.join(["metaprior", "inspect", str(file)]) for file in files[:AT_MOST_NAMED]]
    return Inspection("a folder of NetCDF files", facts, problems, following)


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
        "an archive of frames (.nc, .npz, .zarr, or a folder of YYYY-MM-DD_hhmm.npy files)",
        is_archive,
        inspect_archive,
        fit=inspect_archive,
    ),
    Inspector("a folder of NetCDF files", is_netcdf_folder, inspect_netcdf_folder),
)
