import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from metaprior.team import Team, launch, team_of_torchrun
from metaprior.team.launch import NEEDED, own_device
from tests.team.torchrun import REPOSITORY, torchrun

FIT = """
import sys
import torch
from metaprior import Gaussian, MetaLearner, team_of_torchrun
from metaprior.models import MLP
from metaprior.tasks import Sinusoids

def imported(*names):
    return [name for name in names if name in sys.modules]


with team_of_torchrun() as team:
    print("before:", imported("torch.distributed.tensor"))  # later torch's own optimisers import it, and a lot more
    MetaLearner(MLP(1, [4], 1), Gaussian()).fit(
        Sinusoids(), epochs=1, tasks_per_epoch=2, meta_batch=2, shard=True, progress=False
    )
assert type(team).__name__ == "Team"
assert not torch.distributed.is_initialized()
print("after:", imported("metaprior.team.ranks"))
"""
NOTHING = "before: []\nafter: []\n"


def test_one_process_has_no_process_group_and_imports_nothing_for_one() -> None:
    process = subprocess.run(
        [sys.executable, "-c", FIT], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert process.stdout == NOTHING, process.stderr


@pytest.mark.parametrize("size", [None, "1"])
def test_without_others_there_is_one_process(monkeypatch: pytest.MonkeyPatch, size: str | None) -> None:
    if size is None:
        monkeypatch.delenv("WORLD_SIZE", raising=False)
    else:
        monkeypatch.setenv("WORLD_SIZE", size)
    with team_of_torchrun() as team:
        assert type(team) is Team
        assert not dist.is_initialized()


@pytest.mark.slow
def test_torchrun_with_one_process_is_the_same() -> None:
    ended = torchrun("tests.team.test_launch", processes=1)
    assert ended.code == 0, ended.said()
    assert ended.out == NOTHING


def test_a_size_without_the_rest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NEEDED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with (
        pytest.raises(ValueError, match=r"WORLD_SIZE is 2, but MASTER_ADDR, MASTER_PORT is not set. Start .* torchrun"),
        team_of_torchrun(),
    ):
        pass


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_hanging_takes_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="hang_after must be a positive number"), team_of_torchrun(seconds):
        pass


def test_a_process_has_the_device_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_device("cpu") == torch.device("cpu")
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert own_device("cuda") == torch.device("cuda", 1)
    assert chosen == [torch.device("cuda", 1)]
    assert launch.backend() == "cpu:gloo,cuda:nccl"
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="there are 2 GPUs here, and this is process 2"):
        own_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert own_device("cuda") == torch.device("cuda", 0), "where each process sees its own GPU alone"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        ValueError, match=r"device must be a device of this machine, got 'cuda', but torch sees no GPU\. Try 'cpu'"
    ):
        own_device("cuda")


if __name__ == "__main__":
    exec(FIT)
