"""``metaprior inspect``: which inspector is asked, options that do not belong, and paths that nothing recognises."""

import json
import os
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner, Result

from metaprior.cli import app
from metaprior.cli.inspection import Inspection, Inspector, find_inspector, inspect_command


def inspect_box(path: Path, *, depth: Annotated[int, typer.Option(help="How deep to look.")] = 1) -> Inspection:
    facts = {"depth": str(depth), "name": path.name}
    return Inspection("a box", facts, ["the lid is open"], [f"close {path}"], body="inside: air")


INSPECTORS = (
    Inspector("a box (.box)", lambda path: path.suffix == ".box", inspect_box),
    Inspector("a bag (.bag)", lambda path: path.suffix == ".bag", lambda path: Inspection("a bag", {})),
)


def run(*arguments: object) -> Result:
    program = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    program.command()(inspect_command(INSPECTORS))
    return CliRunner().invoke(program, list(map(str, arguments)))


@pytest.fixture
def box(tmp_path: Path) -> Path:
    path = tmp_path / "small.box"
    path.write_text("air")
    return path


def test_heading_facts_body_problems_and_commands(box: Path) -> None:
    assert run(box, "--depth", 3).output.splitlines() == [
        f"{box}: a box",
        "  depth  3",
        "  name   small.box",
        "inside: air",
        "problems:",
        "- the lid is open",
        f"next: close {box}",
    ]


def test_what_was_found_can_be_read_by_programs(box: Path, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    assert run(box, "--json", file).exit_code == 0
    content = json.loads(file.read_text())
    assert (content["kind"], content["problems"]) == ("a box", ["the lid is open"])
    assert isinstance(run(box, "--json", file).exception, FileExistsError)


def test_options_of_other_things_are_refused(tmp_path: Path) -> None:
    bag = tmp_path / "paper.bag"
    bag.write_text("nothing")
    assert run(bag).exit_code == 0
    result = run(bag, "--depth", 3)
    assert result.exit_code == 2
    assert "--depth: only for a box (.box)" in result.output


def test_paths_that_cannot_be_inspected(tmp_path: Path) -> None:
    (tmp_path / "empty.box").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.txt").write_text("text")
    os.mkfifo(tmp_path / "pipe.box")
    for name, told in {
        "none.box": "does not exist",
        "empty.box": r"is empty \(0 bytes\)",
        "folder": "is an empty folder",
        "pipe.box": "must be a file or a folder",
        "other.txt": r"nothing that this package knows. Looked for:\n- a box \(.box\)\n- a bag",
    }.items():
        with pytest.raises((ValueError, FileNotFoundError), match=told):
            find_inspector(tmp_path / name, INSPECTORS)


def test_a_folder_names_what_can_be_inspected_in_it(box: Path) -> None:
    with pytest.raises(ValueError, match=f"1 of its entries can be inspected:\n  metaprior inspect {box}"):
        find_inspector(box.parent, INSPECTORS)


def test_the_help_of_the_command_has_the_options_of_all() -> None:
    text = CliRunner().invoke(app, ["inspect", "--help"]).output
    assert all(f"--{name} " in text for name in ("unit", "zone", "stamps", "sites", "rows", "variable", "json"))
