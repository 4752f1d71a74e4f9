"""The README's example runs as it is written."""

import re
from pathlib import Path

import pytest
import torch

import metaprior

README = Path(metaprior.__file__).parent.parent / "README.md"


def test_the_example_runs_and_its_comment_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    names: dict[str, torch.Tensor] = {}
    exec(example.group(1), names)
    std = names["std"]
    assert min(std[0], std[-1]) > 2 * std[2]
    assert 0.09 < float(names["forecast"].aleatoric.mean()) < 0.13  # the noise that was put in is 0.1
    assert torch.equal(names["again"].predict(names["x_new"]), names["mean"])


def test_every_page_it_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
