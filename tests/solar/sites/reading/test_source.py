"""Files as they are exported: titles above the header, spreadsheets, tables without rows."""

import pytest

from metaprior.solar.sites import read_power
from tests.solar.sites.tables import text_frame

SITES = {"new": {"capacity": 26000.0, "latitude": 22.3, "longitude": 114.3}}


def titled(tmp_path, titles, **names):
    path = tmp_path / "power.csv"
    path.write_text(titles + text_frame().rename(columns=names).to_csv(index=False, sep=";"))
    return path


def test_lines_above_the_header_are_left_out_and_told(tmp_path):
    table = read_power(titled(tmp_path, "Plant in Munich;\nExported, by the portal\n\n"))
    assert len(table["roof"]) == 2880
    (finding,) = table.findings.of("titles")
    assert finding.message == "the header is line 4; the 3 lines above it were left out, as 'Plant in Munich;'"
    assert (table.findings.first_row, table.findings.row_word) == (5, "line")


def test_a_header_below_titles_is_recognised_by_the_columns_that_are_named(tmp_path):
    path = titled(tmp_path, "Plant in Munich;;\n", time="wann", power_kw="wieviel")
    with pytest.raises(ValueError, match=r"must have different names.*Delete lines above the header"):
        read_power(path)
    table = read_power(path, columns={"time": "wann", "power": "wieviel"}, unit="kW")
    assert len(table["roof"]) == 2880


def test_a_header_that_is_not_recognised_may_be_below_titles(tmp_path):
    with pytest.raises(ValueError, match=r"must have a column of times.*delete lines above the header"):
        read_power(titled(tmp_path, "Plant;in;Munich\n", time="wann"))


@pytest.mark.parametrize("magic", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0"])
def test_spreadsheets_are_to_be_saved_as_csv(tmp_path, magic):
    (tmp_path / "power.csv").write_bytes(magic + bytes(100))
    with pytest.raises(ValueError, match=r"it is a spreadsheet\. Try to save it as CSV"):
        read_power(tmp_path / "power.csv")


def test_an_empty_table_says_how_a_plant_without_power_is_given(tmp_path):
    with pytest.raises(ValueError, match=r"got none\. A plant without power yet is given by sites="):
        read_power(text_frame().iloc[:0])


@pytest.mark.parametrize(
    ("column", "options", "unit", "capacity"),
    [
        ("power", {"unit": "W"}, "W", 26000.0),
        ("power", {"unit": "Wh"}, "W", 26000.0),
        ("power_w", {}, "W", 26000.0),
        ("power", {}, "kW", 26000.0),
        ("power", {"sites": {"new": {"capacity": 5.0, "unit": "MW"}}}, "MW", 5.0),
    ],
)
def test_plants_without_rows_have_the_stated_unit(column, options, unit, capacity):
    table = read_power(text_frame().iloc[:0].rename(columns={"power_kw": column}), **{"sites": SITES, **options})
    assert (table["new"].unit, table["new"].capacity) == (unit, capacity)
    assert bool(table.findings.of("unit unknown")) == (column == "power" and not options)


def test_a_capacity_states_the_unit_of_a_plant_without_rows():
    sites = text_frame().iloc[:1][["site"]].assign(capacity_mw=5.0)
    assert read_power(text_frame().iloc[:0].rename(columns={"power_kw": "power"}), sites=sites)["roof"].unit == "MW"


def test_a_plant_without_power_beside_others_has_their_unit():
    frame = text_frame().rename(columns={"power_kw": "power"})
    assert read_power(frame, unit="W", sites=SITES)["new"].unit == "W"
    assert read_power(frame.rename(columns={"power": "power_mw"}), sites=SITES)["new"].unit == "MW"
