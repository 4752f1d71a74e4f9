"""Data sets and loaders of torch in place of x and y."""

import gc
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import metaprior as mp
from metaprior.callbacks import CSVLog, EarlyStopping
from tests.methods.made_up import Rows, Stream, UsedUp, assert_same_fit, method, plane, small_net

FAST: dict[str, Any] = {"epochs": 4, "progress": False}


@pytest.mark.parametrize("standardize", [True, False])
def test_a_loader_of_one_batch_gives_the_fit_of_data_in_memory(standardize: bool) -> None:
    """Also the first noise scale, and the held-out free energy, are those of all data."""
    x, y = plane()
    held_out = plane(12, seed=1)
    expected = method(standardize=standardize).fit(x, y, **FAST, validation=held_out)
    loader, own = DataLoader(TensorDataset(x, y), 30), DataLoader(TensorDataset(*held_out), 5)
    found = method(standardize=standardize).fit(loader, **FAST, validation=own)
    assert_same_fit(expected, found, rtol=1e-10, atol=1e-12)
    for one, other in zip(expected.history_, found.history_, strict=True):
        assert other.validation == pytest.approx(one.validation, rel=1e-10)
        assert other.loss == pytest.approx(one.loss, rel=1e-10)
    assert found.predict(x).mean.shape == (30,), "targets came without a channel axis"


@pytest.mark.parametrize("likelihood", [mp.Categorical(), mp.Bernoulli()])
def test_labels_come_from_loaders_too(likelihood: mp.Likelihood) -> None:
    x, y = plane()
    labels, module = (y > 4).long(), small_net(2 if isinstance(likelihood, mp.Categorical) else 1)
    expected = method(likelihood, module=module).fit(x, labels, **FAST)
    found = method(likelihood, module=module).fit(TensorDataset(x, labels), batch_size=30, **FAST)
    assert_same_fit(expected, found, rtol=1e-10, atol=1e-12)


def test_scales_are_pooled_over_batches_of_any_size() -> None:
    x, y = plane()
    found = method().fit(DataLoader(TensorDataset(x, y), 7), **FAST)
    torch.testing.assert_close(found.posterior_.target_scale.loc, y.mean().reshape(1))
    torch.testing.assert_close(found.posterior_.target_scale.scale, y.std(correction=0).reshape(1))
    assert [record.steps for record in found.history_] == [5] * 4


def test_a_data_set_is_shuffled_by_the_seed() -> None:
    x, y = plane()
    given: dict[str, Any] = {**FAST, "batch_size": 10}
    one, same = (method(seed=1).fit(Rows(x, y), **given) for _ in range(2))
    torch.manual_seed(123)
    assert_same_fit(one, same, rtol=0, atol=0)
    unshuffled = method(seed=1).fit(DataLoader(Rows(x, y), 10), **FAST)
    with pytest.raises(AssertionError):
        assert_same_fit(one, unshuffled, rtol=0, atol=0)
    made, state = method(), torch.get_rng_state()
    made.fit(Rows(x, y), **given)
    assert torch.equal(torch.get_rng_state(), state), "torch's global generator is left as it is"


def test_passes_over_the_data_are_one_for_the_moments_and_one_for_each_epoch() -> None:
    rows, held_out = Rows(*plane()), Rows(*plane(8))
    method().fit(rows, **FAST, batch_size=8, validation=held_out)
    assert (rows.asked, held_out.asked) == (30 * 5, 8 * 5)


def test_an_iterable_data_set_is_read_in_its_order() -> None:
    x, y = plane()
    expected = method().fit(DataLoader(TensorDataset(x, y), 10), **FAST)
    assert_same_fit(expected, method().fit(Stream(x, y), batch_size=10, **FAST), rtol=0, atol=0)


class Made(IterableDataset[Any]):
    """Batches that are made when they are asked for; ``most`` is the number that were alive at the same time."""

    def __init__(self, batches: int) -> None:
        self.batches, self.alive, self.most = batches, list[weakref.ref[Tensor]](), 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(self.batches):
            x, y = plane(16, seed=number)
            self.alive = [one for one in self.alive if one() is not None] + [weakref.ref(x)]
            self.most = max(self.most, len(self.alive))
            yield x, y


def test_no_more_than_two_batches_are_held_at_a_time() -> None:
    """The one that is used and the one that is made."""
    made, held_out = Made(20), Made(10)
    gc.collect()
    loaders = [DataLoader(one, batch_size=None) for one in (made, held_out)]
    method(module=small_net()).fit(loaders[0], epochs=2, validation=loaders[1], progress=False)
    assert max(made.most, held_out.most) <= 2


