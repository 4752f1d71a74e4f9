from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from metaprior.forecasts import CategoricalForecast, GaussianForecast
from metaprior.report.reliability import reliability_diagram
from metaprior.scores import IntervalReliability, Reliability


def counted(confidence: float, right: int, wrong: int, into: Reliability | None = None) -> Reliability:
    """Count labels of two classes, all forecast with the same confidence."""
    into = into or Reliability(bins=10)
    logits = torch.tensor([confidence, 1 - confidence], dtype=torch.float64).log()
    labels = torch.tensor([0] * right + [1] * wrong)
    into.add(CategoricalForecast(logits.expand(2, len(labels), 2)), labels)
    return into


def intervals(scale: float) -> IntervalReliability:
    counts = IntervalReliability()
    levels = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    targets = torch.special.ndtri(levels)  # as evenly as a standard normal can be
    counts.add(GaussianForecast(torch.zeros(2, 1000).double(), torch.full((2, 1000), scale).double()), targets)
    return counts


def test_bars_are_accuracy_and_gap(drawn: list[Figure]) -> None:
    """75 % sure and right in half of the cases; 65 % sure and right in four of five."""
    reliability_diagram(Path("unused.png"), counted(0.65, 8, 2, counted(0.75, 5, 5)), title="a title")
    accuracy, share = drawn[0].axes
    bars = [(bar.get_x(), bar.get_y(), bar.get_height()) for bar in accuracy.patches if isinstance(bar, Rectangle)]
    assert bars == [
        pytest.approx((0.7, 0.5, 0.25)),  # too confident
        pytest.approx((0.6, 0.8, -0.15)),  # not confident enough
        pytest.approx((0.6, 0.0, 0.8)),
        pytest.approx((0.7, 0.0, 0.5)),
    ]
    assert [bar.get_height() for bar in share.patches if isinstance(bar, Rectangle)] == [0.5, 0.5]
    assert accuracy.get_title() == "ECE 0.200"


def test_the_legend_shows_also_what_no_bin_has(drawn: list[Figure]) -> None:
    reliability_diagram(Path("unused.png"), counted(0.75, 5, 5), title="a title")
    too_much, too_little, _ = (key for key in drawn[0].legends[0].get_patches())
    assert too_much.get_hatch() == "///"
    assert too_little.get_hatch() == "\\" * 3
    assert too_little.get_facecolor()[3] == 0  # type: ignore[index]


def test_full_confidence_is_drawn_with_the_bin_below(drawn: list[Figure]) -> None:
    reliability_diagram(Path("unused.png"), counted(1.0, 3, 1, counted(0.95, 4, 0)), title="a title")
    reliability_diagram(Path("unused.png"), counted(1.0, 3, 1), title="a title")
    together, alone = (figure.axes[0].patches for figure in drawn)
    assert [bar.get_height() for bar in together if isinstance(bar, Rectangle)] == pytest.approx([0.1, 0.875])
    assert [bar.get_height() for bar in alone if isinstance(bar, Rectangle)] == pytest.approx([0.25, 0.75])
    assert [bar.get_width() for bar in alone if isinstance(bar, Rectangle)] == pytest.approx([0.1, 0.1])


def test_intervals_of_the_true_distribution_lie_on_the_diagonal(drawn: list[Figure]) -> None:
    for scale in (1.0, 0.5):
        reliability_diagram(Path("unused.png"), intervals(scale), title="a title")
    right, narrow = (figure.axes[0].get_lines()[1] for figure in drawn)
    levels, observed = right.get_data()
    assert levels[8] == 90
    assert observed == pytest.approx(levels, abs=0.1)
    half = 2 * torch.special.ndtr(0.5 * torch.special.ndtri(torch.tensor(0.95).double())) - 1  # of level 0.9
    assert narrow.get_ydata()[8] == pytest.approx(100 * half.item(), abs=0.2)  # type: ignore[index]


def test_intervals_of_several_numbers_of_shots_have_a_line_each(drawn: list[Figure]) -> None:
    reliability_diagram(Path("unused.png"), {"0 shots": intervals(0.5), "5 shots": intervals(1.0)}, title="a title")
    (axes,) = drawn[0].axes
    assert len(axes.get_lines()) == 3
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["0 shots", "5 shots"]


@pytest.mark.parametrize("counts", [Reliability(), IntervalReliability()], ids=["classes", "intervals"])
def test_empty_counts_are_invalid(counts: Reliability | IntervalReliability) -> None:
    with pytest.raises(ValueError, match=r"must hold at least one forecast, got none. Call add\(...\) first"):
        reliability_diagram(Path("unused.png"), counts, title="a title")
