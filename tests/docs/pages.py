"""The pages of the documentation, and their Python examples as a reader would run them."""

import contextlib
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

import metaprior

ROOT = Path(metaprior.__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def python_blocks(page: Path) -> list[str]:
    """Return the Python examples of a page in their order."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@cache
def run_examples(page: Path) -> dict[str, Any]:
    """Return what the names mean after a page's examples have run in an empty folder, one after the other."""
    names: dict[str, Any] = {"__name__": page.stem}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        torch.manual_seed(0)
        for block in python_blocks(page):
            exec(compile(block, str(page), "exec"), names)
        names["files"] = sorted(path.name for path in Path().iterdir())
    return names
