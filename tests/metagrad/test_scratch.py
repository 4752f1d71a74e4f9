"""The path of an inner loop in a file: the same numbers as in memory, nothing left behind, clear errors."""

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from metaprior.errors import ScratchError
from metaprior.likelihoods import Gaussian
from metaprior.metagrad import (
    Descent,
    NonFinite,
    QueryLoss,
    keeping,
    mixed,
    on_disk,
    scratch,
    truncated,
    twice_reverse,
    vectors,
)
from metaprior.metagrad import sweep as sweeping
from metaprior.metagrad.scratch import FileVector, ScratchFile, is_in_memory, lent
from metaprior.metagrad.vectors import InMemory, parts, whole
from metaprior.weights import Parameters
from tests.metagrad.problems import assert_same_tensors, make_case, solved
from tests.metagrad.test_agreement import CASES, case_and_reference
from tests.metagrad.test_memory import LiveBytes, only_reference_counts, rich_case

ENGINES = {engine.name: engine for engine in (twice_reverse, mixed, truncated(2), truncated(0))}


@pytest.fixture(params=[False, True], ids=["one part", "several parts"])
def in_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(vectors, "PART", 16)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("name", CASES)
def test_disk_and_memory_give_bitwise_the_same(name: str, tmp_path: Path) -> None:
    case, _ = case_and_reference(name)
    for engine in ENGINES.values():
        expected, found = (solved(own, case) for own in (engine, on_disk(tmp_path, engine=engine)))
        values = {**found.grads.named(), **found.terms._asdict(), **found.inner._asdict()}
        for key, value in {**expected.grads.named(), **expected.terms._asdict(), **expected.inner._asdict()}.items():
            assert torch.equal(values[key], value), f"{engine.name}: {key}"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize(
    "name", ["learned step sizes", "momentum, learned step sizes, samples", "U-Net, random output"]
)
def test_a_stack_on_disk_is_bitwise_that_in_memory(name: str, tmp_path: Path) -> None:
    case, _ = case_and_reference(name)
    sets = (type(part)(*(torch.stack([values, values.flip(0)]) for values in part)) for part in case.task[:2])
    stack, noises = type(case.task)(*sets, "stack"), [case.noise, case.noise.at(task=1)]
    expected = twice_reverse.stacked(case.problem, case.theta, stack, noises)
    found = on_disk(tmp_path).stacked(case.problem, case.theta, stack, noises)
    for theirs, ours in zip(
        (*expected[0], *expected[1], *expected[2].tensors()), (*found[0], *found[1], *found[2].tensors()), strict=True
    ):
        assert torch.equal(theirs, ours)


STEPS = (4, 9)


