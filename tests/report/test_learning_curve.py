import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from metaprior.evaluation import Evaluation
from metaprior.report.learning_curve import learning_curve
from metaprior.text_table import Row


def row(shots: int | None, steps: int, nll: float, support: float | None = None, **others: float) -> Row:
    support = support if support is not None else 2.0 * (shots or 0)
    measures = {"rmse": 2 * nll, "rmse_se": 0.2, "nll": nll, "nll_se": 0.1, **others}
    return {"shots": shots, "steps": steps, "support": support, "tasks": 3, "failed": 0, **measures}


def evaluation(*rows: Row) -> Evaluation:
    return Evaluation(rows=rows, per_task=[], reliability={}, examples_per_shot=2)


ROWS = (row(0, 0, 4.0), row(None, 1, 2.0, support=10), row(None, 6, 1.0, support=10), row(1, 1, 3.5), row(1, 6, 3.0))


def test_curves_are_the_rows(drawn: list[Figure]) -> None:
    """Left after the most steps, right with the most shots, both starting at the prior; above RMSE, below NLL."""
    learning_curve(Path("unused.png"), evaluation(*ROWS), title="a title")
    above, _, against_shots, against_steps = drawn[0].axes
    for axes, points in (
        (above, [(0, 8.0), (1, 6.0), (5, 2.0)]),
        (against_shots, [(0, 4.0), (1, 3.0), (5, 1.0)]),
        (against_steps, [(0, 4.0), (1, 2.0), (6, 1.0)]),
    ):
        (curve,) = axes.get_lines()
        assert [*zip(*curve.get_data(), strict=True)] == points
    assert above.get_ylabel() == "root mean squared error"
    assert against_shots.get_ylabel() == "negative log density per observation"
    assert against_shots.get_xlabel() == "shots (after 6 steps)"
    assert against_steps.get_xlabel() == "adaptation steps (5 shots)"
    band, hollow = against_shots.collections[:2]
    heights = band.get_paths()[0].vertices[:, 1]  # type: ignore[index]
    assert (heights.min(), heights.max()) == pytest.approx((0.9, 4.1))
    assert hollow.get_offsets().tolist() == [[0, 4.0]]  # type: ignore[union-attr]
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["before adaptation"]


def test_cells_without_any_scored_task_are_left_out(drawn: list[Figure]) -> None:
    failed = {"shots": 2, "steps": 5, "support": math.nan, "tasks": 0, "failed": 3}
    learning_curve(Path("unused.png"), evaluation(row(1, 5, 3.0), failed, row(3, 5, 1.0)), title="t")
    (curve,) = drawn[0].axes[0].get_lines()
    assert list(curve.get_xdata()) == [1, 3]
    assert len(drawn[0].axes) == 2  # with one number of steps there is nothing to draw against steps
    assert not drawn[0].legends


def test_a_diverged_cell_does_not_hide_the_others(drawn: list[Figure]) -> None:
    learning_curve(Path("unused.png"), evaluation(row(1, 5, 1e9), row(2, 5, 2.0)), title="t")
    learning_curve(Path("unused.png"), evaluation(row(1, 5, 3.0, error=0.1), row(2, 5, 2.0, error=0.2)), title="t")
    assert [figure.axes[1].get_yscale() for figure in drawn] == ["log", "linear"]
    assert drawn[1].axes[0].get_ylabel() == "share of wrong labels"


def test_calibration_is_drawn_by_shots_where_it_is_known(drawn: list[Figure]) -> None:
    rows = [row(shots, 5, 1.0, coverage_90=0.8 + shots / 50, coverage_90_se=0.01) for shots in (1, 5)]
    learning_curve(Path("unused.png"), evaluation(*rows), title="t")
    axes = drawn[0].axes[2]
    assert axes.get_ylabel() == "targets inside 90 % interval (%)"
    nominal, curve = axes.get_lines()
    assert list(nominal.get_ydata()) == [90, 90]
    assert list(curve.get_ydata()) == pytest.approx([82, 90])
    learning_curve(
        Path("unused.png"),
        evaluation(row(1, 5, 1.0, error=0.1, ece=0.02), row(2, 5, 1.0, error=0.1, ece=0.01)),
        title="t",
    )
    assert [list(line.get_ydata()) for line in drawn[1].axes[2].get_lines()] == [[0.02, 0.01]]
