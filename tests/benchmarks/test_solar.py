"""The comparison of forecast maps, on the simulator at a small scale; where Himawari-9 frames are there, their days."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.common.data import HIMAWARI
from benchmarks.solar import comparison as solar
from benchmarks.solar import methods as solar_methods
from benchmarks.solar.archives import Archive, himawari, simulated
from benchmarks.solar.methods import Found
from benchmarks.solar.plain_network import PlainNetwork
from benchmarks.solar.settings import Settings
from metaprior.forecasts import GaussianForecast
from metaprior.likelihoods import CRPSGaussian
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.tasks.task import Examples, Task
from tests.benchmarks.tiny import TINY as ALL
from tests.conftest import folder_with

TINY: Settings = ALL["solar"]


@pytest.fixture(scope="module")
def archive() -> Archive:
    return simulated(days=9, size=40, patch=16, seed=3)


def test_simulated_places_and_days_of_the_test_are_unseen(archive: Archive) -> None:
    train, test = archive.frames["train"], archive.frames["test"]
    assert not set(train["longitude"].values) & set(test["longitude"].values)
    assert archive.days["validation"].first - archive.days["train"].stop >= np.timedelta64(1, "D")
    assert archive.days["test"].first - archive.days["validation"].stop >= np.timedelta64(1, "D")


def test_the_true_distribution_beats_persistence(archive: Archive) -> None:
    (persistence,) = (
        one for name, one in solar_methods.references(archive, TINY).items() if name == "smart persistence"
    )
    crps = persistence.scores.row()["crps"]
    assert 0 < solar_methods.true_crps(archive, TINY) < 0.9 * crps


def test_all_adapted_moves_what_is_not_random(archive: Archive) -> None:
    plain = solar_methods.train_plain(archive, TINY, CRPSGaussian(), 0.1).network
    head, everything = (
        solar_methods.meta_learner(archive, TINY, plain, preset, point=False) for preset in TINY.presets
    )
    assert head.network.layout.names == everything.network.layout.names
    assert not head.problem(1).adapted_names
    assert set(everything.problem(1).adapted_names) == set(everything.network.plain_names)


@pytest.mark.parametrize("outcome", [FloatingPointError("mu is nan"), math.nan, math.inf])
def test_a_choice_that_leaves_the_finite_numbers_is_the_worst_one(archive: Archive, outcome: Exception | float) -> None:
    def method(task: Task, index: int) -> GaussianForecast:
        if isinstance(outcome, Exception):
            raise outcome
        return _spread(torch.full_like(task.query.y, outcome))

    assert solar_methods.validated(archive, TINY, method) == math.inf


def test_other_errors_of_a_choice_are_errors_whatever_their_words(archive: Archive) -> None:
    def method(task: Task, index: int) -> GaussianForecast:
        raise ValueError("an indefinite matter")

    with pytest.raises(ValueError, match="an indefinite matter"):
        solar_methods.validated(archive, TINY, method)


def test_hindsight_takes_off_a_bias_and_finds_the_scale() -> None:
    """A network that forecasts 0.5 +- 0.1 everywhere, and targets of 0.3 and 0.7 by lead time, with noise of 0.12."""
    raw = torch.tensor([0.5, 0.5, math.log(math.expm1(0.1)), math.log(math.expm1(0.1))])
    network = PlainNetwork(_Constant(raw), CRPSGaussian(), {})
    noise = 0.12 * torch.randn(4, 2, 16, 16, generator=torch.Generator().manual_seed(0))
    query = Examples(torch.zeros(4, 1, 16, 16), torch.tensor([0.3, 0.7]).view(2, 1, 1) + noise)
    forecast = solar_methods.in_hindsight(network)(Task(query, query, "a"), 0)
    torch.testing.assert_close(forecast.mean[0, :, 0, 0], query.y.mean((0, 2, 3)))
    torch.testing.assert_close(forecast.scales.unique(), torch.tensor([0.12]), rtol=0.02, atol=0)


class _Constant(nn.Module):
    def __init__(self, outputs: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("outputs", outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.outputs
        return outputs.view(1, -1, 1, 1).expand(len(x), -1, *x.shape[2:])


def _found(error: float, validation: float) -> Found:
    scores = LeadTimeScores([30, 60], value_range=1.0)
    targets = torch.zeros(1, 2, 12, 12)
    for task in ("a", "b"):
        forecast = torch.full_like(targets, error)
        scores.add(_spread(forecast), targets, task=task, references={"persistence": torch.full_like(targets, 0.5)})
    return Found(scores, 1.0, "", "", validation)


def _spread(point: torch.Tensor) -> GaussianForecast:
    return GaussianForecast(point.expand(2, *point.shape), torch.full((1,) * (point.ndim + 1), 0.1))


def test_the_headline_is_about_the_default_preset() -> None:
    found = {
        "ABML (head)": _found(0.3, validation=1.0),
        "ABML (all)": _found(0.1, validation=2.0),
        "ABML (head), not adapted": _found(0.4, validation=1.0),
        "pooled": _found(0.35, validation=1.0),
        "pooled, fine-tuned": _found(0.25, validation=1.0),
        "pooled, corrected in hindsight": _found(0.0, validation=1.0),
        "MAML": _found(0.2, validation=1.0),
        "ensemble of 3, fine-tuned": _found(0.3, validation=1.0),
    }
    headline = solar.headline_of(found, members=3)
    assert headline["skill_30"] == pytest.approx(1 - 0.3 / 0.5)
    assert headline["rmse_ratio_finetuned"] == pytest.approx(0.3 / 0.25)
    assert headline["crps_ratio_best_single"] > headline["crps_ratio_finetuned"] > 1  # MAML is the best single network
    assert headline["crps_ratio_ensemble"] == pytest.approx(1.0)
    assert 0 < headline["crps_ratio_hindsight"] < 0.2
    assert headline["rmse_ratio_adapted_60"] == pytest.approx(0.75)
    assert headline["tasks_covered_80"] == 0.0  # every error is three standard deviations
    assert math.isfinite(headline["coverage_90"])


def test_days_of_himawari() -> None:
    archive = himawari(folder_with(*HIMAWARI.files))
    assert str(archive.days["train"]) == "2026-01-28 to 2026-02-06"
    assert str(archive.days["test"]) == "2026-02-11 to 2026-02-15"
    assert archive.tasks("test", seed=0)[0].query.x.shape == (10, 4, 32, 32)
