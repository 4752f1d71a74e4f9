"""The examples of the README run as they are written, and the version is the same everywhere."""

import tomllib
from typing import Any

import pytest

from metaprior import MetaLearner
from tests.docs.pages import README, ROOT, python_blocks, run_examples


@pytest.fixture(scope="module")
def readme() -> dict[str, Any]:
    """Return what the names mean after the README's examples."""
    return run_examples(README)


def test_the_snippet_is_short_and_warns_of_nothing(readme: dict[str, Any]) -> None:
    assert len(python_blocks(README)[0].splitlines()) < 25
    assert readme["warned"] == []


def test_adapting_is_worth_something(readme: dict[str, Any]) -> None:
    learners = [one for one in readme.values() if isinstance(one, MetaLearner)]
    assert learners
    for learner in learners:
        assert learner.history_[-1].bad_tasks == 0
        assert learner.history_[-1].validation < learner.history_[-1].validation_before


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert (ROOT / "CHANGELOG.md").read_text().startswith(f"# Changelog\n\n## {version}")
