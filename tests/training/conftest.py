import pytest

from metaprior.training import trainer


@pytest.fixture(autouse=True)
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """One task is enough to see that step sizes are searched, and eight take most of a test's time."""
    monkeypatch.setattr(trainer, "SEARCH_TASKS", 1)