def growth(**inner: float) -> float:
    """By how many vectors of D numbers the peak grows with each inner step."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 1)).double()
    peaks = []
    for steps in STEPS:
        loop = Descent(steps=steps, lr=1e-6, **inner)  # type: ignore[arg-type]
        case = make_case(module, inner=loop, objective=QueryLoss(), inputs=(100,), support=1)
        with only_reference_counts(), LiveBytes() as live:
            solved(on_disk(), case)
        peaks.append(live.peak)
    return (peaks[1] - peaks[0]) / (STEPS[1] - STEPS[0]) / (8 * len(case.theta.mu))


@pytest.mark.parametrize("inner", [{}, {"samples": 3}, {"momentum": 0.7}, {"kl_weight": 0.0}], ids=str)
def test_a_step_more_costs_no_memory(inner: dict[str, float]) -> None:
    assert growth(**inner) == pytest.approx(0, abs=0.01)


def test_the_planned_size_is_that_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files: list[ScratchFile] = []

    class Noted(ScratchFile):
        def __init__(self, folder: Path | None, size: float) -> None:
            super().__init__(folder, size)
            self.size = size
            files.append(self)

    monkeypatch.setattr(sweeping, "ScratchFile", Noted)
    for name in ("nine steps, momentum, step sizes, samples", "nine steps", "random last layer, plain trunk adapted"):
        solved(on_disk(tmp_path), case_and_reference(name)[0])
        file = files.pop()
        assert 0.8 * file.size <= file.reserved <= file.size, name


def test_the_module_is_not_held_twice_and_has_its_weights_back(monkeypatch: pytest.MonkeyPatch) -> None:
    case, _ = case_and_reference("conv and GroupNorm")
    module, seen = case.problem.network.module, []
    before = {name: value.detach().clone() for name, value in module.named_parameters()}
    monkeypatch.setattr(sweeping, "sweep_back", noted(sweeping.sweep_back, lambda: seen.append(held(module))))
    solved(on_disk(), case)
    assert seen == [8 * len(before)], "one number for each parameter"
    for name, value in module.named_parameters():
        assert torch.equal(value, before[name])


def held(module: nn.Module) -> int:
    return sum(parameter.untyped_storage().nbytes() for parameter in module.parameters())


def noted(function, note):  # type: ignore[no-untyped-def]
    def wrapped(*arguments: object) -> None:
        note()
        function(*arguments)

    return wrapped


def test_parameters_come_back_after_an_error() -> None:
    module = nn.Linear(3, 3)
    before = module.weight.detach().clone()
    shared = module.bias.data.view(3, 1)  # of the same memory, which stays
    with pytest.raises(KeyError), ScratchFile(None, 0) as file, lent(module.parameters(), file):
        raise KeyError
    assert torch.equal(module.weight, before)
    assert torch.equal(shared.view(3), module.bias)


def test_parameters_that_share_memory_or_lie_otherwise_are_left_alone() -> None:
    flat = torch.randn(12)
    views = [nn.Parameter(flat[:6].view(2, 3)), nn.Parameter(flat[6:].view(2, 3))]
    turned = nn.Parameter(torch.randn(3, 2).t())
    with ScratchFile(None, 0) as file, lent([*views, turned], file):
        assert all(parameter.abs().sum() > 0 for parameter in (*views, turned))


def test_a_task_that_is_not_finite_leaves_nothing_behind(tmp_path: Path) -> None:
    case = make_case(nn.Linear(2, 2).double(), inner=Descent(steps=4, lr=1e200))
    assert isinstance(on_disk(tmp_path)(*case), NonFinite)
    assert not list(tmp_path.iterdir())


def test_kept_graphs_cannot_be_on_disk() -> None:
    with pytest.raises(ValueError, match="keep must be 0 where the path is in a file, got 2"):
        on_disk(engine=keeping(2))


def test_vectors_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "PART", 32)
    with ScratchFile(tmp_path, 0) as file:
        values = torch.randn(3, 100)
        vector, other = FileVector.zeros(file, values), FileVector.zeros(file, values)
        assert not whole(vector).any()
        for part in parts(values):
            vector[..., part] = values[..., part]
            other[..., part] += 1.0
        assert torch.equal(whole(vector), values)
        assert bool((whole(other) == 1).all())
        new = vector.moving()
        for part in parts(values):
            new[..., part] *= 2
        assert torch.equal(whole(vector), values), "what was there stays"
        assert torch.equal(whole(new.moved()), 2 * values)
        assert not list(tmp_path.iterdir()), "the file has no name"


def test_storage_in_memory_and_in_a_file_agree(tmp_path: Path) -> None:
    like = Parameters(torch.ones(2, 50), torch.ones(2, 50), {"a": torch.ones(2, 3, dtype=torch.float64)})
    with ScratchFile(tmp_path, 0) as file:
        for storage in (InMemory(like), scratch.InFile(file, like)):
            zeros = storage.zeros()
            assert zeros.mu.shape == (2, 50)
            zeros.plain["a"] += 1
            assert torch.equal(zeros.plain["a"], like.plain["a"])
            vectors.scale(zeros, 3.0)
            assert zeros.plain["a"].tolist() == [[3.0] * 3] * 2


def test_a_full_disk_is_known_before_anything_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(ScratchError, match=rf"in {tmp_path} could not be made: No space left.*Free some space"):
        on_disk(tmp_path)(*case_and_reference("MLP tanh")[0])


@pytest.mark.parametrize("method", ["write", "readinto"])
def test_a_disk_that_fills_up_or_vanishes(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, _ = case_and_reference("MLP tanh")
    before = {name: value.detach().clone() for name, value in case.problem.network.module.named_parameters()}
    number = errno.ENOSPC if method == "write" else errno.EIO

    class Failing:
        def __init__(self, folder: Path) -> None:
            self.calls, self._file = 0, open(folder / "file", "w+b", buffering=0)  # noqa: PTH123, SIM115

        def __getattr__(self, name: str) -> object:
            if name == method:
                self.calls += 1
                if self.calls == 40:
                    raise OSError(number, os.strerror(number))
            return getattr(self._file, name)

    monkeypatch.setattr(scratch.tempfile, "TemporaryFile", lambda dir, buffering: Failing(dir))
    with pytest.raises(
        ScratchError, match=f"could not be {'written: No space' if method == 'write' else 'read: Input'}"
    ):
        on_disk(tmp_path)(*case)
    for name, value in case.problem.network.module.named_parameters():
        assert torch.equal(value, before[name]), "the module has its weights back"


def test_folders_that_cannot_hold_a_file(tmp_path: Path) -> None:
    case, _ = case_and_reference("MLP tanh")
    with pytest.raises(ScratchError, match=r"could not be made: No such file or directory\. Try another folder"):
        on_disk(tmp_path / "nowhere")(*case)
    (tmp_path / "file").write_text("")
    with pytest.raises(ScratchError, match="could not be made: Not a directory"):
        on_disk(tmp_path / "file")(*case)


@pytest.mark.parametrize(("line", "expected"), [("tmpfs {} tmpfs rw 0 0", True), ("disk {} ext4 rw 0 0", False)])
def test_file_systems_in_memory_are_recognised(
    line: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"root / ext4 rw 0 0\n{line.format(tmp_path)}\n")
    monkeypatch.setattr(scratch, "MOUNTS", mounts)
    assert is_in_memory(tmp_path) == expected


ENDLESS = """
import sys
from pathlib import Path
from dataclasses import replace
from metaprior.metagrad import on_disk
from tests.metagrad.problems import make_case
from metaprior.metagrad import Descent
case = make_case("conv", inner=Descent(steps=10**6, lr=1e-9))
print("started", flush=True)
on_disk(Path(sys.argv[1]))(*case)
"""


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        links = []
        while not links and process.poll() is None:  # until its file is open
            time.sleep(0.05)
            descriptors = Path(f"/proc/{process.pid}/fd").iterdir()
            links = [
                link for link in (str(fd.readlink()) for fd in descriptors if fd.is_symlink()) if str(tmp_path) in link
            ]
        os.kill(process.pid, signal.SIGKILL)
    assert links, "it wrote"
    assert not list(tmp_path.iterdir())


def test_memory_holds_all_the_same_tensors_afterwards(tmp_path: Path) -> None:
    case, expected = rich_case(), None
    for engine in (twice_reverse, on_disk(tmp_path)):
        found = solved(engine, case.replace(problem=replace(case.problem, likelihood=Gaussian())))
        expected = expected or found
        assert_same_tensors(found.grads, expected.grads, case.problem)
