import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import omniglot
from metaprior.forecasts import CategoricalForecast
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.scores import Reliability
from metaprior.tasks.task import Examples
from tests.benchmarks.tiny import TINY as ALL

TINY: omniglot.Settings = ALL["omniglot"]


def test_anil_is_the_same_code_with_a_point_prior() -> None:
    abml, maml = (omniglot.learner(method, TINY) for method in (omniglot.ABML, omniglot.ANIL))
    assert (maml.relative_sigma, maml.problem().inner.kl_weight, maml.objective) == (0.0, 0.0, "query")
    assert (abml.objective, abml.problem().inner.kl_weight) == ("predictive", TINY.kl_weight)
    assert (abml.problem().inner.samples, maml.problem().inner.samples) == (TINY.inner_samples, 1), (
        "samples of a point are all the same"
    )
    assert abml.network.layout.names == maml.network.layout.names == ("head.weight", "head.bias")
    sigma = abml.network.initial(abml.relative_sigma).sigma
    assert torch.allclose(sigma, torch.full_like(sigma, TINY.sigma))
    for field in ("steps", "lr", "learn_lr", "adapt", "momentum", "damped"):
        assert getattr(abml.problem().inner, field) == getattr(maml.problem().inner, field)
    for one, other in zip(abml.network.module.parameters(), maml.network.module.parameters(), strict=True):
        assert torch.equal(one, other)


def forecasts() -> list[tuple[CategoricalForecast, Tensor]]:
    generator = Noise(1).generator()
    return [
        (
            CategoricalForecast(3 * torch.randn(4, 12, 5, generator=generator)),
            torch.randint(5, (12,), generator=generator),
        )
        for _ in range(6)
    ]


def test_added_counts_give_the_calibration_error_of_all_labels_together() -> None:
    counts = sum(omniglot.counts_of(forecast, labels) for forecast, labels in forecasts())
    together = CategoricalForecast(torch.cat([forecast.logits for forecast, _ in forecasts()], 1))
    expected = Reliability(omniglot.BINS)
    expected.add(together, torch.cat([labels for _, labels in forecasts()]))
    assert omniglot.pooled_ece(np.asarray(counts)) == pytest.approx(expected.ece, abs=1e-6)


def test_a_row_has_means_over_the_tasks_that_did_not_fail_and_a_bootstrapped_error() -> None:
    found = [omniglot.TaskScore(a, 2 * a, omniglot.counts_of(*pair)) for a, pair in enumerate(forecasts())]
    row = omniglot.row_of("x", 5, omniglot.Measured([*found, None], {"steps": 7}))
    assert (row["tasks"], row["failed"], row["steps"]) == (6, 1, 7)
    assert (row["accuracy"], row["nll"]) == (2.5, 5.0)
    assert row["accuracy_se"] == pytest.approx(math.sqrt(17.5 / 5 / 6))
    counts = np.stack([score.counts for score in found])
    drawn = np.random.default_rng(0).integers(6, size=(4000, 6))
    by_hand = np.std([float(omniglot.pooled_ece(counts[rows].sum(0))) for rows in drawn])
    assert row["ece_se"] == pytest.approx(by_hand, rel=0.15)


def test_tasks_that_are_the_same_leave_no_doubt() -> None:
    forecast, labels = forecasts()[0]
    same = omniglot.Measured([omniglot.TaskScore(0.5, 1.0, omniglot.counts_of(forecast, labels))] * 4, {})
    assert omniglot.row_of("x", 1, same)["ece_se"] == pytest.approx(0, abs=1e-12)
    difference = omniglot.difference_row("itself", 1, same, same)
    assert [difference[name] for name in ("accuracy", "nll", "ece", "ece_se")] == [0.0, 0.0, 0.0, 0.0]


def test_a_task_that_is_not_finite_is_counted_and_not_scored(made_up_data: Path) -> None:
    source = omniglot.tasks_of(made_up_data, "test", shots=1, k_query=4, seed=2)

    def fails(_: object) -> Any:
        raise FloatingPointError("the loss became nan")

    assert omniglot.score_tasks(fails, [source[0], source[1]], 2) == [None, None]


def test_a_task_is_counted_and_not_scored_where_only_the_forecast_is_not_finite(made_up_data: Path) -> None:
    """Adaptation ends at weights that are numbers, but too large for the network's output to be one."""
    source = omniglot.tasks_of(made_up_data, "test", shots=1, k_query=4, seed=2)
    tasks = [source[0], source[1]]
    learner = omniglot.learner(omniglot.ANIL, TINY).start(source)

    def adapt(support: Examples) -> Posterior:
        posterior = learner.prior_predictive()
        if support is tasks[0].support:
            mu = torch.full_like(posterior.weights.mu, 3e38)
            posterior = replace(posterior, weights=posterior.weights.replace(mu=mu))
        return posterior

    assert adapt(tasks[0].support).weights.mu.isfinite().all()
    bad, good = omniglot.score_tasks(adapt, tasks, 2)
    assert bad is None
    assert good is not None
    assert math.isfinite(good.nll)


def test_other_errors_of_a_forecast_are_errors(made_up_data: Path) -> None:
    source = omniglot.tasks_of(made_up_data, "test", shots=1, k_query=4, seed=2)
    learner = omniglot.learner(omniglot.ANIL, TINY).start(source)
    with pytest.raises(ValueError, match="samples"):
        omniglot.score_tasks(lambda _: learner.prior_predictive(), [source[0]], 0)
