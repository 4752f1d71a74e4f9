import math
from dataclasses import replace

import pytest
import torch

from benchmarks import warmstart
from metaprior.evaluation import Evaluation
from metaprior.tasks.sinusoids import Sinusoids

TINY = warmstart.Settings(
    sinusoid_seconds=0.2,
    blobs_seconds=0.3,
    frame=8,
    width=2,
    tuned_noise_lr=(1e-4,),
    tuned_steps=(1,),
    abml_steps=(5,),
    abml_factors=(1.0,),
    abml_noise_factors=(1.0, 2.0),
    validation_tasks=2,
    test_tasks=3,
    test_samples=2,
)


def test_the_headline_is_the_worst_ratio_of_the_rows(short_search: None) -> None:
    result = warmstart.run(settings=TINY)
    rows = {(row["problem"], row["method"], row["chosen_by"]): row for row in result.rows}
    for ratio, measure in (("error_ratio", "rmse"), ("nll_ratio", "nll")):
        waves, frames = (rows[problem, warmstart.OURS, measure] for problem in ("sinusoid", "drifting blobs"))
        assert result.headline[f"{ratio}_finetuned"] == max(waves[ratio], frames[ratio])
        assert result.headline[f"{ratio}_finetuned_drifting_blobs"] == frames[ratio]
        tuned = rows["drifting blobs", warmstart.TUNED, measure]
        by_hand = {
            "rmse": frames["rmse"] / tuned["rmse"],
            "nll": math.exp((frames["nll"] - tuned["nll"]) / (2 * 8 * 8)),
        }
        assert frames[ratio] == pytest.approx(by_hand[measure])
        assert tuned[ratio] == pytest.approx(1.0)
        assert min(frames["warm_steps"], frames["meta_steps"]) > 0
    assert rows["drifting blobs", warmstart.POOLED, ""]["meta_steps"] == 0


def test_factors_multiply_the_learned_step_sizes_and_leave_the_learner_alone() -> None:
    learner = warmstart.meta_learner(warmstart.sinusoid(TINY)).start(Sinusoids())
    before = learner.theta_.log_lr.clone()
    paced = warmstart.paced_learner(learner, warmstart.Pace(3, factor=0.1, noise_factor=5.0))
    expected = 0.1 * before.exp()
    expected[-1] *= 5  # the only plain parameter, and so the last one
    torch.testing.assert_close(paced.theta_.log_lr.exp(), expected)
    assert torch.equal(learner.theta_.log_lr, before)


def _evaluation(errors: dict[int, float]) -> Evaluation:
    return Evaluation([], [{"index": index, "rmse": error} for index, error in errors.items()], {})


def test_differences_are_paired_by_task() -> None:
    one, other = _evaluation({0: 1.0, 1: 5.0, 2: 9.0}), _evaluation({1: 4.0, 0: 3.0})
    difference = warmstart.paired_difference(one, other, "rmse")
    assert difference.mean == pytest.approx((-2.0 + 1.0) / 2)
    assert difference.standard_error == pytest.approx(1.5)  # of -2 and 1: std 3 / sqrt(2), over sqrt(2)


def test_fine_tuning_is_plain_gradient_descent_on_the_support_set() -> None:
    problem = warmstart.sinusoid(TINY)
    pooled = warmstart.pooled_learner(problem).start(Sinusoids())
    support = Sinusoids()[0].support
    tuned = warmstart.tuned_learner(pooled, warmstart.Tuning(lr=0.02, noise_lr=0.3, steps=1))
    adapted = tuned.adapt(support).weights

    module, rho = pooled.network.module, pooled.theta_.plain["likelihood.rho"].detach().clone().requires_grad_()
    scale = torch.nn.functional.softplus(rho)
    loss = -torch.distributions.Normal(module(support.x), scale).log_prob(support.y).mean()
    loss.backward()
    expected = torch.cat([(p - 0.02 * p.grad).flatten() for p in module.parameters() if p.grad is not None])
    assert rho.grad is not None
    torch.testing.assert_close(adapted.mu, expected)
    torch.testing.assert_close(adapted.plain["likelihood.rho"], rho - 0.3 * rho.grad)


def test_the_best_tuning_is_found_among_step_sizes_and_steps() -> None:
    settings = replace(TINY, tuned_steps=(1, 3), tuned_noise_lr=(1e-6, 1e-5))
    problem = replace(warmstart.sinusoid(settings), tuned_lr=(1e-9, 1e-2, 1e9))
    pooled = warmstart.pooled_learner(problem).start(Sinusoids())
    best = warmstart.tunings(pooled, problem, settings)["rmse"]
    assert (best.lr, best.steps) == (1e-2, 3)  # a fresh network: more is better, 1e-9 is nothing, 1e9 explodes
    log_lr = warmstart.tuned_learner(pooled, best).theta_.log_lr
    assert len(log_lr.unique()) == 2
