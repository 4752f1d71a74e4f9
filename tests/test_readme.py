"""The examples on the pages run as they are written."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior

README = Path(metaprior.__file__).parent.parent / "README.md"


def run_examples(page: Path, most: int | None = None) -> dict[str, Any]:
    """What the names mean after a page's Python examples have run, one after the other."""
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[:most]
    assert examples
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)
    return names


def test_the_example_runs_and_its_comment_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = run_examples(README)
    std = names["std"]
    assert min(std[0], std[-1]) > 2 * std[2]
    assert 0.09 < float(names["forecast"].aleatoric.mean()) < 0.13  # the noise that was put in is 0.1
    assert torch.equal(names["again"].predict(names["x_new"]), names["mean"])


def test_the_meta_gradient_of_the_readme_and_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = run_examples(README)
    assert names["value"].grads.mu.shape == names["theta"].mu.shape
    first = run_examples(README.parent / "docs" / "methods" / "meta-gradients.md", most=1)
    assert first["chosen"].engine.exact
    assert float(first["value"].loss) > 0


def test_every_page_it_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
