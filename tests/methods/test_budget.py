"""The budget of a fit in steps or passes, its epochs, and the callbacks that hear of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior.callbacks import Callback, EarlyStopping, Fit, SaveEvery
from metaprior.methods.free_energy_fit import Budget
from tests.methods.made_up import assert_same_fit, method, plane, small_net


@pytest.mark.parametrize(
    ("steps", "epochs", "in_pass", "expected"),
    [
        (None, None, 1, (5000, 50, 100)),
        (None, None, 500, (5000, 50, 100)),
        (None, None, 501, (5010, 51, 99)),
        (None, None, 10_000, (100_000, 1000, 100)),
        (7, None, 3, (7, 1, 7)),
        (250, None, 3, (250, 3, 84)),
        (None, 6, 4, (24, 4, 6)),
    ],
)
def test_steps_and_epochs_of_a_budget(
    steps: int | None, epochs: int | None, in_pass: int, expected: tuple[int, int, int]
) -> None:
    """By default 5,000 steps, or ten passes where these take more; with steps, an epoch is a hundredth of them."""
    budget = Budget.of(steps, epochs, in_pass)
    assert (budget.steps, budget.epoch, budget.epochs) == expected


def test_records_count_the_steps_and_name_the_warm_up() -> None:
    x, y = plane()
    history = method().fit(x, y, steps=250, batch_size=10, progress=False).history_
    assert [record.steps for record in history] == [3] * 83 + [1]
    phases = [record.phase for record in history]
    assert phases == ["KL warm-up"] * 41 + [""] * 43, "the KL has its full weight from step 125 on"
    passes = method().fit(x, y, epochs=2, batch_size=10, kl_warmup=0.0, progress=False).history_
    assert [(record.steps, record.phase, record.observations) for record in passes] == [(3, "", 30)] * 2


def test_the_same_number_of_steps_is_the_same_fit_however_it_is_said() -> None:
    x, y = plane()
    by_epochs = method().fit(x, y, epochs=4, batch_size=10, progress=False)
    by_steps = method().fit(x, y, steps=12, batch_size=10, progress=False)
    assert_same_fit(by_epochs, by_steps, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 5, "epochs": 5}, "one of steps and epochs must be given, not both, got steps=5 and epochs=5"),
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"epochs": 2.5}, r"epochs must be an integer of at least 1, got 2\.5"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method().fit(*plane(), **given)


@dataclass
class Seen(Callback):
    """What a callback saw, in the order in which it was called."""

    calls: list[str] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    learned: list[mp.BayesByBackprop] = field(default_factory=list)

    def begin(self, fit: Fit) -> None:
        self.calls.append(f"begin of {fit.epochs} epochs, {fit.steps} steps")

    def after_step(self, fit: Fit, terms: Mapping[str, float]) -> None:
        self.calls.append(f"step {fit.step}")
        self.losses.append(terms["loss"])

    def after_epoch(self, fit: Fit, record: mp.EpochRecord) -> None:
        self.calls.append(f"epoch {record.epoch}")
        self.learned.append(fit.fitted())

    def end(self, fit: Fit) -> None:
        self.calls.append("end")


def test_callbacks_are_called_in_order_and_see_what_is_learned_so_far() -> None:
    x, y = plane()
    seen = Seen()
    given = {"epochs": 2, "batch_size": 15, "progress": False}
    bnn = method().fit(x, y, **given, callbacks=[seen])
    steps = ["step 1", "step 2", "epoch 1", "step 3", "step 4", "epoch 2"]
    assert seen.calls == ["begin of 2 epochs, 4 steps", *steps, "end"]
    assert [sum(seen.losses[:2]) / 2, sum(seen.losses[2:]) / 2] == pytest.approx([r.loss for r in bnn.history_])
    assert [len(one.history_) for one in seen.learned] == [1, 2]
    assert_same_fit(seen.learned[1], bnn, rtol=0, atol=0)
    assert not torch.equal(seen.learned[0].predict(x).mean, bnn.predict(x).mean)
    assert_same_fit(method().fit(x, y, **given), bnn, rtol=0, atol=0)


def test_a_callback_can_stop_and_save_a_fit(tmp_path: Path) -> None:
    x, y = plane()
    given = [SaveEvery(tmp_path), lambda fit, record: fit.stop("enough") if record.epoch == 3 else None]
    bnn = method().fit(x, y, steps=300, progress=False, callbacks=given)
    assert len(bnn.history_) == 3
    loaded = mp.load(tmp_path, small_net())
    assert isinstance(loaded, mp.BayesByBackprop)
    assert torch.equal(loaded.predict(x).mean, bnn.predict(x).mean)


def test_a_fit_that_fails_keeps_the_earlier_one() -> None:
    x, y = plane()
    bnn = method().fit(x, y, steps=5, progress=False)
    before = bnn.predict(x).mean

    def broken(fit: Fit, record: mp.EpochRecord) -> None:
        raise RuntimeError("broken callback")

    with pytest.raises(RuntimeError, match="broken callback"):
        bnn.fit(x, y, steps=50, progress=False, callbacks=[broken])
    with pytest.raises(ValueError, match="lr must be a positive number"):
        bnn.fit(x, y, lr=-1.0)
    assert torch.equal(bnn.predict(x).mean, before)
    assert len(bnn.history_) == 5


def test_early_stopping_among_the_callbacks_replaces_that_of_patience() -> None:
    """The data are noise: whatever is learned after the first epochs is wrong on held-out data."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, dtype=torch.float64, generator=generator), torch.randn(40, generator=generator)
    settings: dict[str, Any] = {"validation": 0.5, "epochs": 200, "lr": 0.1, "kl_warmup": 0.0, "progress": False}
    cold = {"temperature": 0.01}
    own = method(**cold).fit(x, y, **settings, patience=3)
    given = method(**cold).fit(x, y, **settings, patience=3, callbacks=[EarlyStopping(patience=8)])
    assert len(given.history_) == len(own.history_) + 5 < 200
    assert_same_fit(own, given, rtol=0, atol=0)
