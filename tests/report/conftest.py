from pathlib import Path

import pytest
from matplotlib.figure import Figure

from metaprior.report import canvas


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collect figures instead of writing them to files."""
    figures: list[Figure] = []

    def write(path: Path, content: bytes) -> None:
        assert (path, content) == (Path("unused.png"), b"")

    monkeypatch.setattr(canvas, "png", lambda figure: figures.append(figure) or b"")
    monkeypatch.setattr(canvas, "write_file", write)
    return figures
