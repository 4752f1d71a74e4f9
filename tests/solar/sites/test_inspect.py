"""``metaprior inspect``, and the page about tables."""

import re
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from metaprior import cli
from metaprior.solar import sites
from metaprior.solar.sites import DEFECTS
from tests.solar.sites.tables import sunny_power, text_frame

PAGE = (Path(__file__).parents[3] / "docs" / "solar" / "sites" / "data.md").read_text()


def run(*arguments):
    return CliRunner().invoke(cli.app, ["inspect", *map(str, arguments)])


@pytest.fixture
def power_csv(tmp_path):
    power = sunny_power()
    power[9 * 96 + 44 : 9 * 96 + 56] = 0
    path = tmp_path / "power.csv"
    text_frame(power).to_csv(path, index=False)
    return path


def test_findings_counts_and_a_picture(power_csv, tmp_path):
    picture, rows = tmp_path / "picture.png", tmp_path / "rows.csv"
    result = run(power_csv, "--out", picture, "--rows", rows)
    assert result.exit_code == 0, result.output
    assert "- roof: 12 intervals (3 h) of outages, with zero power by day" in result.output
    assert re.search(r"^roof .* 2025-05-01 .* kW .* 2880 +0 +12$", result.output, re.MULTILINE)
    assert f"written: {picture}\n" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert rows.read_text().splitlines()[:2] == ["line,kind,plant", "910,outage,roof"]


def test_the_picture_has_the_name_of_the_table(power_csv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(power_csv).exit_code == 0
    assert (tmp_path / "power.png").is_file()


def test_a_table_names_the_next_commands_with_its_options(power_csv, tmp_path):
    table = tmp_path / "my power.csv"
    power_csv.rename(table)
    result = run(table, "--stamps", "end", "--out", tmp_path / "picture.png")
    assert result.output.startswith(f"{table}: a table of the power of 1 plant\n- ")
    commands = [line for line in result.output.splitlines() if line.startswith("next: ")]
    assert commands == [
        f"next: metaprior sites forecast '{table}' --stamps end --out 'my power_forecast.csv' "
        "--page 'my power_forecast.html'",
        f"next: metaprior sites backtest '{table}' --stamps end --page 'my power_backtest.html'",
    ]


@pytest.mark.parametrize(
    ("rows", "offered"), [(96, ["forecast"]), (192, ["forecast", "backtest"])], ids=["one day", "two days"]
)
def test_a_backtest_is_offered_where_there_is_something_to_score(power_csv, tmp_path, rows, offered):
    table = tmp_path / "new.csv"
    table.write_text("".join(power_csv.read_text().splitlines(keepends=True)[: rows + 1]))
    result = run(table, "--out", tmp_path / "picture.png")
    assert re.findall(r"^next: metaprior sites (\w+)", result.output, re.MULTILINE) == offered


def test_nothing_is_offered_while_a_capacity_is_unknown(tmp_path):
    table = tmp_path / "dark.csv"
    table.write_text(
        "time,power\n" + "".join(f"2024-01-0{day} {hour:02d}:00,0\n" for day in (1, 2, 3) for hour in range(24))
    )
    result = run(table, "--unit", "kW", "--out", tmp_path / "picture.png")
    assert result.exit_code == 0, result.output
    assert "next:" not in result.output
    assert "- nothing can be forecast before the capacity of dark is known" in result.output
    assert "--sites" in result.output


def test_messages_name_options_and_no_arguments_of_python(power_csv, tmp_path):
    power_csv.write_text("time,Zustand\n2025-05-01 12:00,gut\n2025-05-01 13:00,gut\n")
    result = run(power_csv)
    assert "Try --columns power=..." in str(result.exception)


def test_options_reach_the_reader(power_csv, tmp_path):
    facts = tmp_path / "sites.csv"
    facts.write_text("site,capacity_mw\nroof,0.5\n")
    result = run(power_csv, "--sites", facts, "--stamps", "end", "--unit", "W", "--out", tmp_path / "picture.png")
    assert re.search(r"^roof +2025-04-30 .* 500000 +W ", result.output, re.MULTILINE)


def test_the_page_has_every_defect_with_its_meaning():
    rows = dict(re.findall(r"^\| `([a-z ]+)` \| ([^|]+) \|$", PAGE, re.MULTILINE))
    assert rows == {defect.name: defect.meaning for defect in DEFECTS}
    assert list(rows) == [defect.name for defect in DEFECTS]


def test_every_public_name_can_be_imported_and_no_other():
    assert sorted(sites.MODULE_OF) == sorted(sites.__all__)
    for name in sites.__all__:
        assert getattr(sites, name) is not None
    with pytest.raises(AttributeError, match=r"'metaprior\.solar\.sites' has no attribute 'nothing'"):
        _ = sites.nothing


def test_no_file_is_replaced_unasked(power_csv):
    before = power_csv.read_bytes()
    result = run(power_csv, "--rows", power_csv)
    assert result.exit_code != 0
    assert isinstance(result.exception, FileExistsError)
    assert power_csv.read_bytes() == before


def test_columns_of_any_name_are_named(power_csv, tmp_path):
    frame = pd.read_csv(power_csv).rename(columns={"site": "Dach", "power_kw": "Messwert"})
    frame.to_csv(power_csv, index=False)
    picture = tmp_path / "picture.png"
    result = run(power_csv, "--columns", "site=Dach,power=Messwert", "--unit", "kW", "--out", picture)
    assert result.exit_code == 0, result.output
    assert "site is 'Dach', power is 'Messwert'" in result.output
    wrong = run(power_csv, "--columns", "Dach")
    assert wrong.exit_code == 2
    assert "as site=Anlage,power=PolyPwr, got 'Dach'" in " ".join(wrong.output.replace("│", " ").split())
