"""Tables as they are found: layouts, files, units, plants, and what the user is told."""

import gzip
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from metaprior.solar.sites import read_power
from metaprior.solar.sites.reading.reader import capacity_margin
from tests.solar.sites.tables import START, long_frame, stamps, sunny_power, text_frame

POWER = sunny_power()


def messages(table, kind):
    return [finding.message for finding in table.findings.of(kind)]


def check_is_the_plant(table, power=POWER, name="roof"):
    plant = table[name]
    np.testing.assert_allclose(plant.power, power)
    assert plant.start == START
    assert plant.step == 900


# --- layouts and files ------------------------------------------------------------------------------------------------


def naive(frame):
    return frame.assign(time=frame["time"].dt.tz_localize(None))


OTHER_NAMES = {"site": "plant_id", "time": "Timestamp", "power_kw": "AC Power [kW]"}
LAYOUTS = {
    "long": lambda: long_frame(),
    "wide": lambda: pd.DataFrame({"time": stamps(len(POWER)).tz_localize("UTC"), "roof": POWER, "barn": POWER / 2}),
    "series": lambda: pd.Series(POWER, stamps(len(POWER)).tz_localize("UTC"), name="roof"),
    "indexed": lambda: long_frame().set_index(["site", "time"]),
    "unsorted": lambda: long_frame().sample(frac=1, random_state=0),
    "two sites": lambda: pd.concat([long_frame(), long_frame(POWER / 2, site="barn")]),
    "other names": lambda: long_frame().rename(columns=OTHER_NAMES),
    "mapping": lambda: {name: column.to_numpy() for name, column in text_frame().items()},
    "texts": lambda: text_frame(),
    "epoch": lambda: long_frame().assign(time=stamps(len(POWER)).as_unit("s").asi8),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_give_the_same_plant(layout):
    check_is_the_plant(read_power(LAYOUTS[layout]()))


def columns_of_polars(frame):
    pl = pytest.importorskip("polars")
    columns = {name: frame[name].to_numpy() for name in frame if name != "time"}
    return pl.DataFrame({"time": frame["time"].dt.tz_convert(None).to_numpy("datetime64[us]"), **columns})


POLARS = {
    "aware": lambda frame, pl: frame.with_columns(pl.col("time").dt.replace_time_zone("UTC")),
    "abroad": lambda frame, pl: frame.with_columns(
        pl.col("time").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo")
    ),
    "naive": lambda frame, pl: frame,
    "texts": lambda frame, pl: frame.with_columns(pl.col("time").dt.strftime("%Y-%m-%d %H:%M:%S")),
    "categories": lambda frame, pl: frame.with_columns(pl.col("site").cast(pl.Categorical)),
    "nulls": lambda frame, pl: frame.with_columns(pl.lit(None).cast(pl.Float64).alias("ghi")),
    "lazy": lambda frame, pl: frame.lazy(),
}


@pytest.mark.parametrize("kind", POLARS)
def test_frames_of_polars_give_the_same_plant(kind):
    pl = pytest.importorskip("polars")
    frame = POLARS[kind](columns_of_polars(long_frame()), pl)
    table = read_power(frame, zone=None if kind in ("aware", "abroad") else "UTC")
    check_is_the_plant(table)
    assert (table.zones["roof"] == "+09:00") == (kind == "abroad")


@pytest.mark.parametrize("layout", ["long", "wide", "indexed", "two sites", "texts"])
@pytest.mark.parametrize("writer", ["pandas", "polars"])
def test_parquet_files_give_the_same_plant(layout, writer, tmp_path):
    pytest.importorskip("pyarrow")
    frame = LAYOUTS[layout]()
    if writer == "pandas":
        frame.to_parquet(tmp_path / "power.parquet")
    else:
        pl = pytest.importorskip("polars")
        pl.from_pandas(frame.reset_index() if layout == "indexed" else frame).write_parquet(tmp_path / "power.parquet")
    check_is_the_plant(read_power(tmp_path / "power.parquet"))


def csv_text(frame, **options):
    return frame.to_csv(index=False, **options)


FILES = {
    "power.csv": lambda: csv_text(text_frame()).encode(),
    "power.csv.gz": lambda: gzip.compress(csv_text(text_frame()).encode()),
    "mark.csv": lambda: b"\xef\xbb\xbf" + csv_text(text_frame()).encode(),
    "windows.csv": lambda: csv_text(text_frame()).replace("\n", "\r\n").encode(),
    "semicolons.csv": lambda: csv_text(text_frame(), sep=";").encode(),
    "tabs.tsv": lambda: csv_text(text_frame(), sep="\t").encode(),
    "blank.csv": lambda: csv_text(text_frame()).encode() + b"\n\n\n",
}


@pytest.mark.parametrize("name", FILES)
def test_files_give_the_same_plant(name, tmp_path):
    (tmp_path / name).write_bytes(FILES[name]())
    check_is_the_plant(read_power(tmp_path / name))


def test_a_decimal_comma_is_read_and_told(tmp_path):
    frame = text_frame()
    frame["power_kw"] = [f"{value:.4f}".replace(".", ",") for value in POWER]
    (tmp_path / "power.csv").write_text(frame.to_csv(index=False, sep=";"))
    table = read_power(tmp_path / "power.csv")
    check_is_the_plant(table)
    assert messages(table, "decimal comma") == [f"{len(POWER)} entries of 'power_kw' have a decimal comma"]


def test_text_that_is_not_utf_8_is_read_and_told(tmp_path):
    (tmp_path / "power.csv").write_bytes(csv_text(text_frame(site="Dachfläche")).encode("latin-1"))
    table = read_power(tmp_path / "power.csv")
    check_is_the_plant(table, name="Dachfläche")
    assert messages(table, "encoding") == ["the file is not UTF-8 and was read as Latin-1"]


@pytest.mark.parametrize(("date", "time"), [("%Y-%m-%d", "%H:%M"), ("%Y%m%d", "%H%M"), ("%d.%m.%Y", "%H:%M:%S")])
def test_dates_and_times_of_day_in_two_columns_are_joined(date, time):
    moments = stamps(len(POWER))
    frame = pd.DataFrame({"Date": moments.strftime(date), "Time": moments.strftime(time), "Power": POWER})
    plant = read_power(frame, zone="UTC", unit="kW").plants[0]
    np.testing.assert_allclose(plant.power, POWER)
    assert plant.start == START


@pytest.mark.parametrize("style", ["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M", "%m/%d/%Y %I:%M %p"])
def test_the_order_of_day_and_month_is_found(style):
    frame = text_frame().assign(time=stamps(len(POWER)).strftime(style))
    table = read_power(frame, zone="UTC")
    check_is_the_plant(table)
    assert messages(table, "time format") == [f"stamps were read as {style}"]


def test_parquet_without_pyarrow_names_the_extra(tmp_path):
    (tmp_path / "power.parquet").write_bytes(b"PAR1")
    if find_spec("pyarrow"):
        with pytest.raises(ValueError, match="must be a Parquet file"):
            read_power(tmp_path / "power.parquet")
    else:
        with pytest.raises(ModuleNotFoundError, match=r"need pyarrow.*pip install 'metaprior\[parquet\]'"):
            read_power(tmp_path / "power.parquet")


# --- units and capacity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "factor", "stated", "unit", "told"),
    [
        ("power_w", 1.0, None, "W", "power is in W by the name of its column"),
        ("generation [MW]", 1.0, None, "MW", "power is in MW by the name of its column"),
        ("energy_kwh", 0.25, None, "kW", "energy in kWh per interval by the name of its column became power in kW"),
        ("power", 0.25, "Wh", "W", "energy in Wh per interval as stated became power in W"),
        ("power", 1 / 80, None, "share", "power is a share of the capacity, as its largest values are about"),
        ("power_pct", 1.0, None, "share", "power in % of capacity by the name of its column became a share"),
        ("power", 1.0, None, "kW", "the unit of the power is not stated and is called kW; shares"),
        ("power", 1.0, "mw", "MW", "power is in MW as stated"),
    ],
)
def test_units_are_stated_or_detected_and_told(column, factor, stated, unit, told):
    frame = long_frame().rename(columns={"power_kw": column})
    frame[column] *= factor
    table = read_power(frame, unit=stated)
    plant = table["roof"]
    assert plant.unit == unit
    assert (messages(table, "unit") + messages(table, "unit unknown"))[0].startswith(told)
    expected = POWER / (80 if column == "power" and factor == 1 / 80 else 100 if unit == "share" else 1)
    np.testing.assert_allclose(plant.power, expected)


