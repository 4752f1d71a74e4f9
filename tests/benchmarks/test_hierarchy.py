"""What is compared with what, and what the numbers are made of; nothing is asserted about who wins."""

import json
import math
import subprocess
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import metaprior as mp
from benchmarks import hierarchy, hierarchy_memory
from benchmarks.__main__ import app
from benchmarks.hierarchy import AMORTISED, Descent, Settings
from benchmarks.hierarchy_gains import ALONE, HIERARCHICAL, NEW, SAME, Cell, gain
from benchmarks.result import BenchResult, Row
from metaprior.evaluation import Evaluation

TINY = Settings(
    observations=(3, 6),
    tasks=(1, 2),
    test_tasks=2,
    held_out=5,
    hidden=(4,),
    alone=Descent(1, 3, 0.5),
    together=Descent(2, 2, 0.25),
    adapt_steps=2,
    amortised_seconds=0.1,
    inner_steps=1,
    amortised_steps=2,
    meta_batch=2,
    samples=3,
    memory_tasks=(2, 4),
    memory_hidden=3,
)


def test_every_method_with_every_number_of_data_and_of_tasks(
    short_search: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hierarchy, "run_all", lambda function, jobs, **_: [function(job) for job in jobs])
    monkeypatch.setattr(hierarchy_memory, "in_own_process", lambda job: {"weights": 7, "peak_gib": 1 + job.tasks})
    result = hierarchy.run(settings=TINY)
    rows = {(row["method"], row["tasks"], row["observations"], row["on"]): row for row in result.rows if "on" in row}
    methods = (ALONE, HIERARCHICAL, AMORTISED)
    assert rows.keys() == {(m, t, n, on) for m in methods for t in (1, 2) for n in (3, 6) for on in (SAME, NEW)}
    for (_, tasks, _, on), row in rows.items():
        assert (row["scored"], row["failed"]) == (tasks if on == SAME else 2, 0)
        assert all(math.isfinite(row[measure]) for measure in ("mse", "nll", "coverage_90"))
    assert result.headline["hvi_memory_ratio"] == pytest.approx(5 / 3)
    for name, corner in {"gain_few_data": (2, 3, SAME), "gain_many_data_few_tasks": (1, 6, SAME)}.items():
        assert result.headline[name] == pytest.approx(rows[ALONE, *corner]["mse"] / rows[HIERARCHICAL, *corner]["mse"])
    assert result.headline["coverage_hierarchical"] == rows[HIERARCHICAL, 2, 3, SAME]["coverage_90"]
    assert result.settings["bench"] == "hierarchy"
    hierarchy.draw(result, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_more_data_contain_fewer_and_held_out_points_are_the_same() -> None:
    few, many = (hierarchy.waves(1, 2, count, TINY) for count in (3, 6))
    for one, other in zip(few, many, strict=True):
        assert torch.equal(one.support.x, other.support.x[:3])
        assert torch.equal(one.query.y, other.query.y)
        assert not any(bool((one.query.x == x).any()) for x in other.support.x)
    assert hierarchy.TRAINING_SEED != hierarchy.TEST_SEED


@pytest.mark.parametrize("method", [ALONE, HIERARCHICAL, AMORTISED])
def test_nobody_learns_from_held_out_points(method: str, short_search: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every posterior that is scored stays the same when held-out targets change."""
    seen: list[torch.Tensor] = []
    scored = hierarchy._scored

    def recording(adapted: hierarchy.Adapt, *rest: object) -> Evaluation:
        def kept(support: mp.Examples | None, steps: int) -> mp.Posterior:
            posterior = adapted(support, steps)
            seen.append(posterior.weights.mu)
            return posterior

        return scored(kept, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(hierarchy, "_scored", recording)
    monkeypatch.setattr("benchmarks.budget._steps_within", lambda *_: 2)
    for shift in (0.0, 100.0):
        same, new = (
            [t._replace(query=mp.Examples(t.query.x, t.query.y + shift)) for t in hierarchy.waves(seed, 2, 3, TINY)]
            for seed in (1, 2)
        )
        hierarchy.MEASURE[method](same, new, TINY)
    assert len(seen) == 8
    for before, after in zip(seen[:4], seen[4:], strict=True):
        assert torch.equal(before, after)


def test_alone_is_bayes_by_backprop() -> None:
    """To rounding (but for the shape of the KL's warm-up, which is therefore off)."""
    tasks, module = hierarchy.waves(1, 1, 6, TINY), hierarchy.network(TINY)
    learner = hierarchy.fitted(tasks, hierarchy.fixed_prior(TINY), Descent(2, 2, 0.0), TINY)
    plain = mp.BayesByBackprop(module, mp.Gaussian(noise=0.1), prior=mp.NormalPrior(1.0), standardize=False)
    plain.fit(*tasks[0].support, epochs=4, lr=TINY.lr, samples=1, kl_warmup=0.0, progress=False)
    for one, other in zip(learner.posterior(tasks[0].name).weights[:2], plain.posterior_.weights[:2], strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def cell(method: str, errors: dict[int, float], failed: int = 0) -> Cell:
    found: list[Row] = [{"index": i, "mse": mse, "nll": 0.0, "coverage_90": 0.5} for i, mse in errors.items()]
    return Cell(method, 2, 3, SAME, found, failed)


def test_the_gain_is_paired() -> None:
    """Over tasks that both have; where every task gains by the same factor, nothing is uncertain about it."""
    cells = [cell(ALONE, {0: 2.0, 1: 20.0, 2: 8.0}), cell(HIERARCHICAL, {0: 1.0, 1: 10.0}, failed=1)]
    assert gain(cells, 2, 3, SAME) == pytest.approx((2.0, 0.0))
    cells = [cell(ALONE, {0: 3.0, 1: 1.0}), cell(HIERARCHICAL, {0: 1.0, 1: 1.0})]
    assert gain(cells, 2, 3, SAME) == pytest.approx((2.0, 1.0))


def test_a_row_has_means_and_standard_errors_over_tasks() -> None:
    row = cell(ALONE, {0: 1.0, 1: 3.0}, failed=1).row()
    assert (row["mse"], row["mse_se"], row["scored"], row["failed"]) == (2.0, pytest.approx(1.0), 2, 1)


def test_memory_is_measured_in_a_process_of_its_own() -> None:
    job = hierarchy_memory.Job(tasks=3, hidden=4, observations=5, epochs=2)
    assert hierarchy_memory.parse(job.arguments()) == job
    row = hierarchy_memory.in_own_process(job)
    assert (row["tasks"], row["weights"]) == (3, (10 + 1) * 4 + (4 + 1) * 4 + 5)
    assert 0.05 < row["peak_gib"] < 2
    record = 6 * row["weights"] * 4
    assert 3 * record <= row["disk_gib"] * 2**30 < 3 * 2 * record + 65536


def test_a_process_that_fails_says_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="no space left on device")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(RuntimeError, match=r"--tasks 9 .*failed \(1\):\nno space left"):
        hierarchy_memory.in_own_process(hierarchy_memory.Job(tasks=9))


def test_tasks_are_made_anew_and_are_the_same() -> None:
    tasks = hierarchy_memory.LinearTasks(4, 5)
    assert len(tasks) == 4
    assert torch.equal(tasks[3].support.y, tasks[3].support.y)
    assert not torch.equal(tasks[3].support.x, tasks[2].support.x)
    with pytest.raises(IndexError, match="there are 4 tasks, got index 4"):
        tasks[4]


def test_the_command_writes_a_picture_beside_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {**cell(method, {0: 1.0, 1: 2.0}).row(), "tasks": tasks} for method in (ALONE, HIERARCHICAL) for tasks in (2, 5)
    ]
    result = BenchResult({"gain_few_data": 2.0}, [*rows, {"method": "memory"}], {"noise": 0.1})
    monkeypatch.setattr(hierarchy, "run", lambda **_: result)
    done = CliRunner().invoke(app, ["hierarchy", "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out.json").read_text())["headline"] == {"gain_few_data": 2.0}
    assert (tmp_path / "out.png").stat().st_size > 1000
