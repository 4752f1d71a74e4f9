"""Draw the figures of a page: measures by lead time and by shots, and the reliability of intervals."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from metaprior.report.canvas import Pen
from metaprior.report.curves import Curves, curves_of, curves_svg, interval_curves, interval_svgs, key_svg
from metaprior.report.measures import is_known, measure
from metaprior.report.page.content import PageContent
from metaprior.text_table import Row

AGAINST = {
    "lead_minutes": ("lead time (minutes)", ("skill_persistence", "crps")),
    "shots": ("shots (examples to adapt to)", ("crps", "rmse")),
}
"""Label of the axis, and the measures that are drawn."""
INTERVAL_CAPTIONS = (
    "Targets inside central intervals. Calibrated intervals lie on the dashed line.",
    "The same, as the distance from the dashed line. Below 0, intervals are too narrow.",
)


class Figures(NamedTuple):
    """Drawings (SVG) by caption, and the piece of line (SVG) of each method in them."""

    figures: dict[str, str]
    key: dict[str, str]


def reliability_figures(content: PageContent, pens: Mapping[str, Pen]) -> Figures:
    """Return figures of the observed share of targets against the level of central intervals."""
    curves = interval_curves(content.reliability)
    svgs = interval_svgs(curves, pens, ours=content.ours) if curves else ()
    key = key_of("reliability", [curves], pens, ours=content.ours)
    return Figures(dict(zip(INTERVAL_CAPTIONS, svgs, strict=False)), key)


def measure_figures(content: PageContent, pens: Mapping[str, Pen], rows: Sequence[Row], against: str) -> Figures:
    """Return the figures of the main measures against lead times or shots, where there is anything to draw."""
    figures, drawn, (x_label, names) = {}, [], AGAINST[against]
    for of in (measure(name, content.units) for name in names):
        curves = curves_of(rows, of, against)
        if not curves:
            continue
        better = "Above 0, RMSE is lower than persistence's." if of.better == "higher" else "Lower is better."
        banded = any(is_known(point.low) for point in curves.get(content.ours or "", ()))
        band = f" Band: 95 % interval of {content.ours}." if banded else ""
        caption = f"{of.label} by {x_label}. {better}{band}"
        figures[caption] = curves_svg(curves, pens, ours=content.ours, x_label=x_label, of=of)
        drawn.append(curves)
    return Figures(figures, key_of(against, drawn, pens, ours=content.ours))


def key_of(salt: str, drawn: Sequence[Curves], pens: Mapping[str, Pen], *, ours: str | None) -> dict[str, str]:
    """Return the piece of line (SVG) of each method that is drawn in a group of figures, which ``salt`` names."""
    methods = set().union(*drawn)
    return {
        method: key_svg(pen, highlighted=method == ours, salt=salt) for method, pen in pens.items() if method in methods
    }
