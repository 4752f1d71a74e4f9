import os

import pytest

from benchmarks import speed

TINY = speed.Settings(width=2)


def test_only_the_head_moves_and_the_trunk_is_learned_or_frozen() -> None:
    head, frozen = (speed.unet_problem(TINY, speed.HEAD, frozen=frozen) for frozen in (False, True))
    assert head.trunk_stages == frozen.trunk_stages == 12
    assert any(name.startswith("stem.") for name in head.network.plain_names)
    assert not frozen.network.plain_names


def test_the_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with speed.waiting_without_spinning():
        assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    with speed.waiting_without_spinning():
        pass
    assert "OMP_WAIT_POLICY" not in os.environ
