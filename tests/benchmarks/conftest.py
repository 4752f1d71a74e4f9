import pytest

from benchmarks import budget
from metaprior.training import trainer


@pytest.fixture
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer tasks to try step sizes on, and fewer trial steps: for tests that look at structure."""
    monkeypatch.setattr(trainer, "SEARCH_TASKS", 1)
    monkeypatch.setattr(budget, "TRIAL_STEPS", 3)
