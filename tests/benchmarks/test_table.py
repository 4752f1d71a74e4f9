"""The tables' benchmark: scores of known distributions, the choice of settings, networks, and tables of groups."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.common.data import uci_rows, uci_split
from benchmarks.table.grouped_data import GROUPED, NEW_COUNTRIES
from benchmarks.table.networks import DeepEnsemble, Descent, DropoutSetting, Layers, MCDropout, mean_and_scale
from benchmarks.table.ours import BackpropBenchmark
from benchmarks.table.peer import Peer, Rows, Trained, Unit
from benchmarks.table.predictive import (
    CRPS_LEVELS,
    Normals,
    QuantileTable,
    crps,
    pinball,
    scores_of,
)
from benchmarks.table.settings import GROUPED_TABLES, Settings
from benchmarks.uci import Settings as UCISettings
from metaprior import mixture

RNG = np.random.default_rng(0)


def table(rows: int, seed: int = 0) -> Rows:
    """Return a sine wave in the first of three features of very different units, with noise of 0.1 around 5."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 3))
    return Rows(x * (1.0, 1000.0, 0.01) + (0, 500, 0), 5 + np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=rows))


# --- scores ---------------------------------------------------------------------------------------------------------


def test_scores_of_a_gaussian_are_the_closed_forms() -> None:
    mean, scale, y = RNG.normal(size=500), RNG.uniform(0.5, 2, 500), 1.5 * RNG.normal(size=500)
    z = (y - mean) / scale
    density, probability = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi), torch.special.ndtr(torch.tensor(z)).numpy()
    exact = scale * (z * (2 * probability - 1) + 2 * density - 1 / math.sqrt(math.pi))
    found = scores_of(Normals(mean[None], scale[None]), y)
    assert found.crps == pytest.approx(exact.mean(), rel=1e-3)
    assert found.nll == pytest.approx((-np.log(density) + np.log(scale)).mean(), rel=1e-12)
    assert found.rmse == pytest.approx(math.sqrt(np.square(mean - y).mean()), rel=1e-12)
    assert found.coverage_90 == np.mean(np.abs(z) <= 1.6448536269514722)


def test_crps_by_quantiles_is_that_of_a_mixture() -> None:
    means, scales, y = 2 * RNG.normal(size=(7, 60)), RNG.uniform(0.1, 1, (7, 60)), 2 * RNG.normal(size=60)
    weights = torch.full((7, 1), 1 / 7, dtype=torch.float64)
    exact = mixture.crps(*map(torch.tensor, (means, scales, y)), weights).numpy()
    assert np.abs(crps(Normals(means, scales), y) - exact).max() < 0.01 * exact.mean()


def test_blocks_of_quantiles_are_those_of_all_rows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    normals = Normals(RNG.normal(size=(3, 50)), RNG.uniform(1, 2, (3, 50)))
    whole = normals.quantiles((0.05, 0.5))
    monkeypatch.setattr("benchmarks.table.predictive.BLOCK", 40)
    np.testing.assert_allclose(normals.quantiles((0.05, 0.5)), whole, atol=1e-6)


def test_quantiles_are_interpolated_on_the_logistic_scale() -> None:
    levels = (0.05, 0.3, 0.5, 0.9)
    values = 2 + 3 * np.log(np.array(levels) / (1 - np.array(levels)))[:, None]
    for shuffled in (values, values[[1, 0, 2, 3]]):  # quantiles that crossed
        found = QuantileTable(levels, shuffled, 0.1).quantiles((0.01, 0.4, 0.99))[:, 0]
        np.testing.assert_allclose(found, 2 + 3 * np.log([1 / 99, 4 / 6, 99]))


def test_density_of_quantiles_integrates_to_one() -> None:
    forecast = QuantileTable((0.1, 0.5, 0.9), np.tile([[-1.0], [0.0], [3.0]], 20_001), 0.2)
    grid = np.linspace(-40, 60, 20_001)
    assert np.exp(forecast.log_prob(grid)).sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=1e-6)
    assert forecast.mean[0] == pytest.approx(forecast.quantiles(CRPS_LEVELS.tolist())[:, 0].mean())


@pytest.mark.parametrize(
    "predictive",
    [
        Normals(RNG.normal(size=(2, 9)), RNG.uniform(1, 2, (2, 9))),
        QuantileTable((0.2, 0.8), RNG.normal(size=(2, 9)), 0.3),
    ],
)
def test_scores_in_other_units(predictive: Normals | QuantileTable) -> None:
    y = RNG.normal(size=9)
    found, expected = scores_of(predictive.rescaled(-4, 10), -4 + 10 * y), scores_of(predictive, y)
    assert found.nll == pytest.approx(expected.nll + math.log(10))
    assert (found.crps, found.rmse) == pytest.approx((10 * expected.crps, 10 * expected.rmse))
    assert found.coverage_90 == expected.coverage_90


def test_pinball_loss() -> None:
    found = pinball(np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([0.5, 0.9]), np.array([0.0, 3.0]))
    np.testing.assert_allclose(found, [[1.0, 2.0], [0.4, 1.8]])


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="scores must be finite"):
        scores_of(Normals(np.array([[np.nan]]), np.ones((1, 1))), np.zeros(1))


# --- peers ----------------------------------------------------------------------------------------------------------


class Constant(Peer):
    """Says the same for every row; the setting is the mean, in units of the targets' standard deviation."""

    candidates = (1.0, 0.1, math.nan, 0.0)
    trained: list[tuple[Any, int, bool]]

    def train(self, setting: Any, rows: Rows, held_out: Rows | None) -> Trained:
        self.trained = [*getattr(self, "trained", []), (setting, len(rows.y), held_out is None)]
        return Trained(lambda x: Normals(np.full((1, len(x)), setting), np.ones((1, len(x)))), setting)


