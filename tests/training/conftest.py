import pytest

from metaprior.adaptation import descent


@pytest.fixture(autouse=True)
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """One task is enough to see that step sizes are searched, and eight take most of a test's time."""
    monkeypatch.setattr(descent, "SEARCH_TASKS", 1)
