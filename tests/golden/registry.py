"""All cases by name, and how one is run."""

import importlib
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tests.golden.digest import FLOAT32, FLOAT64, Entries

MODULES = (
    "bayes_by_backprop",
    "meta_learner",
    "own_loop",
    "engines",
    "hierarchy",
    "forecasts",
    "tasks",
    "runs",
    "solar",
    "solar_parts",
    "ranks",
)
"""Of the ``cases_*.py``."""
Run = Callable[[Path], Entries]


@dataclass(frozen=True)
class Case:
    """A small deterministic run; ``tolerance`` is ``FLOAT64``, or ``FLOAT32`` where it computes in float32."""

    run: Run
    tolerance: float


CASES: dict[str, Case] = {}


def case(name: str, tolerance: float = FLOAT64) -> Callable[[Run], Run]:
    """Register a function of an empty folder that returns entries by name."""

    def register(run: Run) -> Run:
        if name in CASES:
            raise ValueError(f"two cases are called {name!r}")
        CASES[name] = Case(run, tolerance)
        return run

    return register


def all_cases() -> dict[str, Case]:
    """Return all cases by name."""
    for module in MODULES:
        importlib.import_module(f"tests.golden.cases_{module}")
    return CASES


def entries_of(case: Case, folder: Path) -> Entries:
    """Run a case on one thread, with fresh global generators, and return its entries."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case.run(folder)


__all__ = ["CASES", "FLOAT32", "FLOAT64", "Case", "Run", "all_cases", "case", "entries_of"]
