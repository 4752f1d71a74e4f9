"""Draw the figures of a page: measures by lead time and by shots, and the reliability of intervals."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from metaprior.report.canvas import Pen
from metaprior.report.curves import Curves, curves_of, curves_svg, interval_curves, interval_svgs, key_svg
from metaprior.report.measures import is_known, measure
from metaprior.report.page.content import PageContent
from metaprior.text_table import Row

BY_LEAD = ("skill_persistence", "crps")
BY_SHOTS = ("crps", "rmse")
X_LABELS = {"lead_minutes": "lead time (minutes)", "shots": "shots (examples to adapt to)"}
INTERVAL_CAPTIONS = (
    "Targets inside central intervals. Calibrated intervals lie on the dashed line.",
    "The same, as the distance from the dashed line. Below 0, intervals are too narrow.",
)


class Figures(NamedTuple):
    """Drawings (SVG) by caption, the piece of line (SVG) of each method in them, and labels of missing measures."""

    figures: dict[str, str]
    key: dict[str, str]
    missing: list[str]


def lead_figures(content: PageContent, pens: Mapping[str, Pen]) -> Figures:
    """Return figures of the main measures by lead time."""
    return _measure_figures(content, pens, content.scores, BY_LEAD, "lead_minutes")


def shots_figures(content: PageContent, pens: Mapping[str, Pen]) -> Figures:
    """Return figures of the main measures by the number of shots, where there are at least two such numbers."""
    several = len({row["shots"] for row in content.learning_curve}) > 1
    return _measure_figures(content, pens, content.learning_curve if several else (), BY_SHOTS, "shots")


def reliability_figures(content: PageContent, pens: Mapping[str, Pen]) -> Figures:
    """Return figures of the observed share of targets against the level of central intervals."""
    curves = interval_curves(content.reliability)
    svgs = interval_svgs(curves, pens, ours=content.ours) if curves else ()
    return Figures(dict(zip(INTERVAL_CAPTIONS, svgs, strict=False)), _key("reliability", [curves], pens, content), [])


def _measure_figures(
    content: PageContent, pens: Mapping[str, Pen], rows: Sequence[Row], names: Sequence[str], against: str
) -> Figures:
    """Return the figures of measures against lead times or shots, where there is anything to draw."""
    figures, drawn, missing, x_label = {}, [], [], X_LABELS[against]
    for of in (measure(name, content.units) for name in names):
        curves = curves_of(rows, of, against)
        if not curves:
            missing.append(of.label)
            continue
        better = "Above 0, RMSE is lower than persistence's." if of.better == "higher" else "Lower is better."
        banded = any(is_known(point.low) for point in curves.get(content.ours or "", ()))
        band = f" Band: 95 % interval of {content.ours}." if banded else ""
        caption = f"{of.label} by {x_label}. {better}{band}"
        figures[caption] = curves_svg(curves, pens, ours=content.ours, x_label=x_label, of=of)
        drawn.append(curves)
    return Figures(figures, _key(against, drawn, pens, content), missing)


def _key(salt: str, drawn: Sequence[Curves], pens: Mapping[str, Pen], content: PageContent) -> dict[str, str]:
    methods = set().union(*drawn)
    return {
        method: key_svg(pen, highlighted=method == content.ours, salt=salt)
        for method, pen in pens.items()
        if method in methods
    }
