"""Where the pixels of a file are: latitudes and longitudes, along the axes or for every pixel, and orientation."""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from metaprior.solar.maps.archives.geostationary import degrees_of_angles, is_geostationary
from metaprior.solar.maps.archives.notes import Notes


class Geographic(NamedTuple):
    """How a coordinate of places is recognised, its units as written to frames, and its largest absolute value."""

    names: set[str]
    units: str
    limit: float
    dim: str

    def recognises(self, name: Hashable, attrs: dict[Hashable, object]) -> bool:
        """Return whether a variable is this coordinate, by its standard name, its units or its name."""
        unit = self.units.removeprefix("degrees_")  # degrees_north, degree_north, degrees_N and degree_N
        spellings = {f"{word}_{end}" for word in ("degrees", "degree") for end in (unit, unit[0])}
        kind = "latitude" if self.dim == "y" else "longitude"
        stated = attrs.get("standard_name") == kind or str(attrs.get("units")).lower() in spellings
        return stated or str(name).lower() in self.names


GEOGRAPHIC = {
    "latitude": Geographic({"lat", "latitude", "lats", "nav_lat"}, "degrees_north", 90.0, "y"),
    "longitude": Geographic({"lon", "longitude", "lons", "nav_lon", "long"}, "degrees_east", 360.0, "x"),
}
AXES = {
    "y": {"y", "row", "rows", "line", "lines", "south_north", "rlat", "nj", "yc"},
    "x": {"x", "column", "columns", "col", "cols", "pixel", "pixels", "west_east", "rlon", "ni", "xc"},
}
"""Names of dimensions along columns and rows; so are those that begin with ``y_`` or ``x_``, such as x_osgb."""
STANDARD = {
    axis: {f"projection_{axis}_coordinate", f"projection_{axis}_angular_coordinate", grid}
    for axis, grid in (("y", "grid_latitude"), ("x", "grid_longitude"))
}
LENGTHS = {"m", "km", "metre", "metres", "meter", "meters", "rad", "radian", "radians"}
"""Units of the axes of projections."""
SAME_DEGREES = 1e-3
"""Degrees by which the latitudes of a row may differ that still count as one."""
SHARE_OF_A_STEP = 0.01
"""The same, as a share of the step from row to row."""


class Layout(NamedTuple):
    """The variable of the frames and its dimensions; ``time`` is None in files of one frame without such an axis."""

    name: str
    time: Hashable | None
    y: Hashable
    x: Hashable

    @property
    def dims(self) -> tuple[Hashable, ...]:
        """The dimensions in the order of frames."""
        return (self.y, self.x) if self.time is None else (self.time, self.y, self.x)


class Grid(NamedTuple):
    """Coordinates of rows and columns, and which axes of the file are to be turned round."""

    coords: dict[str, xr.Variable]
    turned: tuple[Hashable, ...]


def grid_of(path: object, dataset: xr.Dataset, layout: Layout, notes: Notes) -> Grid:
    """Return the coordinates of the frames, with the first row in the south and the first column in the west.

    All archives have one orientation, so that a network trained on one does not see another's weather mirrored. Data
    without coordinates, or whose coordinates run neither way, keep the order of the file.
    """
    data, y, x = dataset[layout.name], layout.y, layout.x
    axes = {
        name: xr.Variable(name, data[dim].values, data[dim].attrs)
        for name, dim in (("y", y), ("x", x))
        if dim in data.coords
    }
    found = _places(data, y, x)
    if found is not None:
        degrees = {kind: _degrees(path, kind, coordinate) for kind, coordinate in found.items()}
    elif (seen := _seen_by_satellite(dataset, data, axes)) is not None:
        notes.finding("latitude and longitude computed from the satellite's scan angles")
        degrees = seen
    else:
        return _projected(data, {"y": y, "x": x}, axes)
    if degrees["latitude"].ndim == 2:
        if (rows_and_columns := _separated(degrees["latitude"], degrees["longitude"])) is None:
            notes.finding("latitude and longitude are given for every pixel")
        else:
            notes.finding("latitude and longitude of every pixel are those of its row and its column")
            degrees = rows_and_columns
    axes = {} if degrees["latitude"].ndim == 1 else axes
    turned = _turned(degrees["latitude"], degrees["longitude"])
    order = {name: slice(None, None, -1) for name in turned}
    coords = {
        kind: xr.Variable(
            ("y", "x") if values.ndim == 2 else GEOGRAPHIC[kind].dim,
            values,
            {"standard_name": kind, "long_name": kind, "units": GEOGRAPHIC[kind].units},
        )
        for kind, values in degrees.items()
    }
    flipped = {
        name: variable.isel({dim: order[dim] for dim in variable.dims if dim in order})
        for name, variable in {**coords, **axes}.items()
    }
    return Grid(flipped, tuple(y if name == "y" else x for name in turned))


def direction(data: xr.DataArray, dim: Hashable) -> str | None:
    """Return whether a dimension is y or x, by its coordinate, its attribute ``axis`` or its name; None if unknown."""
    for geographic in GEOGRAPHIC.values():
        if any(geographic.recognises(name, one.attrs) for name, one in data.coords.items() if one.dims == (dim,)):
            return geographic.dim
    attrs = data[dim].attrs if dim in data.coords else {}
    for axis, standard in STANDARD.items():
        if str(attrs.get("axis", "")).lower() == axis or attrs.get("standard_name") in standard:
            return axis
    name = str(dim).lower().rpartition("/")[2]  # without its group
    return next((axis for axis, names in AXES.items() if name in names or name.startswith(f"{axis}_")), None)


