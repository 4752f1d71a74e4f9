import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import metaprior as mp
from benchmarks.adaptation import comparison
from benchmarks.adaptation.exact import Particles
from benchmarks.adaptation.problems import PROBLEMS, LinearGaussian, between, wave
from benchmarks.adaptation.scoring import Remembered, over_trainings, rows_of_training
from benchmarks.adaptation.ways import CLOSED_FORM
from benchmarks.common.benchmark import Context
from benchmarks.common.registry import find
from metaprior.tasks.waves import AMPLITUDES, PHASES, Sinusoids
from tests.benchmarks.tiny import TINY as ALL

TINY: comparison.Settings = ALL["adaptation"]


def test_particles_have_the_moments_of_the_posterior_on_a_grid() -> None:
    task = Sinusoids(k_shot=3, k_query=7, noise=0.1, seed=3)[1]
    shares = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    u = torch.stack(torch.meshgrid(shares, shares, indexing="ij"), -1).reshape(-1, 2)
    x, y = task.support.x[:, 0].double(), task.support.y[:, 0].double()
    weights = torch.softmax(-(y - wave(u, x)).square().sum(1) / (2 * 0.1**2), 0)
    curves = wave(u, task.query.x[:, 0].double())
    mean = weights @ curves
    std = (weights @ (curves - mean).square() + 0.1**2).sqrt()
    found = Particles(wave, 2, 0.1, kept=1000).adapted(task.support).predict(task.query.x)
    assert torch.allclose(found.mean[:, 0], mean, atol=0.3 * float(std.max()))
    assert torch.allclose(found.std[:, 0], std, rtol=0.15)


def test_particles_without_examples_are_the_prior() -> None:
    u = Particles(wave, 2, 0.1, kept=1000).adapted(None).u
    for column, limits in enumerate((AMPLITUDES, PHASES)):
        assert float(between(limits, u[:, column]).mean()) == pytest.approx(sum(limits) / 2, rel=0.1)


def test_the_exact_posterior_of_linear_tasks_is_that_of_dense_linear_algebra() -> None:
    source = LinearGaussian(k_shot=4, k_query=3, seed=5)
    task, (mean, factor) = source[0], source.prior
    x, y = (torch.cat([torch.ones(4, 1), task.support.x], 1).double(), task.support.y.double())
    prior = factor @ factor.mT
    joint = x @ prior @ x.mT + source.noise**2 * torch.eye(4)
    gain = prior @ x.mT @ torch.linalg.inv(joint)
    found = source.adapted(task.support)
    assert torch.allclose(found.mean, mean + gain @ (y - x @ mean))
    assert torch.allclose(found.covariance, prior - gain @ x @ prior)
    assert float(found.predict(task.query.x).std.min()) > source.noise


def test_forecasts_are_made_once_and_widened_by_the_calibration() -> None:
    made = []

    def adapt(support: mp.Examples | None, steps: int) -> object:
        made.append(support)
        return LinearGaussian().adapted(support)

    remembered = Remembered(adapt)  # type: ignore[arg-type]
    task = LinearGaussian()[0]
    plain = remembered(task.support).predict(task.query.x, samples=2, seed=0)
    remembered.calibration = mp.calibration.CalibrationByShots((0,), (2.0,))
    wide = remembered(task.support).predict(task.query.x, samples=2, seed=0)
    assert len(made) == 1
    assert torch.allclose(wide.std, 2 * plain.std)


def test_rows_have_scores_with_and_without_the_fitted_spread() -> None:
    source, shots = LinearGaussian(k_shot=5), (0, 5)
    tasks = [source[index] for index in range(8)]
    narrow = replace(source, noise=0.1)
    with_scales = rows_of_training(narrow.adapted, tasks, tasks, shots, 2)  # type: ignore[arg-type]
    without = rows_of_training(narrow.adapted, tasks, tasks, shots, 2, calibrate=False)  # type: ignore[arg-type]
    for one, other in zip(with_scales, without, strict=True):
        assert one["nll_raw"] == other["nll"] == other["nll_raw"]
        assert one["mse"] == pytest.approx(other["mse"])
    assert with_scales[1]["nll"] < without[1]["nll"]


def test_rows_over_trainings_are_means_with_the_lowest_and_the_highest() -> None:
    one, other = ([{"shots": 5, "nll": value, "failed": 1}] for value in (1.0, 3.0))
    (row,) = over_trainings("waves", "way", [one, other])
    assert (row["nll"], row["nll_low"], row["nll_high"], row["failed"], row["trainings"]) == (2.0, 1.0, 3.0, 2, 2)


def test_fine_tuning_takes_the_step_size_of_lowest_nll() -> None:
    problem = PROBLEMS["linear"]
    recipe = problem.recipes[comparison.TUNED]
    network = recipe.learner(0).start(problem.tasks(1, 5, 5))
    tasks = comparison.tasks_for(problem, 2, 3, TINY)
    chosen = comparison.best_tuned(network, problem, tasks, replace(TINY, tuned_steps=(1, 3)))
    assert isinstance(chosen.adaptation, mp.Descent)
    assert chosen.adaptation.lr in problem.tuned_lr
    assert torch.equal(chosen.theta_.mu, network.theta_.mu)


def test_one_part_can_be_run_alone_and_leaves_the_others_out_of_the_headline() -> None:
    benchmark = find("adaptation")
    settings = replace(TINY, trainings=1)
    result = benchmark.run(settings=settings, parts=["hierarchy"], workers=0)
    assert sorted(result.headline) == ["coverage_10x5", "coverage_3x5", "mse_50x5", "nll_50x5"]
    assert all(math.isfinite(value) for value in result.headline.values())
    with pytest.raises(ValueError, match=r"parts must be among sinusoid, .*, got moon"):
        benchmark.run(settings=settings, parts=["moon"], workers=0)
    with pytest.raises(ValueError, match="uci has none"):
        find("uci").run(quick=True, parts=["x"], workers=0)


def test_frames_are_forecast_after_no_and_after_five_examples(short_search: None) -> None:
    job = comparison.Job("blobs", CLOSED_FORM)
    rows = comparison.measure_training(Context(TINY, Path()), job)
    assert [row["shots"] for row in rows] == [0, 5]
    assert all(math.isfinite(row["nll"]) for row in rows)


def test_training_validation_and_test_tasks_are_different() -> None:
    assert len({comparison.TRAINING_SEED, comparison.VALIDATION_SEED, comparison.TEST_SEED}) == 3
