"""Several processes learn what one does: to rounding, and all of them bitwise the same."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from metaprior import checkpoint
from metaprior.adaptation import descent as descent_module
from metaprior.runs import finish
from metaprior.runs.checkpoints import KIND
from metaprior.training import trainer as trainer_module
from metaprior.training.optimizer import ALIGNED, SMALLEST
from tests.runs.tiny import PowerFailure, at_step, fail, metrics, run, without_seconds
from tests.team import cases
from tests.team.cases import ALL_BAD, CASES, fitted, learned
from tests.team.torchrun import torchrun

Facts = dict[str, Any]


class Results(NamedTuple):
    folder: Path
    ranks: int

    def tensors(self, case: str) -> dict[str, Tensor]:
        """Of rank 0; theta is the same on every rank, and the others have no more."""
        first, *others = [load_file(self.folder / f"{case} {rank}") for rank in range(self.ranks)]
        theta = {name: value for name, value in first.items() if not name.startswith("adam/")}
        for found in others:
            assert_identical(found, theta)
        return first

    def facts(self, case: str) -> list[Facts]:
        return [json.loads((self.folder / f"facts {rank}.json").read_text())[case] for rank in range(self.ranks)]


def assert_identical(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name


def assert_same_theta(found: dict[str, Tensor], expected: dict[str, Tensor], relative: float = 1e-10) -> None:
    """Every tensor of theta, relative to its own size."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if not name.startswith("adam/") and value.isfinite().all():
            error = float((found[name] - value).norm() / (1e-3 + value.norm()))
            assert error < relative, f"{name}: {error:.1e}"


def begun_by_one(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        at_step(patch, 8, fail)
        with pytest.raises(PowerFailure):
            run(folder)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("ranks")
    begun_by_one(folder / "one then two")
    ended = torchrun("tests.team.cases", folder, processes=request.param)
    assert ended.code == 0, ended.said()
    return Results(folder, request.param)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process that nobody has disturbed."""
    folder = tmp_path_factory.mktemp("one") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "draw", lambda *_: [])
        run(folder)
    return folder


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the processes."""
    monkeypatch.setattr(descent_module, "SEARCH_TASKS", cases.SEARCH_TASKS)
    monkeypatch.setattr(finish, "draw", lambda *_: [])


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("read ahead", "whole", "sharded")])
def test_theta_is_that_of_one_process(results: Results, name: str) -> None:
    alone, facts = learned(CASES[name])
    assert_same_theta(results.tensors(name), alone)
    for own in results.facts(name):
        assert own["failures"] == facts["failures"]
        assert own["progress"] == facts["progress"]
        assert list(map(float, own["losses"])) == pytest.approx(
            list(map(float, facts["losses"])), rel=1e-9, nan_ok=True
        )


def test_gradients_were_computed_one_by_one_and_stacked(results: Results) -> None:
    assert all(facts["stacked"] for facts in results.facts("predictive")[1:])
    assert not any(facts["stacked"] for facts in results.facts("one by one"))


def test_fit_learns_the_same(results: Results) -> None:
    assert_same_theta(results.tensors("fit"), fitted(cases.Waves()))


def test_reading_ahead_changes_nothing(results: Results) -> None:
    assert_identical(results.tensors("read ahead"), results.tensors("stacked"))