def _projected(data: xr.DataArray, dims: dict[str, Hashable], axes: dict[str, xr.Variable]) -> Grid:
    """Return the axes of a projection, with y to the north and x to the east; other axes as they are."""
    turned = []
    for name, dim in dims.items():
        if name not in axes or not (is_projected(name, axes[name]) or str(dim).lower().startswith(f"{name}_")):
            continue
        standard = {"standard_name": f"projection_{name}_coordinate", **axes[name].attrs}
        axes[name] = xr.Variable(name, axes[name].values, standard)
        if len(axes[name]) > 1 and (np.diff(axes[name].values) < 0).all():
            axes[name] = axes[name][::-1]
            turned.append(dim)
    return Grid(axes, tuple(turned))


def is_projected(name: str, axis: xr.Variable) -> bool:
    """Return whether an axis is that of a projection, on which y is northing and x is easting."""
    units = str(axis.attrs.get("units", "")).lower()
    return axis.attrs.get("standard_name") in STANDARD[name] or units in LENGTHS


def _places(data: xr.DataArray, y: Hashable, x: Hashable) -> dict[str, xr.DataArray] | None:
    """Return latitude and longitude: of rows and columns if the data have these, otherwise of every pixel."""
    for dims in (((y,), (x,)), ((y, x), (y, x))):
        found = {
            kind: coordinate
            for (kind, geographic), wanted in zip(GEOGRAPHIC.items(), dims, strict=True)
            for name, coordinate in data.coords.items()
            if set(coordinate.dims) == set(wanted) and geographic.recognises(name, coordinate.attrs)
        }
        if len(found) == 2:
            return {
                kind: coordinate.transpose(*dims[0] if len(dims[0]) == 2 else coordinate.dims)
                for kind, coordinate in found.items()
            }
    return None


def _seen_by_satellite(
    dataset: xr.Dataset, data: xr.DataArray, axes: dict[str, xr.Variable]
) -> dict[str, NDArray[np.floating]] | None:
    """Return the degrees of a geostationary grid; None if the data are not on one."""
    stated = data.attrs.get("grid_mapping", data.encoding.get("grid_mapping"))
    mapping = dataset.variables.get(str(stated).split(":")[0])
    if mapping is None or len(axes) < 2 or not is_geostationary(mapping.attrs):
        return None
    x, y = (np.asarray(axes[name].values, np.float64) for name in ("x", "y"))
    latitude, longitude = degrees_of_angles(x, y, mapping.attrs)
    return None if np.isnan(latitude).all() else {"latitude": latitude, "longitude": longitude}


def _degrees(path: object, kind: str, coordinate: xr.DataArray) -> NDArray[np.floating]:
    """Return degrees; those of pixels that see no place, such as the space around a disc, are NaN."""
    limit = GEOGRAPHIC[kind].limit
    values: NDArray[np.floating] = np.asarray(coordinate.values)
    outside = ~(np.abs(values.astype(np.float64)) <= limit)
    if values.ndim == 2 and not outside.all():
        return np.where(outside, np.nan, values.astype(np.float64)) if outside.any() else values
    if outside.any():
        raise ValueError(f"{path}: {coordinate.name} must lie within {-limit:g} and {limit:g} degrees, got {values}")
    return values


def _separated(
    latitude: NDArray[np.floating], longitude: NDArray[np.floating]
) -> dict[str, NDArray[np.floating]] | None:
    """Return latitudes of rows and longitudes of columns if all pixels agree with them; None otherwise."""
    apart = longitude - longitude[:1]
    columns = longitude[0] + (apart - 360 * np.round(apart / 360)).mean(0)  # across the date line, too
    found = {"latitude": latitude.mean(1, dtype=np.float64), "longitude": np.asarray(columns, np.float64)}
    off = {
        "latitude": np.abs(latitude - found["latitude"][:, None]),
        "longitude": np.abs((longitude - columns + 180) % 360 - 180),
    }
    for kind, values in found.items():
        steps = np.abs(np.diff(values))
        allowed = max(SAME_DEGREES, SHARE_OF_A_STEP * float(np.median(steps)) if steps.size else 0.0)
        if not (off[kind] <= allowed).all():  # also where a pixel has no place
            return None
    return found


def _turned(latitude: NDArray[np.floating], longitude: NDArray[np.floating]) -> tuple[str, ...]:
    """Return the axes along which degrees fall: rows from north to south, columns from east to west."""
    northward, eastward = np.diff(latitude.astype(np.float64), axis=0), np.diff(longitude.astype(np.float64), axis=-1)
    eastward -= 360 * np.sign(eastward) * (np.abs(eastward) > 180)  # from 179 to -180 degrees is a step to the east
    if latitude.ndim == 1:
        return tuple(dim for dim, steps in (("y", northward), ("x", eastward)) if steps.size and (steps < 0).all())
    return tuple(dim for dim, steps in (("y", northward), ("x", eastward)) if np.nansum(np.sign(steps)) < 0)
