"""What the pictures share: colours, frames, and how a file is written."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from metaprior.report.band import BLUE, INK

matplotlib.use("Agg")

T = TypeVar("T")

ORANGE, GREEN, PURPLE, SKY = "#d98300", "#009e73", "#b0508f", "#56b4e9"
GREY = "#8a8a8a"


class Pen(NamedTuple):
    """How one method is drawn. Marks and dashes differ too, for readers to whom colours look alike."""

    color: str
    marker: str
    linestyle: str


PENS = (
    Pen(BLUE, "o", "-"),
    Pen(ORANGE, "s", "--"),
    Pen(GREEN, "^", "-."),
    Pen(PURPLE, "D", ":"),
    Pen(INK, "v", "-"),
    Pen(SKY, "P", "--"),
)


def by_name(given: T | Mapping[str, T]) -> dict[str, T]:
    """One thing without a name, or several with theirs; at least one and at most as many as there are pens."""
    named: dict[str, T] = dict(given) if isinstance(given, Mapping) else {"": given}
    if not 1 <= len(named) <= len(PENS):
        raise ValueError(f"a picture holds 1 to {len(PENS)} methods, got {len(named)}; draw several pictures")
    return named


def with_pens(named: Mapping[str, T]) -> Iterator[tuple[str, T, Pen]]:
    """Every method with a pen of its own."""
    for (name, value), pen in zip(named.items(), PENS, strict=False):
        yield name, value, pen


def tidy(axes: Axes) -> None:
    """Only the two spines that carry numbers."""
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write the file, in a new folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
