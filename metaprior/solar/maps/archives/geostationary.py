r"""Latitudes and longitudes of a geostationary satellite's own grid, from its scan angles (CF ``geostationary``).

A ray with scan angles $x$, $y$ meets the ellipsoid $X^2 + Y^2 + (r_e/r_p)^2 Z^2 = r_e^2$ at the nearer solution of a
quadratic equation in its length; where there is none it passes the Earth. GOES-R Product Definition and Users' Guide,
volume 3, section 5.1.2.8; the other sweep axis (Meteosat, Himawari) exchanges which angle turns first.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LARGEST_ANGLE = 0.3
"""Radians. Scan angles are smaller; larger numbers are metres, the angle times the satellite's height."""
SEMI_MAJOR, SEMI_MINOR = 6378137.0, 6356752.31414


def is_geostationary(attrs: Mapping[Any, Any]) -> bool:
    """Return whether the attributes of a grid mapping are those of a geostationary projection."""
    return attrs.get("grid_mapping_name") == "geostationary" and "perspective_point_height" in attrs


def degrees_of_angles(x: Floats, y: Floats, attrs: Mapping[Any, Any]) -> tuple[Floats, Floats]:
    """Return latitude and longitude of every pixel, (Y, X); NaN in space.

    Args:
        x: Scan angles of columns (X,), in radians, or metres.
        y: Those of rows (Y,).
        attrs: Attributes of the grid mapping.
    """
    height = float(attrs["perspective_point_height"])
    major, minor = float(attrs.get("semi_major_axis", SEMI_MAJOR)), float(attrs.get("semi_minor_axis", SEMI_MINOR))
    centre = float(attrs.get("longitude_of_projection_origin", 0.0))
    scale = height if max(np.abs(x).max(), np.abs(y).max()) > LARGEST_ANGLE else 1.0
    across, along = np.meshgrid(x / scale, y / scale)
    if attrs.get("sweep_angle_axis", "y") == "x":
        east, north, down = np.sin(across), np.sin(along) * np.cos(across), np.cos(across) * np.cos(along)
    else:
        east, north, down = np.sin(across) * np.cos(along), np.sin(along), np.cos(across) * np.cos(along)
    distance, flat = height + major, (major / minor) ** 2
    a = down**2 + east**2 + flat * north**2
    b, c = distance * down, distance**2 - major**2
    with np.errstate(invalid="ignore"):
        length = (b - np.sqrt(b**2 - a * c)) / a  # NaN where the ray passes the Earth
    towards, right, up = distance - length * down, length * east, length * north
    latitude = np.degrees(np.arctan(flat * up / np.hypot(towards, right)))
    longitude = centre + np.degrees(np.arctan2(right, towards))
    return latitude, (longitude + 180) % 360 - 180