def test_settings_are_chosen_on_held_out_rows_and_trained_on_all() -> None:
    x, y = RNG.normal(size=(50, 2)), 7 + 2 * RNG.normal(size=50)
    peer = Constant(0, 1e9).fit(x, y)
    assert [(rows, final) for _, rows, final in peer.trained] == [(40, False)] * 4 + [(50, True)]
    assert peer.setting in (0.0, 0.1)
    assert peer.predictive(x[:3]).mean == pytest.approx(y.mean() + peer.setting * y.std())
    assert 0 <= peer.fit_seconds <= peer.total_seconds


def test_no_time_leaves_the_most_trusted_candidate() -> None:
    x, y = RNG.normal(size=(50, 2)), RNG.normal(size=50)
    peer = Constant(0, 0.0).fit(x, y)
    assert [setting for setting, *_ in peer.trained] == [1.0, 1.0]


def test_columns_are_standardised_except_plain_ones() -> None:
    x = np.column_stack([RNG.normal(3, 2, 100), np.full(100, 7.0), np.arange(100.0)])
    found = Unit.of(x, plain=(2,)).apply(x)
    np.testing.assert_allclose(found[:, 0].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(found[:, 0].std(), 1)
    np.testing.assert_array_equal(found[:, 1:], np.column_stack([np.zeros(100), np.arange(100.0)]))


def test_members_of_a_stack_are_networks_of_their_own() -> None:
    layers = Layers.drawn(3, 4, 2, torch.Generator().manual_seed(0))
    x = torch.randn(5, 4)
    for member, outputs in enumerate(layers(x.expand(3, -1, -1))):
        hidden = (x @ layers.first[member] + layers.first_bias[member]).relu()
        torch.testing.assert_close(outputs, hidden @ layers.last[member] + layers.last_bias[member])
    mean, scale = mean_and_scale(layers(x.expand(3, -1, -1)))
    assert mean.shape == scale.shape == (3, 5)
    assert bool((scale > 0).all())


def test_an_ensemble_sees_where_the_noise_is() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (600, 1))
    y = rng.normal(size=600) * np.where(x[:, 0] > 0, 1.0, 0.1)
    fitted = DeepEnsemble(0, 0.0)
    fitted.candidates = (Descent(600),)  # type: ignore[misc]
    low, high = fitted.fit(x, y).predictive(np.array([[-0.5], [0.5]])).quantiles((0.05, 0.95))
    assert (high - low)[1] > 4 * (high - low)[0]


def test_dropout_reads_its_noise_off_the_held_out_rows() -> None:
    train, held_out = (Rows(Unit.of(x).apply(x), y - 5) for x, y in (table(200), table(200, 1)))
    setting = DropoutSetting(Descent(800, dropout=0.01))
    _, found = MCDropout(0, 0.0).train(setting, train, held_out)
    assert found.descent == setting.descent
    assert 0.05 < found.noise < 0.3


def test_parts() -> None:
    assert Settings(parts=("uci", "waves")).grouped_tables == ["waves"]
    assert len(Settings(parts=("uci", "yacht")).uci_tables) == 7
    assert (Settings(parts=("yacht",)).uci_tables, Settings().grouped_tables) == (["yacht"], list(GROUPED_TABLES))
    with pytest.raises(ValueError, match="parts must be among uci, grouped, boston"):
        Settings(parts=("yachts",))


# --- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GROUPED_TABLES)
def test_groups_of_a_table(name: str) -> None:
    pytest.importorskip("statsmodels")
    found, again, other = GROUPED[name](0), GROUPED[name](0), GROUPED[name](1)
    for part, same in zip(found, again, strict=True):
        np.testing.assert_array_equal(part.y, same.y)
        assert len(part.x) == len(part.y) == len(part.groups)
        assert np.isfinite(part.x).all()
        assert np.isfinite(part.y).all()
    assert not np.array_equal(found.train.y[:50], other.train.y[:50])
    train, known, support, new = (set(part.groups.tolist()) for part in found)
    assert (known, support) == (train, new)
    assert not train & new
    counts = np.bincount(found.train.groups)
    assert 5 <= counts[counts > 0].min() <= counts.max() <= 20
    assert set(np.unique(found.support.groups, return_counts=True)[1]) == {5}


def test_years_of_a_country_are_either_known_or_forecast() -> None:
    pytest.importorskip("statsmodels")
    found = GROUPED["fertility"](0)
    for known, asked in ((found.train, found.known), (found.support, found.new)):
        pairs = [set(zip(part.groups.tolist(), part.x[:, 0].tolist(), strict=True)) for part in (known, asked)]
        assert not pairs[0] & pairs[1]
    assert len(set(found.new.groups.tolist())) == NEW_COUNTRIES


def test_benchmark_settings_are_those_of_uci() -> None:
    of_uci, ours = UCISettings(), BackpropBenchmark(0, 0.0).fit_settings(8611)
    assert ours == {"epochs": 58, "batch_size": of_uci.batch_size, "lr": of_uci.lr, "samples": of_uci.samples}
    assert replace(of_uci, steps=BackpropBenchmark.steps) == of_uci


def test_rows_in_their_own_units(made_up_data: Any) -> None:
    raw, standardised = uci_rows(made_up_data, "yacht", 0), uci_split(made_up_data, "yacht", 0)
    np.testing.assert_array_equal(raw.train_y, standardised.train_y)
    np.testing.assert_allclose(Unit.of(raw.train_x).apply(raw.test_x), standardised.test_x)
    assert abs(float(raw.train_x.mean()) - 3) < 1
