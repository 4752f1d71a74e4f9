"""Tables of settings on the page of the training, and of benchmarks on that of the results, are the code's."""

import re
from typing import Any

import pytest

import benchmarks.common.application  # noqa: F401 (adds the benchmarks' kinds of tasks)
from benchmarks.common import registry
from metaprior.runs.config import KINDS, PLAIN_SECTIONS
from metaprior.runs.reading import parse
from tests.docs.pages import DOCS, text_of

LEAST = {"model": "mlp", "likelihood": "gaussian", "tasks": "sinusoids"}
NEEDED: dict[tuple[str, str], dict[str, Any]] = {
    ("model", "mlp"): {"inputs": 1, "hidden": [4], "outputs": 1},
    ("likelihood", "censored"): {"lower": 0.0},
    ("tasks", "frames"): {"path": "archive.nc"},
    ("tasks", "nowcast"): {"path": "archive.nc"},
}
"""Keys of a kind of a section that have no default."""
FITTING: dict[str, dict[str, dict[str, Any]]] = {
    "frames": {"model": {"kind": "unet"}},
    "simulated": {"model": {"kind": "unet", "known": 4}},
    "nowcast": {"model": {"kind": "nowcast"}, "likelihood": {"kind": "nowcast"}},
    "worlds": {"model": {"kind": "nowcast"}, "likelihood": {"kind": "nowcast"}},
    "sites": {"model": {"kind": "sites"}, "likelihood": {"kind": "mixture"}},
}
"""Networks and likelihoods for tasks that do not go with every one."""


def section_of(name: str) -> str:
    """Return what the page of the training says about a section of a configuration."""
    found = re.search(rf"^#### `\[{name}\]`\n(.*?)(?=^#)", text_of(DOCS / "training.md"), re.DOTALL | re.MULTILINE)
    assert found, name
    return found[1]


def defaults(section: str, **kinds: str) -> dict[str, Any]:
    """Return every key of a section with its value, in a configuration that says as little as possible."""
    content = {name: {"kind": kind, **NEEDED.get((name, kind), {})} for name, kind in {**LEAST, **kinds}.items()}
    content |= FITTING.get(kinds.get("tasks", ""), {})
    return parse(content, "the least").resolved()[section]


def as_toml(value: object) -> str:
    """Return a value as it stands in a configuration; TOML has no None."""
    if isinstance(value, str):
        return f'"{value}"'
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("section", PLAIN_SECTIONS)
def test_keys_and_defaults_of_a_section_are_the_codes(section: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`|none) \|", section_of(section), re.MULTILINE)
    assert dict(rows) == {key: as_toml(value) for key, value in defaults(section).items()}


@pytest.mark.parametrize(("section", "kind"), [(section, kind) for section, kinds in KINDS.items() for kind in kinds])
def test_keys_and_defaults_of_a_kind_are_the_codes(section: str, kind: str) -> None:
    (line,) = [line for line in section_of(section).splitlines() if line.startswith("|") and f'`"{kind}"`' in line]
    for key, value in defaults(section, **{section: kind}).items():
        if key == "stochastic":  # of every kind
            assert value is None
            assert "`stochastic` (none: " in section_of(section)
        elif key != "kind":
            without_default = value is None or key in NEEDED.get((section, kind), {})
            assert (f"`{key}`" if without_default else f"`{key} = {as_toml(value)}`") in line


def test_every_benchmark_is_listed_with_its_needs() -> None:
    listed = [line for line in text_of(DOCS / "performance.md").splitlines() if re.match(r"\| `[a-z]+` \| [a-z]", line)]
    rows = [f"| `{row['NAME']}` | {row['what']} | {row['needs']} |" for row in registry.rows()]
    assert [row for row in rows if row not in listed] == []