@pytest.mark.parametrize(
    ("columns", "capacity", "unit"),
    [
        ({"capacity": 90.0}, 90.0, "kW"),
        ({"capacity_mw": 0.09}, 90.0, "kW"),
        ({"nameplate (W)": 90e3}, 90.0, "kW"),
        ({"capacity": 90e3}, 90.0, "kW"),  # only W fits
    ],
)
def test_capacities_are_brought_to_the_unit_of_the_power(columns, capacity, unit):
    plant = read_power(long_frame(**columns))["roof"]
    assert plant.capacity == pytest.approx(capacity)
    assert plant.unit == unit
    assert not plant.capacity_estimated


def test_the_capacity_tells_the_unit_of_the_power():
    frame = long_frame(POWER * 1000, capacity_kw=90.0).rename(columns={"power_kw": "power"})
    plant = read_power(frame)["roof"]
    assert plant.unit == "W"
    assert plant.capacity == 90e3


def test_an_unknown_capacity_is_estimated_and_told():
    table = read_power(long_frame())
    plant = table["roof"]
    assert plant.capacity_estimated
    assert 0.97 * POWER.max() < plant.capacity / capacity_margin(30) <= POWER.max()
    assert messages(table, "capacity estimated")[0].startswith("the capacity is not stated and was estimated")
    assert "2 % above it, as 30 days seldom show the most" in messages(table, "capacity estimated")[0]


