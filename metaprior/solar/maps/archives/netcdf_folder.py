"""A folder of NetCDF files, which is no archive yet: how to join its files along time to one."""

import shlex
from pathlib import Path

from metaprior.files import named_after

NETCDF = (".nc", ".nc4")
NOT_READ = "a folder of NetCDF files is not read as it is: join them along time to one file"


def netcdf_files(folder: Path) -> list[Path]:
    """Return the NetCDF files of a folder, sorted by name."""
    return sorted(entry for entry in folder.iterdir() if entry.suffix in NETCDF)


def is_netcdf_folder(path: Path) -> bool:
    """Return whether a folder holds NetCDF files, and no frames as npy files, of which it would be an archive."""
    return path.is_dir() and bool(netcdf_files(path)) and not any(e.suffix.lower() == ".npy" for e in path.iterdir())


def joined_name(folder: Path) -> str:
    """Return the name of the file that the files of a folder are joined to."""
    return named_after(folder, "joined.nc")


def join_command(folder: Path) -> str:
    """Return the command that joins the files of a folder along time."""
    pattern = str(folder / f"*{netcdf_files(folder)[0].suffix}")
    return python_command(
        "import glob, xarray as xr; xr.concat([xr.open_dataset(p) for p in "
        f"sorted(glob.glob({pattern!r}))], 'time').sortby('time').to_netcdf({joined_name(folder)!r})"
    )


def python_command(code: str) -> str:
    """Return a command that runs a line of Python whose strings are in single quotes."""
    return shlex.join(["python", "-c", code]) if set(code) & set('"$`!\\') else f'python -c "{code}"'


def refuse_netcdf_folder(path: Path) -> None:
    """Raise ValueError, with the command that joins the files, if a path is a folder of NetCDF files."""
    if is_netcdf_folder(path):
        raise ValueError(
            f"{path}: {NOT_READ}, and give that one. Try:\n  {join_command(path)}\n  metaprior inspect "
            f"{shlex.quote(joined_name(path))}"
        )
