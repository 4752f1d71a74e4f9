"""What version 0.1.0 saved is read by every later version, and predicts the recorded numbers."""

from pathlib import Path

import pytest

from tests.golden.digest import FLOAT64, differences, digest, read
from tests.golden.saved import READERS, SAVED, read_saved


@pytest.mark.parametrize("name", READERS)
def test_a_model_saved_by_0_1_0_loads_and_predicts_the_same(name: str, tmp_path: Path) -> None:
    found = {key: digest(value) for key, value in read_saved(name, tmp_path).items()}
    assert not differences(found, read(SAVED / "expected.json")[name], FLOAT64)
