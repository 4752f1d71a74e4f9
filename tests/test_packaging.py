"""What is installed describes itself outside of the repository."""

import importlib.util
import re
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest

import metaprior

ROOT = Path(metaprior.__file__).parent.parent


@pytest.fixture(scope="module")
def setup() -> Any:
    spec = importlib.util.spec_from_file_location("setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
def test_links_into_the_repository_become_text(setup: Any, text: str, expected: str) -> None:
    assert setup.without_local_links(text) == expected


def test_the_readme_keeps_its_examples_and_no_local_link(setup: Any) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = setup.without_local_links(text)
    assert not re.search(r"\]\((?!https?:|#)", shown)
    assert re.findall(r"```python\n.*?```", shown, re.DOTALL) == re.findall(r"```python\n.*?```", text, re.DOTALL)


def test_the_installed_description_is_markdown() -> None:
    assert metadata("metaprior")["Description-Content-Type"] == "text/markdown"