# --- plants and what is known about them ------------------------------------------------------------------------------


def test_facts_come_from_columns_or_from_a_second_table(tmp_path):
    inside = long_frame(latitude=47.5, lon=8.5, tilt=30, azimuth=170, capacity_kw=85)
    sites = tmp_path / "sites.csv"
    sites.write_text("site,capacity_kw,lat,lon,tilt,azimuth\nroof,85,47.5,8.5,30,170\n")
    facts = {"roof": {"capacity": 85, "latitude": 47.5, "longitude": 8.5, "tilt": 30, "azimuth": 170}}
    for table in (read_power(inside), read_power(long_frame(), sites=sites), read_power(long_frame(), sites=facts)):
        plant = table["roof"]
        assert (plant.capacity, plant.latitude, plant.longitude, plant.tilt, plant.azimuth) == (85, 47.5, 8.5, 30, 170)


def test_zone_and_unit_of_each_plant_come_from_the_second_table():
    two = pd.concat([naive(long_frame()), naive(long_frame(site="barn"))]).rename(columns={"power_kw": "power"})
    table = read_power(two, sites={"roof": {"zone": "+02:00", "unit": "kW"}, "barn": {"zone": "UTC", "unit": "MW"}})
    assert table["roof"].start == START - np.timedelta64(2, "h")
    assert (table["roof"].unit, table["barn"].unit) == ("kW", "MW")


def test_a_plant_without_rows_is_a_plant_without_power():
    table = read_power(long_frame(), sites={"new": {"capacity": 50, "latitude": 10}})
    assert len(table["new"]) == 0
    assert table["new"].capacity == 50
    assert table["new"].start == table["roof"].end
    assert table.findings.of("no power", "new")


