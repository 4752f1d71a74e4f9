from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from benchmarks.common.result import Row
from benchmarks.hierarchy import picture
from benchmarks.hierarchy.picture import SIDESTEP, draw

METHODS = {"alone": 8.0, "together": 4.0}


def row(method: str, tasks: int, observations: int, on: str) -> Row:
    mse = METHODS[method] / observations / tasks
    about = {"method": method, "tasks": tasks, "observations": observations, "on": on, "scored": 5}
    return {**about, "mse": mse, "mse_se": 0.1 * mse}


ROWS = [row(m, t, n, on) for m in METHODS for t in (3, 50) for n in (20, 5) for on in ("here", "there")]


def test_writes_a_picture_that_is_not_blank(tmp_path: Path) -> None:
    draw(tmp_path / "new" / "picture.png", ROWS, 0.01)
    assert imread(tmp_path / "new" / "picture.png").std() > 0.05


def test_lines_are_the_rows_by_rising_data_and_tasks_alone_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(picture, "save", lambda figure, path: figures.append(figure))
    draw(Path("unused.png"), ROWS, 0.01)
    here, there = figures[0].axes
    assert [axes.get_title() for axes in (here, there)] == ["here", "there"]
    alone, few, many = [container.lines[0] for container in here.containers]  # type: ignore[attr-defined]
    for line, tasks, error, aside in ((alone, 50, 8, -0.5), (few, 3, 4, 0.5), (many, 50, 4, 0.5)):
        assert list(line.get_xdata()) == pytest.approx([5 * SIDESTEP**aside, 20 * SIDESTEP**aside])
        assert list(line.get_ydata()) == pytest.approx([error / 5 / tasks, error / 20 / tasks])
    assert alone.get_color() != few.get_color() == many.get_color()
    assert few.get_linestyle() != many.get_linestyle() == alone.get_linestyle()
    ends = here.containers[0].lines[2][0].get_segments()  # type: ignore[attr-defined]
    assert ends[0][:, 1] == pytest.approx([0.9 * 8 / 250, 1.1 * 8 / 250])
    texts = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert texts == ["alone", "together", "3 tasks", "50 tasks"]
