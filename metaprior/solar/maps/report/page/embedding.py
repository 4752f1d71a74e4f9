r"""Maps as bytes in a page: 16 bits for each value, and how precise that is.

A value $v$ of a layer is stored as the integer $c = (v - \text{offset}) / \text{step}$, rounded, in 0 ... 65534; 65535
is a value that nobody knows. Values are shown with so many decimals $d$ that $2\,\text{step} \le 10^{-d}$: what is
shown, also a difference of two values, is within $10^{-d}$ of what was given.
"""

import base64
import math
from typing import Any, NamedTuple

import numpy as np

from metaprior.solar.maps.report.page.colours import ERROR, SPREAD, UNKNOWN, VALUES, table
from metaprior.solar.maps.report.page.content import Array, Maps

UNKNOWN_CODE = 65535


class Scale(NamedTuple):
    """How the values of some layers are stored and shown."""

    low: float
    high: float
    step: float
    decimals: int

    @property
    def precision(self) -> float:
        """How far a value that is shown can be from the one that was given."""
        return float(10.0**-self.decimals)


def value_scale(maps: Maps) -> Scale:
    """How target, mean, samples and the last input are stored: together."""
    return _scale([*_drawn_values(maps), *([] if maps.samples is None else [maps.samples])])


def value_limits(maps: Maps) -> tuple[float, float]:
    """Where the colours of values end. Samples do not count: their extremes would take the colours of all others."""
    return _ends(_drawn_values(maps))


def _drawn_values(maps: Maps) -> list[Array]:
    return [maps.target, maps.mean, *([] if maps.inputs is None else [maps.inputs[-1]])]


def spread_scale(maps: Maps) -> Scale:
    """Of the standard deviation, from zero."""
    return _scale([maps.std, np.zeros(1)])


def error_limit(maps: Maps) -> float:
    """The largest error to either side; errors are drawn from minus this to plus this."""
    known = np.abs(maps.error[np.isfinite(maps.error)])
    return float(known.max(initial=0.0)) or 1.0


def embedded(maps: Maps) -> dict[str, Any]:
    """Everything that the script needs to draw one example, as JSON; north on top."""
    maps = maps.north_up()
    values, spread = value_scale(maps), spread_scale(maps)
    return {
        "name": maps.name,
        "issued": maps.issued_text,
        "leads": maps.lead_minutes,
        "valid": maps.valid_texts,
        "height": maps.target.shape[1],
        "width": maps.target.shape[2],
        "units": maps.units,
        "latitude": _numbers(maps.latitude),
        "longitude": _numbers(maps.longitude),
        "scales": {"value": _shown(values), "std": _shown(spread)},
        "limits": {
            "value": value_limits(maps),
            "std": (0.0, spread.high),
            "error": (-error_limit(maps), error_limit(maps)),
        },
        "target": _coded(maps.target, values),
        "mean": _coded(maps.mean, values),
        "std": _coded(maps.std, spread),
        "samples": [] if maps.samples is None else [_coded(sample, values) for sample in maps.samples],
        "input": None if maps.inputs is None else _coded(maps.inputs[-1], values),
    }


def colour_tables() -> dict[str, str]:
    """For the script, by kind of quantity."""
    return {"value": table(VALUES), "std": table(SPREAD), "error": table(ERROR), "unknown": UNKNOWN}


def _ends(layers: list[Array]) -> tuple[float, float]:
    known = [layer[np.isfinite(layer)] for layer in layers]
    low = min((float(layer.min()) for layer in known if layer.size), default=0.0)
    high = max((float(layer.max()) for layer in known if layer.size), default=0.0)
    # A flat field still needs a step, and a colour bar two ends.
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def _scale(layers: list[Array]) -> Scale:
    low, high = _ends(layers)
    step = (high - low) / (UNKNOWN_CODE - 1)
    return Scale(low, high, step, math.floor(-math.log10(2 * step)))


def _shown(scale: Scale) -> dict[str, float]:
    return {**scale._asdict(), "precision": scale.precision}


def _coded(layer: Array, scale: Scale) -> str:
    known = np.isfinite(layer)
    steps = np.rint((np.where(known, layer, scale.low).astype(float) - scale.low) / scale.step)
    codes = np.where(known, steps.clip(0, UNKNOWN_CODE - 1), UNKNOWN_CODE).astype("<u2")
    return base64.b64encode(codes.tobytes()).decode("ascii")


def _numbers(coordinate: Array | None) -> list[float] | None:
    return None if coordinate is None else [round(float(value), 6) for value in coordinate]
