"""Every Python example of the documentation runs as it is written."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, python_blocks, run_examples

WITH_EXAMPLES = [page for page in PAGES if python_blocks(page)]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_the_examples_of_a_page_run(page: Path) -> None:
    assert run_examples(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_no_python_is_hidden_in_blocks_that_do_not_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "```py\n" not in text
    assert "\n    import metaprior" not in text
    assert "\n    from metaprior" not in text
