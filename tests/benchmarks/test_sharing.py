from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from benchmarks import sharing as module
from benchmarks.sharing import SIDESTEP, sharing
from metaprior.text_table import Row

METHODS = {"alone": 8.0, "together": 4.0}


def row(method: str, tasks: int, observations: int, on: str = "here", scored: int = 5) -> Row:
    mse = METHODS.get(method, 1.0) / observations / tasks
    about = {"method": method, "tasks": tasks, "observations": observations, "on": on, "scored": scored}
    return {**about, "mse": mse, "mse_se": 0.1 * mse}


ROWS = [row(m, t, n, on) for m in METHODS for t in (3, 50) for n in (20, 5) for on in ("here", "there")]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures, instead of files."""
    figures: list[Figure] = []
    monkeypatch.setattr(module, "save", lambda figure, path: figures.append(figure))
    return figures


def test_writes_a_picture_that_is_not_blank(tmp_path: Path) -> None:
    sharing(tmp_path / "new" / "sharing.png", ROWS, floor=0.01, title="a title")
    assert imread(tmp_path / "new" / "sharing.png").std() > 0.05


def test_lines_are_the_rows_in_the_order_of_data(drawn: list[Figure]) -> None:
    sharing(Path("unused.png"), ROWS, title="a title")
    here, there = drawn[0].axes
    assert [axes.get_title() for axes in (here, there)] == ["here", "there"]
    assert here.get_xscale() == here.get_yscale() == "log"
    few, many, *_ = [container.lines[0] for container in here.containers]  # type: ignore[attr-defined]
    for line, tasks in ((few, 3), (many, 50)):
        assert list(line.get_xdata()) == pytest.approx([5 / SIDESTEP**0.5, 20 / SIDESTEP**0.5])
        assert list(line.get_ydata()) == pytest.approx([8 / 5 / tasks, 8 / 20 / tasks])
    assert few.get_color() == many.get_color()
    assert few.get_linestyle() != many.get_linestyle()
    ends = here.containers[0].lines[2][0].get_segments()  # type: ignore[attr-defined]
    assert ends[0][:, 1] == pytest.approx([0.9 * 8 / 15, 1.1 * 8 / 15])


def test_a_method_by_itself_has_one_line_over_the_most_tasks(drawn: list[Figure]) -> None:
    sharing(Path("unused.png"), ROWS, by_themselves=["alone"], title="a title")
    lines = [container.lines[0] for container in drawn[0].axes[0].containers]  # type: ignore[attr-defined]
    assert len(lines) == 3
    assert lines[0].get_ydata()[0] == pytest.approx(8 / 5 / 50)


def test_the_legend_has_methods_above_and_numbers_of_tasks_below(drawn: list[Figure]) -> None:
    sharing(Path("unused.png"), [*ROWS, row("third", 3, 5), row("third", 50, 5)], title="a title")
    texts = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert texts == ["alone", "3 tasks", "together", "50 tasks", "third", " "]  # column by column


def test_rows_of_which_nothing_was_scored_are_left_out(drawn: list[Figure]) -> None:
    sharing(Path("unused.png"), [row("alone", 3, 5), row("alone", 3, 20, scored=0)], title="a title")
    (line,) = [container.lines[0] for container in drawn[0].axes[0].containers]  # type: ignore[attr-defined]
    assert len(line.get_xdata()) == 1


def test_more_than_a_picture_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 12, got 13"):
        sharing(Path("unused.png"), [row(str(i), 3, 5) for i in range(13)], title="a title")
    with pytest.raises(ValueError, match=r"at most 4 numbers of tasks, got \[1, 2, 3, 4, 5\]"):
        sharing(Path("unused.png"), [row("alone", i + 1, 5) for i in range(5)], title="a title")
