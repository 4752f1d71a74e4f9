"""Every case gives what ``digests.json`` says. If a number is meant to change: ``python -m tests.golden --update``."""

from pathlib import Path

import pytest

from tests.golden.__main__ import DIGESTS
from tests.golden.digest import differences, digest, read
from tests.golden.registry import all_cases, entries_of

EXPECTED = read(DIGESTS)


def test_every_case_has_digests_and_the_other_way_round() -> None:
    assert all_cases().keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", all_cases())
def test_golden_numbers(name: str, tmp_path: Path) -> None:
    case = all_cases()[name]
    found = {key: digest(value) for key, value in entries_of(case, tmp_path).items()}
    different = differences(found, EXPECTED[name], case.tolerance)
    assert not different, "\n".join([f"{len(different)} of {len(found)} entries differ:", *different[:20]])
