"""Imports point one way, down the flow of docs/architecture.md; and rooms keep their walls."""

import ast
import re
from pathlib import Path

import metaprior

PACKAGE = Path(metaprior.__file__).parent

FLOORS = [
    {"errors", "inputs", "missing", "text_table"},
    {
        "applications",
        "mixture",
        "noise",
        "checks",
        "checkpoint",
        "files",
        "history",
        "objectives",
        "outputs",
        "scaling",
        "registry",
        "progress",
    },
    {"weights", "forecasts", "tasks"},
    {"team", "minibatches"},
    {"likelihoods"},
    {"priors", "models", "network", "scores", "compression", "exporting"},
    {"posterior", "metagrad"},
    {"adaptation", "arviz", "callbacks"},
    {"ensemble", "evaluation", "stack_descent", "training"},
    {"calibration", "conformal", "hierarchy"},
    {"methods"},
    {"sklearn"},
    {"report"},
    {"runs"},
    {"cli"},
    {"solar"},
    {"explore"},
    {"__main__", "__init__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "metaprior":
            rooms |= {alias.name for alias in node.names if alias.name in FLOOR}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            rooms |= {node.module.split(".")[1]} if node.module and node.module.startswith("metaprior.") else set()
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("metaprior") for alias in node.names), f"{path}: use 'from ... import'"
    return rooms


def test_every_module_has_a_room() -> None:
    assert {room(path) for path in PACKAGE.rglob("*.py")} == set(FLOOR)


def test_imports_only_go_down() -> None:
    upward = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in PACKAGE.rglob("*.py")
        for other in imported_rooms(path)
        if other != room(path) and FLOOR[other] >= FLOOR[room(path)]
    ]
    assert not upward


def test_only_the_report_draws_and_nothing_unpickles() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        drawing = re.findall(r"^( *)(?:from|import) matplotlib", text, re.M)
        assert not drawing or "report" in path.parts, path
        assert "" not in drawing, f"{path}: matplotlib is imported where something is drawn, not with the module"
        assert "import pickle" not in text, path
        assert "torch.load(" not in text, path


def test_the_page_of_the_architecture_names_every_room_and_no_file_that_is_gone() -> None:
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"[\w/]+\.py\b", page))
    folders = [PACKAGE, *(PACKAGE.parent / name for name in ("tests", "benchmarks", "examples"))]
    files = [path.relative_to(PACKAGE.parent).as_posix() for folder in folders for path in folder.rglob("*.py")]
    assert not [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)]
    rooms = {room(path) for path in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert not [name for name in rooms if f"`{name}/`" not in page and f"`{name}.py`" not in page]
