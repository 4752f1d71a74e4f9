import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metaprior.report.measures import decimals, number_text
from metaprior.report.page.content import PageContent
from metaprior.report.page.writing import write_page

Rows = list[dict[str, Any]]


def rows(*values: float | None, name: str = "crps", lead: int | str = "all") -> Rows:
    return [{"method": f"m{i}", "lead_minutes": lead, name: value} for i, value in enumerate(values)]


@pytest.fixture
def page(tmp_path: Path) -> Callable[[Rows], str]:
    def written(scores: Rows) -> str:
        content = PageContent(title="t", story="s", units="K", ours="m0", scores=scores, settings={"seed": 0})
        write_page(tmp_path / "page.html", content)
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    return written


def cells(page: str) -> list[str]:
    return [re.sub(r"<small>.*?</small>|<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", page)]


@pytest.mark.parametrize(
    ("scores", "shown"),
    [
        # The second and the third are equal as far as the table shows.
        (rows(0.4, 0.3, 0.30001, math.nan, None), ["0.400", "best 0.300", "best 0.300", "unknown", "–"]),
        (rows(0.95, 0.88, 0.4, name="coverage_90"), ["95.0", "best 88.0", "40.0"]),
        (rows(-0.2, 0.5, name="skill_persistence"), ["−0.200", "best 0.500"]),
        (rows(2.0, 1.0, name="width_90"), ["2.000", "1.000"]),
    ],
)
def test_best_is_marked_in_words(page: Callable[[Rows], str], scores: Rows, shown: list[str]) -> None:
    assert cells(page(scores)) == shown


def test_tables_by_lead_time_have_one_number_of_digits(page: Callable[[Rows], str]) -> None:
    table = page([*rows(100.0, 110.0, lead=30), *rows(9.876, lead=60)])
    assert cells(table) == ["best 100.0", "9.9", "110.0", "–"]
    assert "<caption>CRPS (K) by lead time</caption>" in table
    start = table.index("<tbody>")
    assert table.index("m0", start) < table.index("this run") < table.index("m1", start)


def test_numbers() -> None:
    assert decimals([0.0589, 0.0, 1e9]) == 4
    assert [decimals([v]) for v in (0.0, 250.0, 85.0, 1.1, 1e-9)] == [3, 0, 1, 3, 6]
    assert [number_text(v, 2) for v in (-1.234, -0.001, 1234567.0)] == ["−1.23", "0.00", "1.23e+06"]
