"""The reference has every public name once."""

import re
from importlib import import_module

import pytest

from tests.docs.pages import DOCS

MODULES = (
    "metaprior",
    "metaprior.conformal",
    "metaprior.callbacks",
    "metaprior.metagrad",
    "metaprior.sklearn",
    "metaprior.tasks",
    "metaprior.solar.maps",
    "metaprior.solar.sites",
)
ENTRIES = [
    entry
    for page in sorted((DOCS / "reference").glob("*.md"))
    for entry in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
]


def objects(name: str) -> object:
    """Return what a dotted name of the reference stands for."""
    module, _, own = name.rpartition(".")
    return getattr(import_module(module), own)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    described = [objects(entry) for entry in ENTRIES]
    public = {name: getattr(import_module(module), name) for name in import_module(module).__all__}
    assert [name for name, one in public.items() if not any(one is other for other in described)] == []


def test_every_entry_occurs_once() -> None:
    assert sorted(ENTRIES) == sorted(set(ENTRIES))
