"""The examples on the pages about maps run as they are written."""

import pytest

from tests.test_readme import DOCS, run_examples


@pytest.fixture(scope="module")
def names() -> dict[str, object]:
    return run_examples(DOCS / "solar" / "forecasting.md")


def test_the_page_of_forecasting(names: dict[str, object]) -> None:
    assert names["forecast"].mean.shape == names["unseen"][0].query.y.shape  # type: ignore[attr-defined,index]
    assert names["found"]["adapted"].lead_minutes == (30, 60, 90, 120)  # type: ignore[index]
    assert names["learner"].problem(1).trunk_stages > 0  # type: ignore[attr-defined]  # the default is the head
    assert str(names["train"].stop) < str(names["test"].first)  # type: ignore[attr-defined]
