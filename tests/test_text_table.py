import math

import pytest

from metaprior.text_table import finite_or_none, four_digits, text_table


def test_columns_in_order_numbers_to_the_right() -> None:
    lines = text_table([{"name": "a", "nll": 1.23456}, {"name": "longer", "error": 2, "nll": math.nan}]).splitlines()
    assert lines == [
        "name        nll  error",
        "------  -------  -----",
        "a         1.235      -",
        "longer  unknown      2",
    ]


def test_what_is_not_known_becomes_none_at_any_depth() -> None:
    assert finite_or_none({"a": [1.0, math.nan], "b": ({"c": math.inf},)}) == {"a": [1.0, None], "b": [{"c": None}]}


@pytest.mark.parametrize(("value", "text"), [(15_777.4, "15,777"), (-2e6, "-2,000,000"), (12.345, "12.35"), (0.0, "0")])
def test_numbers_of_power_have_no_exponent(value: float, text: str) -> None:
    assert four_digits(value) == text
