"""Colours of maps: perceptually uniform, safe for colour-blind readers, and another table for each kind of quantity."""

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap, to_hex
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LIGHTEST, DARKEST = 97.0, 36.0
BLUES = ((-10.0, -44.0), (8.0, -44.0))
ORANGES = ((32.0, 74.0), (34.0, 42.0))
"""CIE a* and b*: where the path from white to the end of the table is pulled to, and where it ends."""

LINEAR_SRGB_OF_XYZ = np.array(
    [
        [3.2404542, -1.5371385, -0.4985314],
        [-0.9692660, 1.8760108, 0.0415560],
        [0.0556434, -0.2040259, 1.0572252],
    ]
)
WHITE_XYZ = np.array([0.95047, 1.0, 1.08883])


def blue_white_orange() -> ListedColormap:
    """Diverging: lightness falls linearly, and equally, from white in the middle to both ends.

    Blue and orange are told apart in every common kind of colour blindness.
    """
    half = np.linspace(0, 1, 128)
    low, high = (_srgb(_path(half, *ends)) for ends in (BLUES, ORANGES))
    return ListedColormap(np.concatenate([low[::-1], high]), name="blue_white_orange")


def _path(part: Floats, pull: tuple[float, float], end: tuple[float, float]) -> Floats:
    """CIE Lab from white to the darkest: linear in L*, a quadratic curve in a* and b*."""
    lightness = LIGHTEST + (DARKEST - LIGHTEST) * part
    a, b = (2 * part * (1 - part) * pull[i] + part**2 * end[i] for i in (0, 1))
    return np.stack([lightness, a, b], axis=-1)


def _srgb(lab: Floats) -> Floats:
    middle = (lab[:, 0] + 16) / 116
    cubes = np.stack([middle + lab[:, 1] / 500, middle, middle - lab[:, 2] / 200], axis=-1)
    xyz = WHITE_XYZ * np.where(cubes > 6 / 29, cubes**3, 3 * (6 / 29) ** 2 * (cubes - 4 / 29))
    linear = (xyz @ LINEAR_SRGB_OF_XYZ.T).clip(0, 1)
    encoded: Floats = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return encoded


VALUES: Colormap = colormaps["viridis"]
SPREAD: Colormap = colormaps["magma"]
ERROR: Colormap = blue_white_orange()
UNKNOWN = "#b9bec4"


def table(colours: Colormap) -> str:
    """256 colours of six hexadecimal digits each, one after the other."""
    return "".join(to_hex(colours(i / 255)).removeprefix("#") for i in range(256))
