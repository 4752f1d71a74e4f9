"""Numbers as texts: which sign separates decimals and which one thousands, as the entries of a column show.

In "1.065,87" the last sign separates decimals. A sign that other than three digits follow, or that follows a leading
zero, does so, too, and the other sign then separates thousands. What remains is ambiguous: "1.065" beside "99".
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from metaprior.solar.sites.findings import Rows

Bools = NDArray[np.bool_]

EMPTY = ("", "nan", "na", "n/a", "null", "none", "nat", "-")
"""Texts that stand for a missing number, in lower case."""
ENOUGH = 20
"""Entries with three digits after a sign, all of them, from which it separates thousands where others are integers.

Who writes 99.000 as 99 writes 1.500 as 1.5: of decimals, one in ten would have fewer digits.
"""
SPACES = r"(?<=\d)[ '\u2019\u00a0\u202f](?=\d{3}(?!\d))"
"""Spaces and apostrophes between thousands, which cannot be anything else."""
SIGNS = {".": ",", ",": "."}
"""Each sign that separates decimals or thousands, and the other one."""


@dataclass(frozen=True)
class Numbers:
    """A column of numbers.

    Args:
        values: The numbers, NaN where an entry is empty or no finite number.
        bad: Rows whose entry is neither a number nor empty.
        commas: Rows with a decimal comma.
        thousands: Rows with a sign between thousands.
        ambiguous: Rows whose sign may be between thousands, and was taken for that of decimals.
    """

    values: NDArray[np.float64]
    bad: Rows
    commas: Rows
    thousands: Rows
    ambiguous: Rows


def numbers(column: pd.Series, *, decimal_comma: bool) -> Numbers:
    """Return a column of numbers or texts as numbers.

    Args:
        column: The column.
        decimal_comma: Whether "1,5" may be a number, as it is in files that are not separated by commas.
    """
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        values = column.to_numpy(np.float64, na_value=np.nan)
        nothing = np.zeros(len(values), bool)
        return _numbers(values, np.isinf(values), nothing, nothing, nothing)
    written = column.astype(object).where(column.notna(), "").astype(str).str.strip()
    empty = written.str.lower().isin(EMPTY).to_numpy(bool)
    text = written.str.replace(SPACES, "", regex=True)
    values = pd.to_numeric(text, errors="coerce").to_numpy(np.float64, copy=True)
    spoken = [isinstance(entry, str) for entry in column.astype(object)]  # numbers among texts are what they are
    grouped, ambiguous = _thousands(text.where(spoken, ""), decimal_comma=decimal_comma)
    for sign, rows in grouped.items():
        plain = text[rows].str.replace(sign, "", regex=False).str.replace(SIGNS[sign], ".", regex=False)
        values[rows] = plain.astype(float)
    commas = np.isnan(values) & _match(text, r"[+-]?\d+,\d+") & (decimal_comma or grouped["."].any())
    values[commas] = text[commas].str.replace(",", ".").astype(float)
    bad = ~np.isfinite(values) & ~empty
    commas |= grouped["."] & text.str.contains(",", regex=False).to_numpy(bool)
    separated = grouped["."] | grouped[","] | ((text != written).to_numpy(bool) & np.isfinite(values))
    return _numbers(values, bad, commas, separated, ambiguous)


def _numbers(values: NDArray[np.float64], bad: Bools, commas: Bools, thousands: Bools, ambiguous: Bools) -> Numbers:
    rows = map(np.flatnonzero, (bad, commas, thousands, ambiguous))
    return Numbers(np.where(np.isfinite(values), values, np.nan), *rows)


def _thousands(text: pd.Series, *, decimal_comma: bool) -> tuple[dict[str, Bools], Bools]:
    """Return which entries have thousands separated by each sign, and which may have."""
    several, lone, decimal = {}, {}, {}
    for sign, other in SIGNS.items():
        this, that = re.escape(sign), re.escape(other)
        several[sign] = _match(
            text, rf"[+-]?\d{{1,3}}(?:{this}\d{{3}})+{that}\d+|[+-]?\d{{1,3}}(?:{this}\d{{3}}){{2,}}"
        )
        lone[sign] = _match(text, rf"[+-]?[1-9]\d{{0,2}}{this}\d{{3}}")
        decimal[sign] = _match(text, rf"[+-]?\d*{this}\d+") & ~lone[sign]
    integers = bool(_match(text, r"[+-]?[1-9]\d{0,2}").any())
    grouped, ambiguous = {}, np.zeros(len(text), bool)
    for sign, other in SIGNS.items():
        decimals = decimal[sign].any() or several[other].any()
        certain = several[sign].any() or decimal[other].any() or (sign == "," and not decimal_comma)
        likely = integers and lone[sign].sum() >= ENOUGH
        separates = not decimals and bool(certain or likely)
        grouped[sign] = several[sign] | (lone[sign] & separates)
        if integers and not separates and not decimals:
            ambiguous |= lone[sign]
    return grouped, ambiguous


def _match(text: pd.Series, pattern: str) -> Bools:
    return np.asarray(text.str.fullmatch(pattern).to_numpy(bool))


def may_have_thousands(values: NDArray[Any]) -> bool:
    """Return whether floats that were read with a decimal point may have been written as thousands ("1.065").

    There are integers, and everything else has at most three decimals and lies between 1 and 1000.
    """
    values = np.abs(values[np.isfinite(values)])
    whole = values % 1 == 0
    broken = values[~whole]
    if not len(broken) or not (values[whole] > 0).any():
        return False
    steps = 1000 * broken
    return bool((broken > 1).all() and values.max() < 1000 and (np.abs(steps - np.round(steps)) < 1e-6).all())
