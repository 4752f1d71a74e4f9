import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

from metaprior.report import canvas
from metaprior.report.learning_curve import learning_curve
from metaprior.report.reliability import reliability_diagram
from tests.report.test_learning_curve import ROWS, evaluation
from tests.report.test_reliability import intervals


def test_figures_are_written_to_new_folders(tmp_path: Path) -> None:
    learning_curve(tmp_path / "new" / "curve.png", evaluation(*ROWS), title="a title")
    reliability_diagram(tmp_path / "new" / "intervals.png", intervals(1.0), title="a title")
    for path in (tmp_path / "new").iterdir():
        assert imread(path).std() > 0.05


def test_the_number_of_methods_is_limited_by_the_pens() -> None:
    pens = canvas.pens_of([str(i) for i in range(12)])
    assert len(set(pens.values())) == 12
    with pytest.raises(ValueError, match="methods must number at most 12, got 13"):
        canvas.pens_of([str(i) for i in range(13)])


def test_without_matplotlib_the_error_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"need matplotlib.*Try: pip install 'metaprior\[report\]'"):
        reliability_diagram(Path("unused.png"), intervals(1.0), title="a title")


def test_svg_is_only_a_drawing() -> None:
    with canvas.plain_text():
        figure = canvas.new_figure(2, 1)
        figure.suptitle("$ <& $")
        drawing = canvas.svg(figure, salt="a")
    assert drawing.startswith("<svg")
    assert drawing.endswith("</svg>")
    assert ">$ &lt;&amp; $</text>" in drawing
    assert "<metadata" not in drawing
    assert "<style" not in drawing
