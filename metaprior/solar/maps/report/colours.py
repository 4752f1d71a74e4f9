"""Choose the colours of maps: a colour map for each kind of quantity, all safe for colour-blind readers."""

from typing import TYPE_CHECKING, Literal

from metaprior.report.canvas import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

Kind = Literal["value", "std", "error"]

BLUE_WHITE_ORANGE = (
    *("#16559c", "#2469af", "#3a7ec1", "#5492d0", "#71a7dd", "#90bbe7", "#b1d0ef", "#d4e4f4", "#f6f6f6"),
    *("#fcdac1", "#f8c092", "#eda76b", "#df8e4b", "#ce7731", "#ba611d", "#a54d11", "#903a0e"),
)
"""Diverging: CIE lightness falls linearly from 97 in the middle to 36 at both ends."""
UNKNOWN = "#b9bec4"


def colour_map(kind: Kind) -> "Colormap":
    """Return the colour map of values, standard deviations or errors."""
    matplotlib = require_matplotlib()
    if kind == "error":
        from matplotlib.colors import LinearSegmentedColormap

        return LinearSegmentedColormap.from_list("blue_white_orange", BLUE_WHITE_ORANGE)
    chosen: Colormap = matplotlib.colormaps["viridis" if kind == "value" else "magma"]
    return chosen


def colour_table(kind: Kind) -> str:
    """Return 256 colours of six hexadecimal digits each, concatenated."""
    return "".join("{:02x}{:02x}{:02x}".format(*rgb) for rgb in colour_map(kind)(range(256), bytes=True)[:, :3])
