"""Numbers as texts: decimal signs, signs between thousands, and what stays ambiguous."""

import numpy as np
import pandas as pd
import pytest

from metaprior.solar.sites import read_power
from metaprior.solar.sites.reading.number_texts import ENOUGH, may_have_thousands, numbers
from tests.solar.sites.tables import stamps, sunny_power, text_frame


@pytest.mark.parametrize(
    ("entries", "values", "commas", "thousands", "ambiguous"),
    [
        (["1.065,87", "99", "1.065"], [1065.87, 99, 1065], 1, 2, 0),
        (["0,5", "1.065", "1.000.000"], [0.5, 1065, 1e6], 1, 2, 0),
        (["1,065.87", "99", "1,065"], [1065.87, 99, 1065], 0, 2, 0),
        (["1'065.8", "12 345", "1\u00a0000,5"], [1065.8, 12345, 1000.5], 1, 3, 0),
        (["0.5", "1.065", "3"], [0.5, 1.065, 3], 0, 0, 0),
        (["0,500", "1,065", "3,000"], [0.5, 1.065, 3], 3, 0, 0),
        (["1.5", "2,5"], [1.5, 2.5], 1, 0, 0),
        (["1.065", "99"], [1.065, 99], 0, 0, 1),
        (["1,065", "99"], [1.065, 99], 1, 0, 1),
        (["1.065"] * ENOUGH + ["99"], [1065] * ENOUGH + [99], 0, ENOUGH, 0),
        (["1.065"] * ENOUGH, [1.065] * ENOUGH, 0, 0, 0),
        ([1.065] * ENOUGH + [99], [1.065] * ENOUGH + [99], 0, 0, 0),
        (["-1.065,5", "offline", "-"], [-1065.5, np.nan, np.nan], 1, 1, 0),
    ],
)
def test_the_entries_of_a_column_show_what_their_signs_separate(entries, values, commas, thousands, ambiguous):
    found = numbers(pd.Series(entries, dtype=object), decimal_comma=True)
    np.testing.assert_allclose(found.values, values)
    assert (len(found.commas), len(found.thousands), len(found.ambiguous)) == (commas, thousands, ambiguous)


def test_a_comma_is_no_decimal_sign_where_commas_separate_fields():
    found = numbers(pd.Series(["1,065", "99", "2,5"]), decimal_comma=False)
    assert list(found.bad) == [0, 2]  # "2,5" shows that the comma separates decimals, which cannot be
    np.testing.assert_array_equal(numbers(pd.Series(["1,065", "99"]), decimal_comma=False).values, [1065, 99])


def test_floats_that_may_have_been_thousands_are_recognised():
    assert may_have_thousands(np.array([0, 99, 1.065, np.nan]))
    for others in ([1.065, 2.5], [99, 0.5], [99, 1.0655], [99, 1065, 1.065], [99, 5]):
        assert not may_have_thousands(np.array(others))


def german(power: np.ndarray, decimals: int) -> list[str]:
    return [f"{value:,.{decimals}f}".translate(str.maketrans(".,", ",.")) for value in power]


@pytest.mark.parametrize("decimals", [2, 0])
def test_files_with_separated_thousands_are_read_and_told(tmp_path, decimals):
    power = 40 * sunny_power()
    frame = text_frame().assign(power_kw=german(power, decimals))
    (tmp_path / "power.csv").write_text(frame.to_csv(index=False, sep=";"))
    table = read_power(tmp_path / "power.csv")
    np.testing.assert_allclose(table["roof"].power, np.round(power, decimals), atol=1)
    (finding,) = table.findings.of("thousands")
    assert finding.message.startswith(
        f"{(np.round(power, decimals) >= 1000).sum()} entries of 'power_kw' have thousands"
    )
    assert not table.findings.of("not a number")


def test_a_few_numbers_that_may_be_thousands_are_told_first(tmp_path):
    power = np.where(np.arange(96) == 48, 1065, np.minimum(sunny_power(days=1), 99).round())
    rows = zip(stamps(96).strftime("%Y-%m-%d %H:%M"), german(power, 0), strict=True)
    (tmp_path / "roof.csv").write_text("\n".join(["time;kW", *map(";".join, rows)]))
    table = read_power(tmp_path / "roof.csv", zone="UTC")
    assert table["roof"].power[48] == 1.065
    assert table.findings.lines()[0].startswith(
        "1 entries of 'kW' may have decimals or separated thousands, as '1.065'"
    )
