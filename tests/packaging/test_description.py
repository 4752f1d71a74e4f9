"""What is installed describes itself outside of the repository."""

import re
from importlib.metadata import metadata
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="hatchling is not installed: pip install 'metaprior[dev]'")

from hatch_build import without_local_links

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [limits](docs/limits.md#gpu).", "see limits (docs/limits.md#gpu)."),
        ("[CHANGELOG.md](CHANGELOG.md)", "CHANGELOG.md"),
        (
            "[a paper](https://example.org/x) and [below](#below)",
            "[a paper](https://example.org/x) and [below](#below)",
        ),
        ("before\n\n![a plant](docs/plant.png)\n\n*A caption.*\n\nafter", "before\n\nafter"),
    ],
)
def test_links_into_the_repository_become_text(text: str, expected: str) -> None:
    assert without_local_links(text) == expected


def test_the_readme_keeps_its_examples_and_no_local_link() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = without_local_links(text)
    assert not re.search(r"\]\((?!https?:|#)", shown)
    assert re.findall(r"```python\n.*?```", shown, re.DOTALL) == re.findall(r"```python\n.*?```", text, re.DOTALL)


def test_the_installed_description_is_markdown() -> None:
    assert metadata("metaprior")["Description-Content-Type"] == "text/markdown"
