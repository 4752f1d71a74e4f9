import math

import pytest
import torch

from benchmarks import robustness
from benchmarks.common.result import Row
from tests.benchmarks.tiny import TINY as ALL

TINY: robustness.Settings = ALL["robustness"]


def _row(**changes: object) -> Row:
    good = {"problem": "p", "nets": "on", "rmse": 1.0, "failed": 0, "finite_theta": "yes", "stopped": "no"}
    return {**good, **changes}


def test_the_headline_counts_what_went_wrong() -> None:
    rows = [_row(), _row(rmse=1.2), _row(nets="off"), _row(nets="off", failed=1, finite_theta="no", stopped="yes")]
    headline = robustness.headline_of(rows)
    assert headline == {
        "worst_over_best_p": pytest.approx(1.2),
        "worst_over_best_p_without": math.inf,
        "non_finite_theta": 0,
        "non_finite_theta_without": 1,
        "stopped": 0,
        "stopped_without": 1,
    }


def test_a_network_that_cannot_be_scored_is_counted_and_not_hidden() -> None:
    case, _ = robustness.cases(TINY)
    learner = robustness.learner_for(case, 0.01, TINY, nets=True).start(case.tasks(1))
    learner.theta_ = learner.theta_.replace(mu=torch.full_like(learner.theta_.mu, 1e38))
    row = robustness._scores(learner, case, TINY)
    assert row["failed"] == 2
    assert math.isnan(row["rmse"])


def test_without_nets_the_step_size_is_the_given_one_and_steps_are_not_damped() -> None:
    _, unet = robustness.cases(TINY)
    off = robustness.learner_for(unet, 0.5, TINY, nets=False)
    assert (off.problem().inner.lr, off.problem().inner.damped) == (0.5, False)
    assert {name.split(".")[0] for name in off.network.layout.names} == {"decoder2", "output"}
