r"""Choose the colours of maps, and store maps in a page: 16 bits for each value, with a stated precision.

A value $v$ of a layer is stored as the integer $c = (v - \text{low}) / \text{step}$, rounded, in 0 ... 65534; 65535 is
an unknown value. Values are shown with $d$ decimals such that $2\,\text{step} \le 10^{-d}$: a shown value, or a
difference of two values, is within $10^{-d}$ of the true one.
"""

import base64
import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from metaprior.report.canvas import require_matplotlib
from metaprior.solar.maps.report.example import Array, ExampleForecast

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

Kind = Literal["value", "std", "error"]

BLUE_WHITE_ORANGE = (
    *("#16559c", "#2469af", "#3a7ec1", "#5492d0", "#71a7dd", "#90bbe7", "#b1d0ef", "#d4e4f4", "#f6f6f6"),
    *("#fcdac1", "#f8c092", "#eda76b", "#df8e4b", "#ce7731", "#ba611d", "#a54d11", "#903a0e"),
)
"""Diverging: CIE lightness falls linearly from 97 in the middle to 36 at both ends."""
UNKNOWN_CODE = 65535


def colour_map(kind: Kind) -> "Colormap":
    """Return the colour map of values, standard deviations or errors; all are safe for colour-blind readers."""
    matplotlib = require_matplotlib()
    if kind == "error":
        from matplotlib.colors import LinearSegmentedColormap

        return LinearSegmentedColormap.from_list("blue_white_orange", BLUE_WHITE_ORANGE)
    chosen: Colormap = matplotlib.colormaps["viridis" if kind == "value" else "magma"]
    return chosen


def colour_table(kind: Kind) -> str:
    """Return 256 colours of six hexadecimal digits each, concatenated."""
    return "".join("{:02x}{:02x}{:02x}".format(*rgb) for rgb in colour_map(kind)(range(256), bytes=True)[:, :3])


class Scale(NamedTuple):
    """How the values of some layers are stored and shown."""

    low: float
    high: float
    step: float
    decimals: int
    precision: float

    @classmethod
    def of(cls, *layers: Array) -> "Scale":
        """Return the common scale of layers; constant layers get a range of positive length."""
        known = np.concatenate([layer[np.isfinite(layer)] for layer in layers])
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
        high = high if high > low else low + (abs(low) or 1.0)
        step = (high - low) / (UNKNOWN_CODE - 1)
        decimals = math.floor(-math.log10(2 * step))
        return cls(low, high, step, decimals, 10.0**-decimals)

    def encode(self, layer: Array) -> str:
        """Return the codes of a layer, as little-endian 16-bit integers in base 64."""
        known = np.isfinite(layer)
        steps = np.rint((np.where(known, layer, self.low).astype(float) - self.low) / self.step)
        codes = np.where(known, steps.clip(0, UNKNOWN_CODE - 1), UNKNOWN_CODE).astype("<u2")
        return base64.b64encode(codes.tobytes()).decode("ascii")


def limits_of(example: ExampleForecast) -> dict[Kind, tuple[float, float]]:
    """Return where the colours of each kind begin and end; extremes of samples would flatten the other layers."""
    value, error = Scale.of(*_values(example)), np.abs(example.error[np.isfinite(example.error)])
    largest = float(error.max(initial=0.0)) or 1.0
    spread = Scale.of(example.std, np.zeros(1))
    return {"value": (value.low, value.high), "std": (0.0, spread.high), "error": (-largest, largest)}


def embedded(example: ExampleForecast) -> dict[str, Any]:
    """Return what the script needs to draw one example, as JSON, with the north on top."""
    example = example.north_up()
    samples = [] if example.samples is None else [*example.samples]
    values, spread = Scale.of(*_values(example), *samples), Scale.of(example.std, np.zeros(1))
    places = {"latitude": example.latitude, "longitude": example.longitude}
    return {
        **{name: None if axis is None else axis.astype(float).round(6).tolist() for name, axis in places.items()},
        "name": example.name,
        "issued": example.time_text(0),
        "leads": example.lead_minutes,
        "valid": [example.time_text(lead) for lead in example.lead_minutes],
        "height": example.target.shape[1],
        "width": example.target.shape[2],
        "units": example.units,
        "scales": {"value": values._asdict(), "std": spread._asdict()},
        "limits": limits_of(example),
        "target": values.encode(example.target),
        "mean": values.encode(example.mean),
        "std": spread.encode(example.std),
        "samples": [values.encode(sample) for sample in samples],
        "input": None if example.inputs is None else values.encode(example.inputs[-1]),
    }


def _values(example: ExampleForecast) -> list[Array]:
    return [example.target, example.mean, *([] if example.inputs is None else example.inputs[-1:])]
