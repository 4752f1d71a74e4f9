import math
import os

import pytest
import torch

from benchmarks import speed

TINY = speed.Settings(width=2, frame=16, k_shot=2, k_query=2, unet_rounds=1, mlp_tasks=3, mlp_rounds=1)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


def test_headline_and_the_same_loss_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("higher")
    pytest.importorskip("torchopt")
    monkeypatch.setattr(speed, "run_all", lambda function, jobs, **_: [function(job) for job in jobs])
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    threads = torch.get_num_threads()
    result = speed.run(settings=TINY)
    assert torch.get_num_threads() == threads
    assert {"head_speedup", "head_speedup_learned_trunk", "mlp_speedup"} <= set(result.headline)
    assert all(math.isfinite(value) for value in result.headline.values())
    for what in (speed.EVERYTHING, speed.HEAD_LEARNED, speed.MLP_TASKS):
        losses = [row["loss"] for row in result.rows if row["what"] == what]
        assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-4)


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
