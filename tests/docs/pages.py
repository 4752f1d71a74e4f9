"""The pages of the documentation, and their Python examples as a reader would run them."""

import contextlib
import re
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch

import metaprior
from metaprior.likelihoods import LIKELIHOODS

ROOT = Path(metaprior.__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted(DOCS.rglob("*.md"))


def name_of(page: Path) -> str:
    """Return the path of a page as its tests are called."""
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    """Return the Markdown of a page."""
    return page.read_text(encoding="utf-8")


def python_blocks(page: Path) -> list[str]:
    """Return the Python examples of a page in their order."""
    return re.findall(r"^```python\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE)


def prose_of(page: Path) -> str:
    """Return a page without its blocks of code."""
    without_fences = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?<=\n\n)(?:    .*\n|\n(?=    ))+", "", without_fences)


@cache
def run_examples(page: Path) -> dict[str, Any]:
    """Return what the names mean after a page's examples have run in an empty folder, one after the other.

    ``files`` are the names of what they have written, and ``warned`` is what they have warned of.
    """
    names: dict[str, Any] = {"__name__": page.stem}
    before = dict(LIKELIHOODS._classes)  # what a page registers is forgotten afterwards
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        torch.manual_seed(0)
        for block in python_blocks(page):
            exec(compile(block, str(page), "exec"), names)
        names["files"] = sorted(path.name for path in Path().iterdir())
    LIKELIHOODS._classes = before
    names["warned"] = [str(one.message) for one in warned if not issubclass(one.category, DeprecationWarning)]
    return names
