from pathlib import Path

import pytest

from benchmarks.common import budget
from metaprior.adaptation import descent
from tests.benchmarks.made_up_data import write_all


@pytest.fixture
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try step sizes on fewer tasks, and time fewer steps, in tests that look at structure."""
    monkeypatch.setattr(descent, "SEARCH_TASKS", 1)
    monkeypatch.setattr(budget, "TRIAL_STEPS", 3)


@pytest.fixture(scope="session")
def made_up_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with small files in the formats of all public data sets."""
    return write_all(tmp_path_factory.mktemp("data"))