def test_workers_give_the_same_batches() -> None:
    x, y = plane()
    expected = method().fit(DataLoader(TensorDataset(x, y), 10), epochs=1, progress=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded")
        loader = DataLoader(TensorDataset(x, y), 10, num_workers=1)
        assert_same_fit(expected, method().fit(loader, epochs=1, progress=False), rtol=0, atol=0)


def test_missing_targets_of_a_loader_are_left_out() -> None:
    """A batch without any target, the first one at that, is a step of the prior alone."""
    x, y = plane()
    holes = y.clone()
    holes[:10], holes[15] = torch.nan, torch.nan
    with pytest.warns(UserWarning, match="11 of 30 targets are missing"):
        found = method().fit(DataLoader(TensorDataset(x, holes), 10), **FAST)
    assert [(record.observations, record.missing) for record in found.history_] == [(19, 11)] * 4
    rest = holes[~holes.isnan()]
    torch.testing.assert_close(found.posterior_.target_scale.loc, rest.mean().reshape(1))
    with pytest.warns(UserWarning, match="11 of 30"):
        memory = method().fit(x, holes, **FAST)
    with pytest.warns(UserWarning, match="11 of 30"):
        whole = method().fit(DataLoader(TensorDataset(x, holes), 30), **FAST)
    assert_same_fit(memory, whole, rtol=1e-10, atol=1e-12)


class Endless(Dataset[Any]):
    """Items that are no pairs."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": torch.zeros(3), "y": torch.zeros(1)}


def refused(x: Any, y: Any = None, **settings: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as caught:
        method().fit(x, y, **{**FAST, **settings})
    return str(caught.value)


def test_what_cannot_be_streamed_is_refused() -> None:
    x, y = plane()
    rows = TensorDataset(x, y)
    assert "y and sample_weight must be None where x, a TensorDataset, gives pairs" in refused(rows, y)
    assert "y and sample_weight must be None" in refused(rows, sample_weight=torch.ones(30))
    assert "y must be given, unless x is a torch Dataset or DataLoader" in refused(x)
    assert "validation must be data, not a fraction" in refused(rows, validation=0.2)
    assert "random_split" in refused(rows, validation=0.2)
    assert "x must give pairs (x, y), got a dict. Try a collate_fn" in refused(Endless())
    assert "x must give pairs (x, y), got a list of 3" in refused(TensorDataset(x, y, y))
    assert "validation must give pairs (x, y), got a list of 1" in refused(rows, validation=TensorDataset(x))
    assert "validation must be a fraction, a pair (x, y), or a torch Dataset" in refused(rows, validation="some")
    assert "x must give at least one target, got 30 targets in 3 batches, all of them missing" in refused(
        TensorDataset(x, y * torch.nan), batch_size=10
    )
    assert "x must give at least one target, got 0 targets in 0 batches" in refused(Stream(x[:0], y[:0]))


def test_data_that_are_used_up_after_one_pass_are_refused() -> None:
    x, y = plane()
    assert "got 3 in the first one and 0 in a later one. Try a data set whose __iter__ begins anew" in refused(
        UsedUp(x, y), batch_size=10
    )
    message = refused(x, y, validation=UsedUp(*plane(9)))
    assert "validation must give equally many batches in every pass, got 1 in the first one and 0" in message


def test_a_loader_has_its_own_batch_size() -> None:
    data = TensorDataset(*plane())
    with pytest.raises(ValueError, match=r"batch_size must be None for a DataLoader.*got 32. Try DataLoader"):
        method().fit(DataLoader(data, batch_size=10), batch_size=32, epochs=1, progress=False)
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1, got 0"):
        method().fit(data, batch_size=0, epochs=1, progress=False)
    found = [method().fit(*plane(), epochs=1, progress=False, **own) for own in ({}, {"batch_size": 128})]
    assert_same_fit(*found, rtol=0, atol=0)


def test_callbacks_and_early_stopping_are_checked_before_the_first_step() -> None:
    with pytest.raises(TypeError, match=r"callbacks must be a list, got CSVLog. Try \[CSVLog\(...\)\]"):
        method().fit(*plane(), epochs=1, progress=False, callbacks=CSVLog("log.csv"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="validation must be given to fit for EarlyStopping"):
        method().fit(*plane(), epochs=1, progress=False, callbacks=[EarlyStopping()])


def test_inputs_without_a_feature_axis_are_told_how_to_get_one() -> None:
    x, y = plane()
    with pytest.raises(ValueError, match=r"Try x\[:, None\]"):
        method().fit(x[:, 0], y, epochs=1, progress=False)