def test_varying_facts_are_told():
    table = read_power(long_frame(capacity_kw=np.where(np.arange(len(POWER)) < 100, 80.0, 85.0)))
    assert table["roof"].capacity == 85
    assert messages(table, "varying fact") == ["capacity varies from 80 to 85, and its median 85 is used"]


def test_other_columns_are_known_in_advance_to_their_last_row():
    frame = long_frame(ghi=np.arange(len(POWER)) * 1.0, base_forecast_mw=POWER / 1000, dc_power=POWER)
    frame.loc[frame.index[-96:], "power_kw"] = np.nan
    table = read_power(frame)
    plant = table["roof"]
    assert len(plant) == len(POWER) - 96
    np.testing.assert_allclose(plant.future["base"], POWER)  # in the unit of the power
    np.testing.assert_array_equal(plant.future["ghi"], np.arange(len(POWER)))
    assert messages(table, "future rows") == ["96 rows without power after the last power are the future"]
    assert messages(table, "unused columns") == ["not used, as measured together with the power: 'dc_power'"]
    assert set(plant.future) == {"base", "ghi"}


def test_weather_of_a_wide_table_is_no_plant():
    wide = pd.DataFrame({"time": stamps(len(POWER)), "roof": POWER, "barn": POWER, "temp_air": 20.0})
    table = read_power(wide, zone="UTC")
    assert [plant.name for plant in table] == ["roof", "barn"]
    assert set(table["barn"].future) == {"temp_air"}


def test_columns_can_be_named():
    frame = long_frame().rename(columns={"power_kw": "PolyPwr", "site": "Where"}).assign(extra=1.0)
    table = read_power(frame, columns={"power": "PolyPwr", "site": "Where"}, unit="kW")
    check_is_the_plant(table)


# --- rows that cannot be used -----------------------------------------------------------------------------------------


def broken(row, column, value):
    frame = text_frame()
    frame.loc[row, column] = value
    return frame


NOT_FINITE = "1 entries of 'power_kw' are not finite numbers, as {}, and are missing"
GAP = "1 of 2,880 intervals have no power, 1 of them by day; the longest gap has 0.25 h"
STRAY = "1 rows are more than two years away from the others and were left out"


@pytest.mark.parametrize(
    ("column", "value", "kind", "told"),
    [
        ("time", "yesterday", "no time", "1 rows have no valid time stamp and were left out"),
        ("time", "", "no time", "1 rows have no valid time stamp and were left out"),
        ("power_kw", "error", "not a number", NOT_FINITE.format("'error'")),
        ("power_kw", np.inf, "not a number", NOT_FINITE.format("'inf'")),
        ("power_kw", "", "gap", GAP),
        ("site", "", "no plant", "1 rows name no plant and were left out"),
        ("time", "2099-05-01 00:00:00Z", "stray date", STRAY),
        (
            *("time", "2025-05-11 09:45:00Z", "conflict"),
            "2 rows have stamps that occur several times with different power",
        ),
    ],
)
def test_rows_that_cannot_be_used_are_named_and_nothing_else_changes(column, value, kind, told):
    table = read_power(broken(1000, column, value))
    (finding,) = table.findings.of(kind)
    assert finding.message == told
    assert 1000 in finding.rows or kind == "gap"
    plant = table["roof"]
    assert np.isnan(plant.usable[1000])
    elsewhere = np.setdiff1d(np.arange(len(POWER)), [1000, 999])
    np.testing.assert_array_equal(plant.usable[elsewhere], POWER[elsewhere])


def test_rows_are_lines_of_a_file(tmp_path):
    (tmp_path / "power.csv").write_text(csv_text(broken(1000, "time", "yesterday")))
    table = read_power(tmp_path / "power.csv")
    assert "were left out (line 1002)" in str(table.findings)


