from dataclasses import replace

import pytest
import torch

import metaprior as mp
from benchmarks.common.processes import in_own_process
from benchmarks.common.result import Row
from benchmarks.hierarchy import comparison as hierarchy
from benchmarks.hierarchy.collapsed import GaussianProcess
from benchmarks.hierarchy.comparison import AMORTISED, Descent, Settings
from benchmarks.hierarchy.gains import ALONE, HIERARCHICAL, SAME, Cell, gain
from benchmarks.hierarchy.memory import Job, LinearTasks, measure_training
from metaprior.evaluation import Evaluation
from tests.benchmarks.tiny import TINY as ALL

TINY: Settings = ALL["hierarchy"]


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
    monkeypatch.setattr("benchmarks.common.budget._steps_within", lambda *_: 2)
    for shift in (0.0, 100.0):
        same, new = (
            [t._replace(query=mp.Examples(t.query.x, t.query.y + shift)) for t in hierarchy.waves(seed, 2, 3, TINY)]
            for seed in (1, 2)
        )
        hierarchy.METHODS[method](same, new, TINY)
    assert len(seen) == 8
    for before, after in zip(seen[:4], seen[4:], strict=True):
        assert torch.equal(before, after)


def test_alone_is_bayes_by_backprop() -> None:
    """Both agree to rounding without a warm-up of the KL, whose shape differs."""
    tasks, module = hierarchy.waves(1, 1, 6, TINY), hierarchy.network(TINY)
    learner = hierarchy.fitted(tasks, hierarchy.fixed_prior(TINY), Descent(2, 2, 0.0), TINY)
    plain = mp.BayesByBackprop(module, mp.Gaussian(noise=0.1), prior=mp.NormalPrior(1.0), standardize=False)
    plain.fit(*tasks[0].support, epochs=4, lr=TINY.lr, samples=1, kl_warmup=0.0, progress=False)
    one, other = learner.posterior(tasks[0].name).weights, plain.posterior_.weights
    assert torch.allclose(one.mu, other.mu, atol=1e-5)
    assert torch.allclose(one.rho, other.rho, atol=1e-5)


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
    row = in_own_process(measure_training, Job(tasks=3, hidden=4, observations=5, epochs=2))
    assert (row["tasks"], row["weights"]) == (3, (10 + 1) * 4 + (4 + 1) * 4 + 5)
    assert 0.05 < row["peak_gib"] < 2
    record = 6 * row["weights"] * 4
    assert 3 * record <= row["disk_gib"] * 2**30 < 3 * 2 * record + 65536


def test_tasks_are_made_anew_and_are_the_same() -> None:
    tasks = LinearTasks(4, 5)
    assert len(tasks) == 4
    assert torch.equal(tasks[3].support.y, tasks[3].support.y)
    assert not torch.equal(tasks[3].support.x, tasks[2].support.x)
    with pytest.raises(IndexError, match="index must be below 4, got 4"):
        tasks[4]


def test_the_gaussian_process_is_exact() -> None:
    """Posterior against the joint Gaussian of support and query."""
    tasks = hierarchy.waves(1, 3, 5, TINY)
    process = GaussianProcess.of_largest_evidence(tasks, 0.1)
    (x, y), query = (part.double() for part in tasks[0].support), tasks[0].query.x.double()
    everything = torch.cat([x, query])
    covariance = process.kernel(everything, everything)
    gain = covariance[5:, :5] @ torch.linalg.inv(covariance[:5, :5] + 0.01 * torch.eye(5))
    forecast = process.adapted(tasks[0].support, 0).predict(tasks[0].query.x)
    torch.testing.assert_close(forecast.mean, process.mean + gain @ (y - process.mean))
    variance = (covariance[5:, 5:] - gain @ covariance[:5, 5:]).diagonal()[:, None] + 0.01
    torch.testing.assert_close(forecast.std, variance.sqrt())
    xs, ys = (torch.stack([task.support[part] for task in tasks]).double() for part in (0, 1))
    best = process.log_evidence(xs, ys)
    for change in ({"length": 1.1 * process.length}, {"amplitude": 0.9 * process.amplitude}):
        assert replace(process, **change).log_evidence(xs, ys) < best
