"""Tables that something happened to: what happened is told, and everything else is read as before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaprior.solar.sites import read_power
from tests.solar.sites.tables import stamps, sunny_power

DAYS, DAY, HEADER = 14, 96, "site,time,power_kw"
POWER = sunny_power(days=DAYS, seed=3)
TIMES = [str(time).replace(" ", "T") + "Z" for time in stamps(len(POWER))]
CAPACITY = {"roof": {"capacity": 90.0}}


def line(cell, power=None, time=None, site="roof"):
    return f"{site},{TIMES[cell] if time is None else time},{POWER[cell] if power is None else power}"


# Each mutation changes a few lines of the cells that it is given and returns them by cell.


def removed(cells):
    return {cell: [] for cell in cells}


def repeated(cells):
    return {cell: [line(cell)] * 2 for cell in cells}


def contradicted(cells):
    return {cell: [line(cell), line(cell, POWER[cell] + 7)] for cell in cells}


def spoken(cells):
    return {cell: [line(cell, "offline")] for cell in cells}


def emptied(cells):
    return {cell: [line(cell, "")] for cell in cells}


def negated(cells):
    return {cell: [line(cell, -40.5)] for cell in cells}


def exploded(cells):
    return {cell: [line(cell, 4.2e6)] for cell in cells}


def switched_off(cells):
    return {cell: [line(cell, 0.0)] for cell in cells}


def frozen(cells):
    return {cell: [line(cell, 0.7 * POWER[cells[0]] + 0.0001)] for cell in cells}


def undated(cells):
    return {cell: [line(cell, time="2025-13-45 99:99")] for cell in cells}


def nameless(cells):
    return {cell: [line(cell, site="")] for cell in cells}


def lengthened(cells):
    return {cell: [line(cell) + ",7,8"] for cell in cells}


def quoted(cells):
    return {cell: ['"' + line(cell)] for cell in cells}


def infinite(cells):
    return {cell: [line(cell, "inf")] for cell in cells}


def far_away(cells):
    return {cell: [line(cell, time=TIMES[cell].replace("2025", "2052"))] for cell in cells}


def blank(cells):
    return {cell: [""] for cell in cells}


MUTATIONS = {
    removed: {"gap"},
    repeated: {"duplicate"},
    contradicted: {"conflict"},
    spoken: {"not a number"},
    emptied: {"gap"},
    negated: {"negative"},
    exploded: {"spike"},
    switched_off: {"outage", "dead day"},
    frozen: {"stuck", "curtailment"},
    undated: {"no time"},
    nameless: {"no plant"},
    lengthened: {"bad lines"},
    quoted: {"bad lines"},
    infinite: {"not a number"},
    far_away: {"stray date"},
    blank: {"no plant"},
}
"""Mutations of rows, and the kinds of findings of which one must tell of them."""

ORDERS = {
    "as it is": lambda lines: lines,
    "backwards": lambda lines: lines[::-1],
    "rotated": lambda lines: lines[500:] + lines[:500],
}

CHANGES = st.lists(
    st.tuples(st.sampled_from(list(MUTATIONS)), st.integers(1, DAYS - 2), st.integers(30, 60), st.integers(5, 9)),
    min_size=1,
    max_size=4,
    unique_by=lambda change: change[1],
)


def check_mutated(folder, changes, order):
    lines = {cell: [line(cell)] for cell in range(len(POWER))}
    touched = set()
    for mutation, day, first, count in changes:
        cells = [day * DAY + first + i for i in range(count)]
        lines |= mutation(cells)
        touched |= set(cells)
    path = folder / "power.csv"
    body = ORDERS[order]([text for texts in lines.values() for text in texts])
    path.write_text("\n".join([HEADER, *body]) + "\n")
    table = read_power(path, sites=CAPACITY)
    plant = table["roof"]
    for mutation, *_ in changes:
        assert MUTATIONS[mutation] & table.findings.kinds(), mutation.__name__
    elsewhere = np.setdiff1d(np.arange(len(POWER)), list(touched))
    np.testing.assert_array_equal(plant.power[elsewhere], POWER[elsewhere])
    # The reading beside a flat stretch may lie at its level by itself, and is then doubted with it.
    beside = [
        day * DAY + first + i for mutation, day, first, count in changes if mutation is frozen for i in (-1, count)
    ]
    assert not plant.doubt[np.setdiff1d(elsewhere, beside)].any()
    used = np.array([cell for mutation, day, first, count in changes if mutation is not repeated
                     for cell in range(day * DAY + first, day * DAY + first + count)], int)  # fmt: skip
    wrong = np.isfinite(plant.usable[used]) & (plant.usable[used] != POWER[used])
    assert not wrong.any()


@given(CHANGES, st.sampled_from(list(ORDERS)))
@settings(max_examples=15)
def test_what_happened_to_rows_is_told_and_nothing_else_changes(tmp_path_factory, changes, order):
    check_mutated(tmp_path_factory.mktemp("table"), changes, order)


@pytest.mark.slow
@given(CHANGES, st.sampled_from(list(ORDERS)))
@settings(max_examples=200)
def test_what_happened_to_rows_is_told_in_200_tables(tmp_path_factory, changes, order):
    check_mutated(tmp_path_factory.mktemp("table"), changes, order)


TEXT = "\n".join([HEADER, *(line(cell) for cell in range(3 * DAY))])


def check_bytes(folder, places, replacement):
    """A file with some characters replaced gives plants with findings, or an error that says what to try."""
    text = bytearray(TEXT.encode())
    for place in places:
        position = place % len(text)
        text[position : position + 1] = replacement
    path = folder / "power.csv"
    path.write_bytes(bytes(text))
    try:
        table = read_power(path, sites={"roof": {"capacity": 90.0}})
        assert len(table.findings) >= 1
        assert all(len(plant) < 100 * 366 * DAY for plant in table)
        message = ""
    except ValueError as error:
        message = str(error)
    assert not message or " must " in message
    assert len(message) < 600


BYTES = st.sampled_from([b"", b",", b'"', b"\n", b"x", b"\xff", b"-", b"9", b";", b"\x00", b"Z"])


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6), BYTES)
@settings(max_examples=30)
def test_replaced_characters_give_findings_or_an_error_that_says_what_is_wrong(tmp_path_factory, places, replacement):
    check_bytes(tmp_path_factory.mktemp("bytes"), places, replacement)


@pytest.mark.slow
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6), BYTES)
@settings(max_examples=500)
def test_replaced_characters_in_500_tables(tmp_path_factory, places, replacement):
    check_bytes(tmp_path_factory.mktemp("bytes"), places, replacement)
