"""Scores of earlier moments are those of the formulas, and intervals are judged by factors of other moments."""

import math

import numpy as np
import torch

from metaprior.solar.maps.nowcast.backtest import (
    FLOW,
    OURS,
    PERSISTENCE,
    SMART,
    SUN,
    Backtest,
    backtest,
    score_forecast,
    score_points,
)
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.inputs import LEADS
from tests.solar.maps.nowcast.small import moments, nowcaster


def checked() -> tuple[Backtest, list[Batch]]:
    archive, own = moments(), nowcaster()
    positions = archive.whole()[[0, 4, 8]]
    windows = [archive.batch(int(one)) for one in positions]
    return backtest([own.predict(one) for one in windows], windows, archive.times[positions]), windows


def test_rows_have_every_method_and_lead_time() -> None:
    result, _ = checked()
    rows = result.rows()
    assert {row["method"] for row in rows} == {OURS, PERSISTENCE, SMART, FLOW, SUN}
    assert [row["lead_minutes"] for row in rows if row["method"] == OURS] == [15.0, 30.0, 45.0, 60.0, "all"]
    assert all(
        math.isfinite(row["rmse"]) and row["crps"] <= row["mae"] * 1.001 for row in rows if row["method"] != OURS
    )


def test_persistence_scores_are_those_of_the_last_frame() -> None:
    result, windows = checked()
    expected = [np.nanmean((one.targets - one.frames[:, -1:]).numpy() ** 2, (0, 2, 3)) for one in windows]
    found = [one.squared for one in result.scores[PERSISTENCE]]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_missing_targets_are_left_out() -> None:
    archive, own = moments(), nowcaster()
    window = archive.batch(int(archive.whole()[0]))
    targets = window.targets.clone()
    targets[..., :10, :] = math.nan
    forecast = own.predict(window)
    whole = score_forecast(forecast, targets)
    assert np.isfinite(whole.crps).all()
    assert np.isfinite(whole.covered).all()
    targets[:, -1] = math.nan
    assert math.isnan(score_forecast(forecast, targets).crps[-1])


def test_the_crps_of_a_point_is_that_of_its_best_spread() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = [torch.randn(1, LEADS, 50, 60, generator=generator) for _ in range(3)]
    found = score_points([torch.zeros_like(one) for one in targets], targets)
    best = np.mean([one.crps for one in found])
    assert abs(best - 1 / math.sqrt(math.pi)) < 0.01


def test_a_row_of_each_method_has_its_skill_by_lead_time() -> None:
    result, _ = checked()
    rows = {row["method"]: row for row in result.by_method()}
    assert set(rows) == {OURS, PERSISTENCE, SMART, FLOW, SUN}
    every = next(row for row in result.rows() if row["method"] == FLOW and row["lead_minutes"] == "all")
    last = next(row for row in result.rows() if row["method"] == FLOW and row["lead_minutes"] == 60)
    assert rows[FLOW]["crps"] == every["crps"]
    assert rows[FLOW]["skill_60min"] == last["skill_persistence"]
    assert rows[PERSISTENCE]["skill_15min"] == 0
