"""Print the oldest versions that pyproject.toml allows: ``python -m tests.packaging.lower_bounds EXTRA ...``."""

import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lower_bounds(project: dict[str, Any], extras: Sequence[str]) -> dict[str, str]:
    """Return the lower bound of each dependency of a project and of some of its extras."""
    found: dict[str, str] = {}
    for requirement in requirements(project, extras):
        bounds = [one.version for one in requirement.specifier if one.operator == ">="]
        if len(bounds) != 1:
            raise ValueError(f"{requirement.name} must have one lower bound, got {requirement}. Try NAME>=VERSION.")
        found[requirement.name] = max(*bounds, found.get(requirement.name, "0"), key=_numbers)
    return found


def requirements(project: dict[str, Any], extras: Sequence[str]) -> Iterator[Requirement]:
    """Iterate over the dependencies of a project, of some of its extras, and of the extras that these name."""
    written = [
        *project["dependencies"],
        *(line for extra in extras for line in project["optional-dependencies"][extra]),
    ]
    for requirement in map(Requirement, written):
        if requirement.name == project["name"]:
            yield from requirements({**project, "dependencies": []}, sorted(requirement.extras))
        else:
            yield requirement


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    bounds = lower_bounds(tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"], sys.argv[1:])
    print(*(f"{name}=={version}" for name, version in bounds.items() if name != "torch"))  # noqa: T201
