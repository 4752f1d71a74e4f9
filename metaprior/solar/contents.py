"""Names of the variables in a NetCDF or Zarr file, by which ``metaprior inspect`` tells what it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr


@contextmanager
def _opened(path: Path) -> Iterator["xr.Dataset | None"]:
    """Open a file without decoding it; None if it cannot be read, which whoever uses it will say."""
    try:
        import xarray as xr

        options: dict[str, Any] = {"engine": "zarr", "consolidated": False} if path.is_dir() else {"engine": "netcdf4"}
        dataset = xr.open_dataset(path, decode_times=False, **options)
    except (ImportError, OSError, ValueError, RuntimeError, KeyError):
        yield None
    else:
        with dataset:
            yield dataset


def variable_names(path: Path) -> set[str]:
    """Return the names of all variables; none if the file cannot be read."""
    with _opened(path) as dataset:
        return set() if dataset is None else set(map(str, dataset.variables))