def test_each_rank_asks_for_its_own_tasks_alone(results: Results) -> None:
    """The warm start's, the search's, which are those of the next steps, and the steps'."""
    for name in ("stacked", "read ahead", "predictive"):
        size = CASES[name].meta_batch
        for rank, facts in enumerate(results.facts(name)):
            own = range(rank * size // results.ranks, (rank + 1) * size // results.ranks)
            searched = range(rank * 3 // results.ranks, (rank + 1) * 3 // results.ranks)
            steps = [[step * size + place for place in own] for step in range(3 + cases.STEPS)]
            expected = [*steps[:3], [3 * size + place for place in searched], *steps[3:]]
            assert sorted(facts["asked"]) == sorted(index for part in expected for index in part)


def test_bad_tasks_are_skipped_counted_and_named_on_all_ranks(results: Results) -> None:
    bad = sorted(CASES["bad tasks"].tasks().bad)
    for facts in results.facts("bad tasks"):
        assert [failure.split(": ")[1] for failure in facts["failures"]] == [f"wave {index}" for index in bad]
        assert "bad_tasks=9" in facts["progress"]
        assert "halvings=1" in facts["progress"], "the tasks of step 11 are bad, all of them"


def test_too_many_bad_tasks_stop_all_ranks_with_the_same_message(results: Results) -> None:
    alone, facts = learned(ALL_BAD)
    assert facts["stopped"].startswith("8 tasks in a row had no finite gradient (step 8); the last was wave 31")
    for own in results.facts("all bad"):
        assert own["stopped"] == facts["stopped"]
        assert own["progress"] == facts["progress"]
    assert_same_theta(results.tensors("all bad"), alone)


def test_sharded_moments_change_nothing_to_the_last_bit(results: Results) -> None:
    """Not even where step sizes are halved; and what is saved is whole."""
    whole, sharded = results.tensors("whole"), results.tensors("sharded")
    assert_identical(sharded, whole)
    assert sharded["adam/mu/exp_avg"].shape == sharded["theta/mu"].shape
    assert len(sharded["theta/mu"]) > SMALLEST
    assert len(sharded["theta/mu"]) % 8, "the processor's vectors have a rest"
    for facts in results.facts("sharded"):
        assert "halvings=2" in facts["progress"]


def test_a_rank_holds_its_part_of_the_moments(results: Results) -> None:
    tensors = results.tensors("whole")
    moments = [value.numel() for name, value in tensors.items() if "exp_avg" in name]
    large, small = (sum(size for size in moments if (size >= SMALLEST) is flag) for flag in (True, False))
    held = [facts["held"] for facts in results.facts("sharded")]
    assert sum(held) == large + results.ranks * small
    assert max(held) <= large / results.ranks + small + 4 * ALIGNED, "exp_avg and exp_avg_sq of mu and rho"
    assert all(facts["held"] == large + small for facts in results.facts("whole"))


def test_begun_by_one_process_and_finished_by_several(results: Results, alone: Path) -> None:
    said = results.facts("runs")
    assert said[0][0] == "resuming from checkpoints/last, step 8"
    assert "note: gradients are now computed another way" in said[0][1]
    assert f"{results.ranks} processes; before: " in said[0][1]
    assert_same_run_to_rounding(results.folder / "one then two", alone)


def test_begun_by_several_processes_and_finished_by_one(results: Results, alone: Path) -> None:
    folder = results.folder / "two then one"
    saved, _ = checkpoint.read(folder / "checkpoints" / "last", KIND)
    with pytest.MonkeyPatch.context() as patch:
        restored: list[dict[str, Tensor]] = []
        real = trainer_module.Trainer.step

        def step(self: trainer_module.Trainer) -> Any:
            restored.append({name: value.clone() for name, value in self.tensors().items()})
            return real(self)

        patch.setattr(trainer_module.Trainer, "step", step)
        said = run(folder, resume=True)
    assert_identical(restored[0], saved)
    assert said[0] == "resuming from checkpoints/last, step 10"
    assert "note: gradients are now computed another way" in said[1]
    assert_same_run_to_rounding(folder, alone)


def assert_same_run_to_rounding(one: Path, other: Path) -> None:
    for name, kind in (("checkpoints/last", KIND), ("prior", "MetaLearner")):
        assert_same_theta(checkpoint.read(one / name, kind)[0], checkpoint.read(other / name, kind)[0], 1e-5)
    for found, expected in zip(metrics(one), metrics(other), strict=True):
        assert_close(without_seconds(found), without_seconds(expected))
    assert_close(*(json.loads((folder / "evaluation.json").read_text()) for folder in (one, other)))


def assert_close(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_close(found[key], expected[key])
    elif isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    else:
        assert found == expected
