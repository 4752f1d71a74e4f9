"""README.ko.md says the same as README.md: its code, headings, links and figures are those of the original."""

import re
from pathlib import Path

import pytest

import metaprior

ROOT = Path(metaprior.__file__).parent.parent
ENGLISH, KOREAN = (
    (ROOT / name).read_text(encoding="utf-8").replace("README.ko.md", "README.md")
    for name in ("README.md", "README.ko.md")
)
BLOCK = re.compile(r"^```.*?^```|(?:^    \S[^\n]*\n)+", re.DOTALL | re.MULTILINE)


def table_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def figures(row: str) -> list[str]:
    """Return the decimal numbers and percentages of a row; small counts may be words in one language."""
    return sorted(re.findall(r"\d*\.\d+|\d+(?= ?%)", re.sub(r"`[^`]*`|\([^)]*\.md[^)]*\)", "", row)))


def test_code_is_the_same() -> None:
    assert BLOCK.findall(KOREAN) == BLOCK.findall(ENGLISH)
    assert len(BLOCK.findall(ENGLISH)) >= 5


def test_headings_have_the_same_levels_in_the_same_order() -> None:
    levels = [re.findall(r"^#+(?= )", BLOCK.sub("", text), re.MULTILINE) for text in (ENGLISH, KOREAN)]
    assert levels[0] == levels[1]


def test_links_lead_to_the_same_pages() -> None:
    english, korean = (sorted(re.findall(r"\]\(([^)]*)\)", text)) for text in (ENGLISH, KOREAN))
    assert korean == english


@pytest.mark.parametrize("number", range(len(table_rows(ENGLISH))))
def test_tables_have_the_same_cells_and_code(number: int) -> None:
    english, korean = table_rows(ENGLISH)[number], table_rows(KOREAN)[number]
    assert korean.count("|") == english.count("|")
    assert sorted(re.findall(r"`[^`]*`", korean)) == sorted(re.findall(r"`[^`]*`", english))
    assert figures(korean) == figures(english)


def test_korean_is_korean() -> None:
    prose = BLOCK.sub("", KOREAN)
    assert len(re.findall("[가-힣]", prose)) > 1000
    assert len(table_rows(KOREAN)) == len(table_rows(ENGLISH))
