"""`make lowest` installs what pyproject.toml promises."""

import pytest

from tests.packaging.lower_bounds import lower_bounds

PROJECT = {
    "name": "mine",
    "dependencies": ["torch>=2.6", "numpy>=1.26"],
    "optional-dependencies": {
        "report": ["jinja2>=3.1"],
        "all": ["mine[report]", "numpy>=1.9", "scipy>=1.11.1,<2"],
        "free": ["types-tqdm"],
    },
}


def test_bounds_of_extras_are_joined_and_the_higher_counts() -> None:
    assert lower_bounds(PROJECT, []) == {"torch": "2.6", "numpy": "1.26"}
    expected = {"torch": "2.6", "numpy": "1.26", "jinja2": "3.1", "scipy": "1.11.1"}
    assert lower_bounds(PROJECT, ["all"]) == expected


def test_a_dependency_without_a_lower_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="types-tqdm must have one lower bound"):
        lower_bounds(PROJECT, ["free"])
