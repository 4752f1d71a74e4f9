import math
import re
from typing import Any

from metaprior.report.measures import decimals, measure, number_text
from metaprior.report.page.tables import lead_table, summary_table


def rows(*values: float | None, name: str = "crps", lead: int | str = "all") -> list[dict[str, Any]]:
    return [{"method": f"m{i}", "lead_minutes": lead, name: value} for i, value in enumerate(values)]


def cells(table: str | None) -> list[str]:
    assert table is not None
    return [re.sub(r"<small>.*?</small>|<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", table)]


def test_best_is_marked_in_words() -> None:
    assert cells(summary_table(rows(0.4, 0.3, 0.30001, math.nan, None), "K", None)) == [
        "0.400",
        "best 0.300",
        "best 0.300",  # equal as far as the table shows
        "unknown",
        "–",
    ]
    assert cells(summary_table(rows(0.95, 0.88, 0.4, name="coverage_90"), "K", None)) == ["95.0", "best 88.0", "40.0"]
    assert cells(summary_table(rows(-0.2, 0.5, name="skill_persistence"), "K", None)) == ["−0.200", "best 0.500"]
    assert cells(summary_table(rows(2.0, 1.0, name="width_90"), "K", None)) == ["2.000", "1.000"]
    assert summary_table(rows(1.0, lead=30), "K", None) is None


def test_tables_by_lead_time_have_one_number_of_digits() -> None:
    given = [*rows(100.0, 110.0, lead=30), *rows(9.876, lead=60)]
    table = lead_table(given, measure("crps", "W/m2"), "m0")
    assert cells(table) == ["best 100.0", "9.9", "110.0", "–"]
    assert "<caption>CRPS (W/m2) by lead time</caption>" in table
    assert table.index("m0") < table.index("this run") < table.index("m1")


def test_numbers() -> None:
    assert decimals([0.0589, 0.0, 1e9]) == 4
    assert [decimals([v]) for v in (0.0, 250.0, 85.0, 1.1, 1e-9)] == [3, 0, 1, 3, 6]
    assert [number_text(v, 2) for v in (-1.234, -0.001, 1234567.0)] == ["−1.23", "0.00", "1.23e+06"]
