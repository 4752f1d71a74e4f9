"""The prior of the package: it is there, small, and better with every day on plants that it has not seen."""

from dataclasses import replace

import numpy as np
import torch

from metaprior.solar.sites.forecaster import PRIOR, SiteForecaster
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from metaprior.solar.sites.tasks import weeks_of
from metaprior.solar.sites.training import SPREAD, hours_of

ARRAYS = ("first", "power", "clear", "sun", "place", "base")


def test_the_packaged_prior_gains_by_days_and_covers_unseen_simulated_plants() -> None:
    learner = SiteForecaster.pretrained().learner
    assert learner.calibration_ == SPREAD
    assert sum(file.stat().st_size for file in PRIOR.rglob("*")) < 3e6
    assert "What it is not for" in (PRIOR / "card.md").read_text()
    fleet = simulate_fleet(8, 45, seed=12345, clear_power=True)
    hours = hours_of(fleet, seed=12345)
    tasks = []
    for plant in range(len(fleet)):
        own = replace(hours, **{name: getattr(hours, name)[plant : plant + 1] for name in ARRAYS})
        tasks += weeks_of(own.without_place(), weeks=2, light=own.sun[0, :, 0] > 0)
    rows = learner.evaluate(tasks, shots=(0, 1, 7), samples=2, progress=False).rows
    errors = [row["rmse"] for row in rows]
    assert errors[1] < 0.85 * errors[0]
    assert errors[2] < errors[1]
    assert all(0.8 < row["coverage_90"] < 0.97 for row in rows)
    assert np.isfinite(errors).all()
    assert torch.isfinite(learner.theta_.plain["output.weight"]).all()
