"""Ensembles whose members each leave a part of the data out."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import metaprior as mp
from metaprior.ensemble import EnsemblePosterior
from metaprior.methods.cross_fit import parts_of, without_parts
from metaprior.minibatches import WeightedExamples
from metaprior.tasks.task import Examples
from tests.methods.made_up import method, plane, small_net

FAST: dict[str, Any] = {"steps": 30, "progress": False}


def test_each_row_is_left_out_by_one_member_and_copies_by_the_same() -> None:
    x, y = plane(11)
    twice = WeightedExamples(Examples(x.repeat(2, 1), y.repeat(2)))
    parts = parts_of(twice, 3, mp.Noise(0))
    assert torch.cat(parts).sort().values.tolist() == list(range(22))
    for part in parts:
        assert sorted(part.tolist()) == sorted(((part + 11) % 22).tolist())
    examples, weights = without_parts(twice, parts)
    assert weights is not None
    for own, counts, part in zip(examples, weights, parts, strict=True):
        assert own.size == max(22 - len(one) for one in parts)
        assert float(counts.sum()) == 22 - len(part)
        assert not torch.isin(own.y[counts > 0], twice.examples.y[part]).any()


def test_the_parts_decide_on_the_spread_which_is_saved(tmp_path: Path) -> None:
    """A fixed noise of a third of the true one: forecasts of data that were not seen must be wider."""
    x, y = plane(200)
    bnn = method(mp.Gaussian(noise=0.17), members=3).fit(x, y, **{**FAST, "steps": 600}, cross_fit=True)
    assert isinstance(bnn.posterior_, EnsemblePosterior)
    assert {2 < one.spread < 5 for one in bnn.posterior_.members} == {True}
    new = plane(1000, seed=1)
    assert bnn.evaluate(*new).row()["coverage_90"] == pytest.approx(0.9, abs=0.06)
    assert method(mp.Gaussian(noise=0.17), members=3).fit(x, y, **FAST).evaluate(*new).row()["coverage_90"] < 0.7
    bnn.save(tmp_path / "fit")
    loaded = mp.load(tmp_path / "fit", small_net())
    assert isinstance(loaded, mp.BayesByBackprop)
    assert torch.equal(loaded.predict(x).std, bnn.predict(x).std)


def test_what_cannot_be_fitted_across_parts_is_refused() -> None:
    x, y = plane()
    with pytest.raises(ValueError, match=r"members \(with cross_fit\) must be an integer of at least 2, got 1"):
        method().fit(x, y, **FAST, cross_fit=True)
    with pytest.raises(ValueError, match="cross_fit must be False where x is a TensorDataset, whose data are streamed"):
        method(members=2).fit(TensorDataset(x, y), **FAST, cross_fit=True)
    with pytest.raises(ValueError, match="cross_fit needs at least 4 different observations for 2 members, got 3"):
        method(members=2).fit(x[:3], y[:3], **FAST, cross_fit=True)