def test_lines_with_too_many_fields_are_named_and_no_other_line_moves(tmp_path):
    lines = csv_text(text_frame()).splitlines()
    lines[500] += ",1,2"
    lines[700] = '"roof' + lines[700][4:]
    (tmp_path / "power.csv").write_text("\n".join(lines))
    table = read_power(tmp_path / "power.csv")
    assert table.findings.lines()[0] == "2 lines do not have 3 fields and were left out (lines 501 and 701)"
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(table["roof"].power)), [499, 699])
    assert not table.findings.of("no time")


def test_repeated_rows_are_used_once():
    frame = pd.concat([long_frame(), long_frame().iloc[100:103]])
    table = read_power(frame)
    check_is_the_plant(table)
    (finding,) = table.findings.of("duplicate")
    assert finding.message == "3 rows repeat a stamp and its power; each is used once"


def test_a_meters_counter_is_refused():
    frame = long_frame(np.cumsum(POWER))
    with pytest.raises(ValueError, match=r"roof: power must rise and fall, got a column that never decreases"):
        read_power(frame)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (lambda: long_frame().drop(columns="time"), r"must have a column of times. Columns are 'site', 'power_kw'"),
        (lambda: long_frame(one=1.0, other=2.0).drop(columns="power_kw"), r"must have a column of power.*Try columns="),
        (lambda: long_frame().iloc[:0], "must have rows below its header, got none"),
        (lambda: text_frame().assign(time="never"), r"must have rows with valid stamps, got none\. .*2880 rows"),
        (lambda: long_frame().iloc[::16], "roof: stamps must be 1 minute to 1 hour apart, got 4 hours"),
        (lambda: long_frame(latitude=95.0), "latitude of roof must be between -90 and 90, got 95"),
        (lambda: long_frame(capacity_kw=-5.0), "capacity of roof must be positive, got -5"),
        (lambda: long_frame().assign(site=""), "the column 'site' must name plants, and it is empty"),
    ],
)
def test_what_cannot_be_understood_raises(table, message):
    with pytest.raises(ValueError, match=message):
        read_power(table())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "horsepower"}, "unit must be W, kW, MW, Wh, kWh, MWh"),
        ({"zone": "Europe/Berln"}, "got 'Europe/Berln'. Try Europe/Berlin"),
        ({"stamps": "middle"}, 'stamps must be "auto", "begin" or "end", got \'middle\''),
        ({"columns": {"power": "nothing"}}, r"columns\['power'\] must be a column of the table, got 'nothing'"),
        ({"columns": {"colour": "time"}}, "columns must be for time, date, site"),
        ({"sites": {"roof": {"unit": "hp"}}}, "unit must be W"),
        ({"sites": pd.DataFrame({"capacity": [1.0]})}, "sites must have a column with the names of plants"),
        ({"sites": pd.DataFrame({"site": ["a", "a"]})}, "sites must have one row for each plant, got several for a"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        read_power(long_frame(), **options)


def test_what_is_no_table_raises(tmp_path):
    with pytest.raises(TypeError, match="power must be a path of a CSV or Parquet file or a data frame"):
        read_power(3)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        read_power(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("\n")
    with pytest.raises(ValueError, match="and it is empty"):
        read_power(tmp_path / "empty.csv")
    (tmp_path / "twice.csv").write_text("time,time\n1,2\n")
    with pytest.raises(ValueError, match="different names in its header, got time, time"):
        read_power(tmp_path / "twice.csv")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"time,power\n" * 1000)[:-20])
    with pytest.raises(ValueError, match=r"cut\.csv\.gz must be a complete gzip file"):
        read_power(tmp_path / "cut.csv.gz")


def test_a_table_can_be_asked_for_its_plants():
    table = read_power(long_frame())
    assert len(table) == 1
    assert [plant.name for plant in table] == ["roof"]
    with pytest.raises(KeyError, match="there is no plant 'barn'; plants are roof"):
        _ = table["barn"]
