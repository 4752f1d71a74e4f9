"""Values of CF files beyond what xarray decodes: those outside the valid range that a file states are missing."""

from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from metaprior.solar.maps.archives.archive import Index, Positions, Values, lazy_variable, read_frames
from metaprior.solar.maps.archives.notes import Notes

OTHER_SCALING = {"scaling_factor", "scaling", "scale", "slope", "gain", "offset", "intercept"}
"""Attributes, in small letters, by which other conventions than CF state how values are packed."""


class Valid(NamedTuple):
    """Limits of valid values, as they are after unpacking; a little wider than stated, by rounding."""

    low: float
    high: float

    def masked(self, values: Values) -> Values:
        """Return values with NaN in place of those outside."""
        return np.where((values >= self.low) & (values <= self.high), values, np.float32(np.nan))


def valid_range(data: xr.DataArray) -> Valid | None:
    """Return the limits that ``valid_range``, ``valid_min`` and ``valid_max`` state; None without any.

    For packed values they count in the file's own type (CF), unsigned if that is (``_Unsigned``).
    """
    attrs, encoding = data.attrs, data.encoding
    low, high = _numbers(attrs, "valid_range", 2) or (_number(attrs, "valid_min"), _number(attrs, "valid_max"))
    if low is None and high is None:
        return None
    stored = np.dtype(encoding.get("dtype", data.dtype))
    scale, offset = (float(encoding.get(name, usual)) for name, usual in (("scale_factor", 1.0), ("add_offset", 0.0)))
    packed = (scale, offset) != (1.0, 0.0) and stored.kind in "iu"
    limits = []
    for limit, none in ((low, -np.inf), (high, np.inf)):
        number = none if limit is None else float(limit)
        if limit is not None and stored.kind in "iu" and np.asarray(limit).dtype.kind in "iu":
            if str(encoding.get("_Unsigned", attrs.get("_Unsigned", ""))).lower() == "true" and number < 0:
                number += 2.0 ** (8 * stored.itemsize)
            number = number * scale + offset if packed else number
        limits.append(number)
    slack = 0.01 * abs(scale) if packed else 1e-6 * max(abs(limit) for limit in limits if np.isfinite(limit))
    return Valid(min(limits) - slack, max(limits) + slack)


def masked(variable: xr.Variable, valid: Valid | None) -> xr.Variable:
    """Return a variable (time, y, x) in which invalid values are missing, without reading it."""
    if valid is None:
        return variable
    return lazy_variable(variable.shape, np.dtype(np.float32), partial(_read_valid, variable, valid))


def _read_valid(variable: xr.Variable, valid: Valid, frames: Positions, rows: Index, columns: Index) -> Values:
    return valid.masked(read_frames(variable, frames, np.arange(len(frames)), rows, columns))


def note_other_scaling(data: xr.DataArray, notes: Notes) -> None:
    """Tell attributes that look like a packing of values, but are not those of CF and so are not applied."""
    found = [f"{name} = {value}" for name, value in data.attrs.items() if str(name).lower() in OTHER_SCALING]
    if found:
        notes.finding(f"not applied, because they are no attributes of CF: {', '.join(found)}")


def _number(attrs: Mapping[Hashable, Any], name: str) -> Any | None:
    found = _numbers(attrs, name, 1)
    return None if found is None else found[0]


def _numbers(attrs: Mapping[Hashable, Any], name: str, count: int) -> tuple[Any, ...] | None:
    """Return an attribute of so many numbers; None if there is none, or it is something else."""
    values: NDArray[Any] = np.atleast_1d(np.asarray(attrs.get(name, ())))
    return tuple(values.ravel()) if values.dtype.kind in "iuf" and values.size == count else None
