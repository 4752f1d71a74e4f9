"""The one list of benchmarks: every module or folder of ``benchmarks/`` except this one's folder."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from benchmarks.common.benchmark import Benchmark

FOLDER = Path(__file__).parent.parent


def names() -> list[str]:
    """Return the names of all benchmarks in alphabetical order, without importing them."""
    return sorted({module.name for module in iter_modules([str(FOLDER)])} - {"common", "__main__"})


def find(name: str) -> Benchmark[Any]:
    """Return the benchmark of a name."""
    if name not in names():
        raise ValueError(f"NAME must be one of {', '.join(names())} or all, got {name!r}. Try --list.")
    found: Benchmark[Any] = import_module(f"benchmarks.{name}").BENCHMARK
    return found


def rows() -> list[dict[str, str]]:
    """Return name, description and needs of every benchmark, as ``--list`` and the README show them."""
    return [{"NAME": name, "what": find(name).description, "needs": find(name).needs} for name in names()]
