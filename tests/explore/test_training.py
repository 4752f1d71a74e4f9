import base64
import json

import numpy as np
import pytest

from metaprior.explore.export import exported
from metaprior.explore.problems import PRIORS, PROBLEMS, WAYS, load_learner
from metaprior.explore.training import SHOTS, TEST_SEED, new_tasks, score_rows, trained

SCORES = json.loads((PRIORS / "scores.json").read_text(encoding="utf-8"))


def test_a_short_training_gives_a_learner_that_the_page_can_use() -> None:
    problem = PROBLEMS["sinusoids"]
    first, second = (trained(problem, WAYS["closed_form"], steps=10, validation_tasks=5) for _ in range(2))
    assert exported(first) == exported(second)
    tasks = new_tasks(problem, TEST_SEED, 5)
    rows = score_rows("sinusoids", "closed_form", first, tasks)
    assert [row["points"] for row in rows] == list(SHOTS)


@pytest.mark.parametrize("way", ["closed_form", "context"])
def test_stored_scores_are_those_of_the_packaged_learners(way: str) -> None:
    tasks = new_tasks(PROBLEMS["sinusoids"], TEST_SEED)
    found = load_learner("sinusoids", way).evaluate(tasks, shots=(5,), progress=False).rows[0]
    stored = next(row for row in SCORES if (row["problem"], row["way"], row["points"]) == ("sinusoids", way, 5))
    assert (found["rmse"], found["nll"]) == pytest.approx((stored["rmse"], stored["nll"]), abs=2e-3)
    assert found["coverage_90"] == pytest.approx(stored["coverage"], abs=2e-3)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("way", WAYS)
def test_points_help_and_bands_hold(problem: str, way: str) -> None:
    own = {row["points"]: row for row in SCORES if (row["problem"], row["way"]) == (problem, way)}
    assert own[20]["nll"] < own[5]["nll"] < own[1]["nll"] < own[0]["nll"]
    assert all(0.86 < row["coverage"] < 0.94 for row in own.values())


def test_stored_forecasts_of_plants_are_those_of_the_packaged_prior() -> None:
    pytest.importorskip("pvlib", reason="the extra solar is not installed")
    from metaprior.explore import plants
    from metaprior.solar.sites.forecaster import SiteForecaster
    from metaprior.solar.sites.simulator import simulate_fleet

    stored = json.loads((PRIORS / "plants.json").read_text(encoding="utf-8"))
    fleet = simulate_fleet(plants.FLEET, plants.RECORD, seed=plants.SEED, start=plants.START)
    truth = next(one for one in fleet.parameters if one.kind == "roof")
    case = plants.backtest_case(fleet.plants[truth.number], "unknown")
    begin = plants.first_hour(case, truth)
    again = plants.issued_forecasts(SiteForecaster.pretrained(), case, 3, begin)
    found, wanted = (
        np.frombuffer(base64.b64decode(text), "<u2").astype(int)
        for text in (again, stored["plants"][0]["forecasts"]["unknown"]["3"])
    )
    assert len(found) == 48 * 5 * 6
    assert np.abs(found - wanted).max() <= 2
