"""Pages are in the navigation, and links lead to a page of the site and to a heading of it."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, README, ROOT, name_of, prose_of, text_of

OUTSIDE = [README, ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\]\(([^)\s:#]*)(?:#([^)\s]+))?\)")


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: of its headings, as they are made of their text, and of names of the reference."""
    if page.suffix != ".md":
        return set()
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text_of(page), flags=re.S | re.M), re.MULTILINE)
    names = re.findall(r"^::: (\S+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings} | set(names)


@pytest.mark.parametrize("page", [*OUTSIDE, *PAGES], ids=name_of)
def test_links_lead_to_a_page_and_to_a_heading_of_it(page: Path) -> None:
    links = [
        ((page.parent / path).resolve() if path else page, anchor) for path, anchor in LINK.findall(prose_of(page))
    ]
    assert [str(path) for path, _ in links if not path.exists()] == []
    assert [(name_of(path), anchor) for path, anchor in links if anchor and anchor not in anchors(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_the_site_stay_on_it(page: Path) -> None:
    targets = [(page.parent / path).resolve() for path, _ in LINK.findall(prose_of(page)) if path]
    assert [str(path) for path in targets if not path.is_relative_to(DOCS)] == []


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"([\w\-/]+\.md)$", text_of(ROOT / "mkdocs.yml").split("\nnav:\n")[1], re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


def test_the_glossary_is_in_order_and_every_term_says_where_it_is_used() -> None:
    _, *entries = re.split(r"^### ", text_of(DOCS / "glossary.md"), flags=re.MULTILINE)
    terms = [entry.partition("\n")[0] for entry in entries]
    assert terms == sorted(set(terms), key=str.lower)
    assert [term for term, entry in zip(terms, entries, strict=True) if not LINK.search(entry)] == []
