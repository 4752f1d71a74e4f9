"""Create figures, choose pens and write files: what all drawings share.

matplotlib is imported by ``new_figure`` and ``require_matplotlib``; other modules import it for its types only, or
inside the functions that draw.
"""

import io
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from metaprior.checkpoint import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GREY, BLUE, RED = "#222222", "#8a8a8a", "#1f6fb4", "#c0392b"


class Pen(NamedTuple):
    """How one method is drawn. Markers and dashes differ as well as colours, for colour-blind readers."""

    color: str
    marker: str
    linestyle: str


PENS = (
    Pen(BLUE, "o", "-"),
    Pen("#d98300", "s", "--"),
    Pen("#009e73", "^", "-."),
    Pen("#b0508f", "D", ":"),
    Pen(INK, "v", "-"),
    Pen("#56b4e9", "P", "--"),
    Pen(RED, "X", "-."),
    Pen(GREY, "<", "-"),
    Pen("#8c7a00", ">", ":"),
    Pen("#7a4b2a", "*", "--"),
    Pen("#0b7285", "p", "-."),
    Pen("#6c5ce7", "h", "-"),
)


def pens_of(methods: Collection[str]) -> dict[str, Pen]:
    """Return a pen for each method, in the order of the methods."""
    if len(methods) > len(PENS):
        raise ValueError(f"methods must number at most {len(PENS)}, got {len(methods)}. Draw several figures or pages.")
    return dict(zip(methods, PENS, strict=False))


def require_matplotlib() -> ModuleType:
    """Return matplotlib, imported on first use.

    Raises:
        ModuleNotFoundError: matplotlib is not installed; the message names the command that installs it.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"figures need matplotlib ({error}). Try: pip install 'metaprior[report]'", name=error.name
        ) from error
    return matplotlib


def has_matplotlib() -> bool:
    """Return whether matplotlib is installed, without importing it."""
    return find_spec("matplotlib") is not None


def new_figure(width: float, height: float, **options: Any) -> "Figure":
    """Return an empty figure of this size in inches."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), **{"dpi": 150, "layout": "constrained", **options})


def tidy(axes: "Axes") -> None:
    """Hide the two spines that carry no numbers."""
    axes.spines[["top", "right"]].set_visible(False)


@contextmanager
def plain_text() -> Iterator[None]:
    """Draw names and units literally: a dollar sign starts no formula, and text in an SVG stays text."""
    with require_matplotlib().rc_context({"text.parse_math": False, "svg.fonttype": "none"}):
        yield


def png(figure: "Figure") -> bytes:
    """Return the figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def save(figure: "Figure", path: Path) -> None:
    """Write a PNG atomically, creating its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, png(figure))


def svg(figure: "Figure", *, salt: str) -> str:
    """Return the figure as an SVG element for a page.

    Prologue, metadata and style are removed. Ids depend on ``salt``, so that two drawings of a page share none.
    """
    file = io.StringIO()
    with plain_text(), require_matplotlib().rc_context({"svg.hashsalt": salt}):
        figure.savefig(file, format="svg", transparent=True)
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.S)
    return re.sub(r'<g id="[^"]*"', "<g", text).strip()
