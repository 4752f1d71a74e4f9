r"""Units of the network: how values of frames become its inputs and targets, and how forecasts become values again.

A network works with numbers between about -1 and 1. ``ScaledValues`` maps the values of frames there,

$$u = 2\,\frac{v - v_{\min}}{v_{\max} - v_{\min}} - 1 .$$

``ClearSkyIndex`` first divides irradiance by that of a cloudless sky, $k = v / v_{\mathrm{clear}}$. This removes the
sun's course from the forecast: holding the last $k$ is smart persistence. Both are affine in the target at a given time
and place, so a Gaussian forecast remains Gaussian when it is decoded.

All that units need of times and places is the sine of the sun's elevation, (T, H, W), which ``WindowReader.sine``
computes once for a window; it is None for units that do not look at the sun, and where coordinates are not known.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from metaprior.checks import check_positive
from metaprior.solar.maps.archives.archive import Values
from metaprior.solar.sun import Floats, haurwitz
from metaprior.solar.value_units import IRRADIANCE


@dataclass(frozen=True)
class ScaledValues:
    """Values from ``data_min`` to ``data_max`` as -1 to 1; nothing is known in advance."""

    known_per_target: ClassVar[int] = 0
    needs_sun: ClassVar[bool] = False
    data_min: float
    data_max: float

    def __post_init__(self) -> None:
        if not self.data_min < self.data_max:
            raise ValueError(
                f"data_min must be less than data_max, got {self.data_min} and {self.data_max}; frames whose values "
                "are all equal cannot be scaled"
            )

    def __str__(self) -> str:
        return f"values from {self.data_min:.6g} to {self.data_max:.6g} as -1 to 1"

    def encode(self, values: Values, sine: Floats | None) -> Values:
        """Return frames (T, H, W) as the network sees them, 2 (v - data_min) / (data_max - data_min) - 1."""
        return (2 * (values - self.data_min) / (self.data_max - self.data_min) - 1).astype(np.float32)

    def decoding(self, count: int, sine: Floats | None) -> tuple[Values, Values]:
        """Return loc and scale of ``value = loc + scale * u`` for some frames, the same for all: (count, 1, 1)."""
        scale = np.full((count, 1, 1), (self.data_max - self.data_min) / 2, np.float32)
        return self.data_min + scale, scale

    def known(self, sine: Floats | None, shape: tuple[int, int]) -> Values:
        """Return what is known about some times, (known_per_target * T, H, W): no channels."""
        return np.empty((0, *shape), np.float32)


@dataclass(frozen=True)
class ClearSkyIndex:
    """Irradiance divided by that of a cloudless sky, 0 to ``highest`` as -1 to 1; frames need coordinates.

    The index of a sun below about 5 degrees means nothing; windows in daylight (``min_elevation`` of the tasks) avoid
    it. The sun's elevation at a target is known in advance, and is one input channel.
    """

    known_per_target: ClassVar[int] = 1
    needs_sun: ClassVar[bool] = True
    highest: float = 1.2

    def __post_init__(self) -> None:
        check_positive("highest", self.highest)

    def __str__(self) -> str:
        return f"clear-sky index from 0 to {self.highest:.6g} as -1 to 1"

    def encode(self, values: Values, sine: Floats | None) -> Values:
        """Return frames (T, H, W) as the network sees them, 2 k / highest - 1."""
        return (2 * values / (self.highest * _clear_sky(sine)) - 1).astype(np.float32)

    def decoding(self, count: int, sine: Floats | None) -> tuple[Values, Values]:
        """Return loc and scale of ``value = loc + scale * u``, which differ for each time and pixel: (T, H, W)."""
        scale = (self.highest / 2 * _clear_sky(sine)).astype(np.float32)
        return scale, scale

    def known(self, sine: Floats | None, shape: tuple[int, int]) -> Values:
        """Return the sine of the sun's elevation at each pixel, (T, H, W)."""
        return _known(sine).astype(np.float32)


Units = ScaledValues | ClearSkyIndex
"""Conversion between values of frames and numbers of the network.

``known_per_target`` is the number of input channels for each target frame that state what is known about its time;
``needs_sun`` is whether the sine of the sun's elevation is looked at.
"""
KINDS: dict[str, type[Units]] = {"clear_sky": ClearSkyIndex, "scaled": ScaledValues}
"""Units by their name in files and configurations."""


def units_to_json(units: Units) -> dict[str, Any]:
    """Return the units as plain values, for ``units_from_json``."""
    return {"kind": next(kind for kind, cls in KINDS.items() if isinstance(units, cls)), **asdict(units)}


def units_from_json(content: Mapping[str, Any]) -> Units:
    """Return the units that ``units_to_json`` wrote."""
    if content.get("kind") not in KINDS:
        raise ValueError(f"kind of units must be one of {', '.join(KINDS)}, got {content.get('kind')!r}")
    return KINDS[content["kind"]](**{name: value for name, value in content.items() if name != "kind"})


def has_coordinates(frames: xr.DataArray) -> bool:
    """Return whether latitude and longitude of the frames are known."""
    return {"latitude", "longitude"} <= set(frames.coords)


def check_clear_sky(frames: xr.DataArray) -> None:
    """Raise unless the clear-sky index of these frames exists."""
    source, units = frames.attrs.get("source", "the frames"), frames.attrs.get("units", "unknown units")
    if not has_coordinates(frames):
        raise ValueError(
            f'{source}: tasks.units = "clear_sky" needs latitude and longitude, which these frames do not have. Use '
            'NetCDF or Zarr with CF coordinates, or units = "scaled"'
        )
    if units != IRRADIANCE:
        raise ValueError(
            f'{source}: values must be irradiance in {IRRADIANCE} for tasks.units = "clear_sky", got {units!r}. Use '
            'units = "scaled"'
        )


def _known(sine: Floats | None) -> Floats:
    if sine is not None:
        return sine
    raise ValueError(
        "the clear-sky index needs frames with latitude and longitude, and these have none. Use NetCDF or Zarr with CF "
        "coordinates, or scale by data_min and data_max"
    )


def _clear_sky(sine: Floats | None) -> Floats:
    clear = haurwitz(_known(sine))
    if not (clear > 0).all():
        raise ValueError("the sun is down in some of these frames, where a clear-sky index does not exist")
    return clear
