"""The peers of the tables' benchmark learn, its mixed model conditions exactly, and its headlines are read off rows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.table.grouped_data import GROUPED, GroupedRows
from benchmarks.table.peer import Rows
from benchmarks.table.predictive import Normals, scores_of
from tests.benchmarks.tiny import short_table_peers

NEEDS = "the extra `table` is not installed"
methods = pytest.importorskip("benchmarks.table.methods", reason=NEEDS)
comparison = pytest.importorskip("benchmarks.table.comparison", reason=NEEDS)
grouped = pytest.importorskip("benchmarks.table.grouped", reason=NEEDS)
grouped_methods = pytest.importorskip("benchmarks.table.grouped_methods", reason=NEEDS)
OURS, MIXED = grouped_methods.OURS, grouped_methods.MIXED


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train every peer as briefly as still learns something."""
    short_table_peers(monkeypatch, steps=300)


def table(rows: int, seed: int = 0) -> Rows:
    """Return a sine wave in the first of three features of very different units, with noise of 0.1 around 5."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 3))
    return Rows(x * (1.0, 1000.0, 0.01) + (0, 500, 0), 5 + np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=rows))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", list(methods.PEERS))
def test_every_peer_learns_a_sine_wave(name: str) -> None:
    train, test = table(150), table(100, seed=1)
    method = methods.PEERS[name](3, 0.0)
    method.fit(*train)
    found = scores_of(method.predictive(test.x), test.y)
    assert found.rmse < 0.6 * test.y.std()
    assert found.crps < 0.6 * test.y.std() * 0.56  # of a Gaussian without any skill
    assert found.nll < 2.0
    assert 0.4 < found.coverage_90 <= 1
    assert 0 < method.fit_seconds <= method.total_seconds


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", list(methods.PEERS))
def test_the_same_seed_gives_the_same_fit(name: str) -> None:
    train = table(40)
    torch.rand(1)  # peers do not depend on torch's global generator
    first, second = (methods.PEERS[name](3, 0.0) for _ in range(2))
    for method in (first, second):
        method.fit(*train)
    np.testing.assert_array_equal(first.predictive(train.x).mean, second.predictive(train.x).mean)


# --- ranks and headlines --------------------------------------------------------------------------------------------


def test_equal_scores_share_their_mean_rank() -> None:
    assert comparison.ranks([0.3, 0.1, 0.3, 0.2]) == [3.5, 1, 3.5, 2]
    assert comparison.ranks([1.0, 1.0, 1.0]) == [2, 2, 2]


def uci_row(part: str, method: str, **values: float) -> dict[str, Any]:
    return {"part": part, "method": method, "total_seconds": 10.0, **values}


def test_headlines_are_those_of_the_estimator() -> None:
    ours, ensemble = methods.OURS, methods.ENSEMBLE
    rows = [
        *(
            uci_row("a", ours, nll=1, crps=2, coverage_90=0.9, fit_seconds=4),
            uci_row("b", ours, nll=3, crps=1, coverage_90=0.8, fit_seconds=2),
        ),
        *(
            uci_row("a", ensemble, nll=2, crps=1, coverage_90=0.7, fit_seconds=1),
            uci_row("b", ensemble, nll=2, crps=2, coverage_90=0.7, fit_seconds=2),
        ),
    ]
    rows = [row for part in "ab" for row in comparison.ranked([row for row in rows if row["part"] == part])]
    found = comparison.uci_headline(rows, comparison.summary_rows(rows))
    assert found == pytest.approx(
        {
            "coverage_90": 0.85,
            "coverage_worst": 0.8,
            "nll_rank": 1.5,
            "crps_rank": 1.5,
            "cpu_ratio_ensemble": 2.0,
            "cpu_ratio_ensemble_worst": 4.0,
            "cpu_ratio_ensemble_chosen": math.sqrt(0.4 * 0.2),
        }
    )
    without = comparison.uci_headline(rows[1::2], comparison.summary_rows(rows[1::2]))
    assert without.keys() == found.keys()
    assert all(map(math.isnan, without.values()))


def test_grouped_headlines_are_beside_the_mixed_model() -> None:
    def row(part: str, method: str, nll: float, crps: float) -> list[dict[str, Any]]:
        return [
            {"part": part, "rows": rows, "method": method, "nll": nll, "crps": crps, "coverage_90": 0.9}
            for rows in (grouped.KNOWN, grouped.NEW)
        ]

    rows = [*row("a", OURS, 1, 2), *row("a", MIXED, 3, 4), *row("b", OURS, 2, 4), *row("b", MIXED, 2, 2)]
    found = grouped.headline(rows)
    for ending in ("known", "new"):
        assert found[f"crps_ratio_mixed_{ending}"] == pytest.approx(1.0)
        assert found[f"nll_gain_mixed_{ending}"] == 1.0
        assert found[f"coverage_90_{ending}"] == 0.9
    assert all(map(math.isnan, grouped.headline([r for r in rows if r["method"] == MIXED]).values()))


# --- groups ---------------------------------------------------------------------------------------------------------


def conditioned_by_hand(model: Any, given: Sequence[GroupedRows], wanted: GroupedRows) -> tuple[Any, Any]:
    """Return mean and variance of targets given rows, from one joint Gaussian with a flat prior on fixed effects."""
    p, flat = model.parameters, 1e6
    rows = [*given, wanted]
    z = np.concatenate([model._design(part.x) for part in rows])
    groups = np.concatenate([part.groups for part in rows])
    joint = flat * z @ z.T + (groups[:, None] == groups) * (z @ p.random_covariance @ z.T) + p.noise * np.eye(len(z))
    y = np.concatenate([model._y.apply(part.y) for part in given])
    count = len(y)
    gain = np.linalg.solve(joint[:count, :count], joint[:count, count:]).T
    variance = np.diag(joint[count:, count:] - gain @ joint[:count, count:])
    return model._y.loc + model._y.scale * (gain @ y), model._y.scale**2 * variance


def test_the_mixed_model_conditions_exactly() -> None:
    table = GROUPED["linear"](0)
    few = table._replace(known=table.known.of(slice(None, None, 37)), new=table.new.of(slice(None, None, 13)))  # type: ignore[arg-type]
    model = grouped_methods.MixedModel(0, 1.0).fit(table.train)
    known, new = model.known(few.known.x, few.known.groups), model.new(few.support, few.new.x, few.new.groups)
    assert isinstance(known, Normals)
    assert isinstance(new, Normals)
    for found, given, wanted in ((known, [few.train], few.known), (new, [few.train], few.new)):
        own = []
        for group in np.unique(wanted.groups):  # a new group's rows, but not those of other new groups
            rows = [*given, few.support.of(few.support.groups == group)] if found is new else given
            mean, variance = conditioned_by_hand(model, rows, wanted.of(wanted.groups == group))
            own.append((wanted.groups == group, mean, variance))
        for at, mean, variance in own[:4]:
            np.testing.assert_allclose(found.mean[at], mean, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(found.scales[0][at] ** 2, variance, rtol=1e-3)


def test_the_mixed_model_is_right_where_it_is_the_truth() -> None:
    table = GROUPED["linear"](1)
    model = grouped_methods.MixedModel(0, 1.0).fit(table.train)
    assert model.parameters.noise * model._y.scale**2 == pytest.approx(0.25, rel=0.2)
    for found, y in (
        (model.known(table.known.x, table.known.groups), table.known.y),
        (model.new(table.support, table.new.x, table.new.groups), table.new.y),
    ):
        assert 0.86 < scores_of(found, y).coverage_90 < 0.94


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["PooledQuantiles", "OneHotBackprop"])
def test_pooled_methods_know_the_groups(name: str) -> None:
    rng = np.random.default_rng(0)

    def rows(groups: Any) -> GroupedRows:
        return GroupedRows(rng.normal(size=(len(groups), 1)), 10.0 * groups + rng.normal(size=len(groups)), groups)

    known, new = np.arange(3), np.arange(3, 5)
    method = getattr(grouped_methods, name)(0, 0.0).fit(rows(np.repeat(known, 30)))
    support, asked = rows(np.repeat(new, 20)), rows(np.repeat(new, 5))
    assert scores_of(method.new(support, asked.x, asked.groups), asked.y).rmse < 7  # groups are 10 apart
    own = rows(np.repeat(known, 5))
    assert scores_of(method.known(own.x, own.groups), own.y).rmse < 7  # groups are 10 apart
