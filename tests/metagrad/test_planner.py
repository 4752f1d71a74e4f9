"""Predicted peaks, and the choice among them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from metaprior.likelihoods import Gaussian
from metaprior.metagrad import Descent, DoesNotFit, MetaGradient, Problem, memory, plan, twice_reverse, unrolled
from metaprior.metagrad import planner as planning
from metaprior.metagrad.memory import available, bytes_of, footprint, in_use
from metaprior.metagrad.planner import Choice, Way, choose, predict
from metaprior.models.unet import UNet
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

NUMBER = 4  # bytes of a float32


def small(steps: int = 3, module: nn.Module | None = None) -> tuple[Problem, WeightDistribution, Task]:
    def examples(count: int) -> Examples:
        return Examples(torch.randn(count, 2, 16, 16), torch.randn(count, 2, 16, 16))

    problem = Problem(BayesianNetwork(module or UNet(2, 2, 4, 2)), Gaussian(noise=1.0), Descent(steps, lr=1e-6))
    return problem, problem.network.initial(), Task(examples(4), examples(3))


def by_name(choices: list[Choice]) -> dict[tuple[str, int | None], Choice]:
    return {(choice.engine.name, choice.micro_batch): choice for choice in choices}


def test_footprint_of_known_operations() -> None:
    def work(x: Tensor) -> Tensor:
        y = x * 2  # kept until the end of the function
        z = y.exp()
        del y
        return z.view(-1)  # no storage of its own

    found = footprint(work, torch.randn(10, 100))
    assert found.peak == 2 * 1000 * NUMBER
    assert found.kept == 1000 * NUMBER


def test_footprint_of_what_cannot_be_faked_is_measured_for_real() -> None:
    assert footprint(lambda x: x[x > 0], torch.ones(50)).kept >= 50 * NUMBER


def test_footprint_leaves_the_arguments_alone() -> None:
    x = torch.ones(3)
    footprint(lambda x: x.mul_(2), x)
    assert torch.equal(x, torch.ones(3))


def test_each_further_step_costs_one_vector_and_each_kept_graph_much_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "in_use", lambda: 0.0)
    peaks = {}
    for steps in (4, 8):
        problem, theta, task = small(steps)
        peaks[steps] = by_name(list(predict(problem, theta, task)))
    vector = len(theta.mu) * NUMBER * planning.MARGIN
    for name in ("mixed", "twice_reverse"):
        rise = peaks[8][name, 1].peak - peaks[4][name, 1].peak
        assert rise == pytest.approx(4 * vector)
    name = "twice_reverse, path on disk"
    assert peaks[8][name, 1].peak == peaks[4][name, 1].peak < peaks[4]["twice_reverse", 1].peak
    assert peaks[8][name, 1].file - peaks[4][name, 1].file == 12 * len(theta.mu) * NUMBER, "mu, rho and g of each step"
    assert peaks[8]["twice_reverse", 4].peak > peaks[8]["twice_reverse", 1].peak
    kept = peaks[8]["twice_reverse, graphs kept: 8", 4]
    assert kept.peak > peaks[8]["twice_reverse", 4].peak + 4 * vector
    assert kept.cost < peaks[8]["twice_reverse", 4].cost
    assert peaks[8]["unrolled", None].peak > peaks[8]["checkpointed", None].peak > peaks[8]["twice_reverse", 1].peak


def test_a_training_needs_room_for_moments_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_held", lambda device: 0.0)
    problem, theta, task = small()
    alone, trained = (predict(problem, theta, task, training=training) for training in (False, True))
    for own, other in zip(alone, trained, strict=True):
        assert other.peak - own.peak == pytest.approx(planning.MOMENTS * 2 * len(theta.mu) * NUMBER)


def test_scratch_must_be_a_folder(tmp_path: Path) -> None:
    problem, theta, task = small()
    with pytest.raises(ValueError, match=r"scratch must be a folder that exists, got '.*nowhere'"):
        plan(problem, theta, task, "4GiB", scratch=tmp_path / "nowhere")


def test_choices_on_disk_need_room_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "free_disk", lambda folder: 1000.0)
    problem, theta, task = small()
    choices = predict(problem, theta, task)
    assert choices
    assert not any(choice.file for choice in choices)
    with pytest.raises(DoesNotFit, match="more room for a scratch file"):
        choose(choices, 2.0**20)


def test_a_scratch_folder_in_memory_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(planning, "is_in_memory", lambda folder: folder == tmp_path)
    problem, theta, task = small(steps=20)
    choices = predict(problem, theta, task)
    on_disk = min((choice for choice in choices if choice.file), key=lambda choice: choice.peak)
    with pytest.warns(UserWarning, match=r"lies in memory \(tmpfs\)"):
        chosen = plan(problem, theta, task, 1.5 * on_disk.peak, scratch=tmp_path, before=on_disk.way)
    assert chosen.choice.way == on_disk.way


def test_an_earlier_choice_is_taken_again_while_it_fits() -> None:
    fast, slow = Choice(unrolled, None, peak=10.0, cost=1.0), Choice(twice_reverse, 2, peak=5.0, cost=3.0)
    choices = (fast, slow)
    assert choose(choices, 10.0) is fast
    assert choose(choices, 10.0, Way("twice_reverse", 2)) is slow
    assert choose(choices, 5.0, Way("unrolled", None)) is slow, "it no longer fits"
    assert choose(choices, 10.0, Way("twice_reverse", 4)) is fast, "nobody knows it"


def test_more_memory_buys_speed_and_never_another_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "in_use", lambda: 0.0)
    problem, theta, task = small()
    choices = sorted(predict(problem, theta, task), key=lambda choice: choice.peak)
    picked = [choose(choices, budget) for budget in (choices[0].peak, choices[len(choices) // 2].peak, 1e12)]
    assert picked[0] is choices[0]
    assert [choice.cost for choice in picked] == sorted((choice.cost for choice in picked), reverse=True)
    assert picked[-1].cost < picked[0].cost
    expected = unrolled(problem, theta, task, Noise())
    assert isinstance(expected, MetaGradient)
    for choice in picked:
        chosen = plan(problem, theta, task, choice.peak)
        assert chosen.choice == choice
        value = chosen.engine(chosen.problem, theta, task, Noise())
        assert isinstance(value, MetaGradient)
        torch.testing.assert_close(value.grads.mu, expected.grads.mu, rtol=1e-3, atol=1e-4)


def test_nothing_fits_says_what_would() -> None:
    problem, theta, task = small()
    with pytest.raises(DoesNotFit, match=r"nothing fits in 1 MiB: the smallest possible is .* micro-batches of 1"):
        plan(problem, theta, task, 2**20)


def test_budgets() -> None:
    assert bytes_of("4GiB") == 4 * 2**30
    assert bytes_of(" 1.5 mb ") == 1.5e6
    assert bytes_of(123456) == 123456
    assert in_use() < bytes_of(0.5) < in_use() + available()
    for wrong in ("4", "four GiB", "4 parsec", 0, -1.0):
        with pytest.raises(ValueError, match="memory"):
            bytes_of(wrong)


def test_fakes_need_what_real_tensors_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "in_use", lambda: 0.0)
    module = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 2, 1))
    problem, theta, task = small(module=module)
    real = by_name(list(predict(problem, theta, task)))
    monkeypatch.setattr(planning, "SMALL", 0)
    for name, choice in by_name(list(predict(problem, theta, task))).items():
        known = planning.FIRST_USE
        assert choice.peak - known == pytest.approx(real[name].peak - known, rel=0.02), name


def test_networks_that_cannot_be_faked_are_planned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SMALL", 0)

    class Masking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(2, 2, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * float(x.abs().sum() > 0)

    problem, theta, task = small(module=Masking())
    assert plan(problem, theta, task, "4GiB").choice.peak > 0


MEASURE = """
import json, sys, torch
from benchmarks.common.worker import peak_gib
from benchmarks.memory.one_step import Step
from metaprior.metagrad import plan
from metaprior.metagrad.planner import predict
from metaprior.noise import Noise
step = Step("twice_reverse", 4, width=24, frame=48, k_shot=4, k_query=2)
problem, task = step.problem(), step.task(0)
theta = problem.initial(task.support.y)
least = min(choice.peak for choice in predict(problem, theta, task))
chosen = plan(problem, theta, task, least + 2**21 if sys.argv[1] == "0" else sys.argv[1])
chosen.engine(chosen.problem, theta, task, Noise())
print(json.dumps({"predicted": chosen.choice.peak / 2**30, "peak": peak_gib(), "budget": chosen.budget / 2**30}))
"""


SMALLEST = "0"
"""Stands for the smallest budget that fits."""
SLOW = pytest.mark.slow
BUDGETS = [SMALLEST, "450MiB", "500MiB", "600MiB", "700MiB", "1GiB", "1.5GiB", "2GiB", "4GiB", "8GiB"]


@pytest.mark.parametrize("memory", ["900MiB", *(pytest.param(budget, marks=SLOW) for budget in BUDGETS)])
def test_a_run_stays_inside_its_budget(memory: str) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE, memory], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["peak"] <= found["budget"]
    assert found["peak"] == pytest.approx(found["predicted"], rel=0.25)


@pytest.mark.parametrize("learn_lr", ["no", "one", "per_tensor"])
def test_large_networks_are_planned_on_fake_tensors_alone(learn_lr: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Falling back to real tensors would take minutes and gigabytes."""
    monkeypatch.setattr(planning, "is_large", lambda *_: True)
    ran: list[bool] = []
    measured = memory._measured

    def noted(function: Any, arguments: Any) -> memory.Footprint:
        ran.append(all(isinstance(leaf, FakeTensor) for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)))
        return measured(function, arguments)

    monkeypatch.setattr(memory, "_measured", noted)
    problem, _, task = small()
    problem = replace(problem, inner=replace(problem.inner, learn_lr=learn_lr))
    predict(problem, problem.initial(task.support.y), task)
    assert ran
    assert all(ran)
