"""Validation, calibration and support sizes in ``fit``, and the warning about an adaptation that changes nothing."""

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import metaprior as mp
from metaprior.adaptation import Adaptation
from metaprior.calibration import CalibrationByShots
from metaprior.methods import fitting
from metaprior.tasks import Task
from tests.methods.small_learner import QUICK, assert_same_theta, small_learner
from tests.training.lines import EndlessLines, line, lines

UNSEEN = [line(i, spread=1.0) for i in range(500, 530)]
TRAINING: dict[str, Any] = {
    "epochs": 2,
    "tasks_per_epoch": 40,
    "lr": 0.02,
    "search_step_size": False,
    "progress": False,
}


def linear(lr: float = 0.3) -> mp.MetaLearner:
    """A learner that a few steps teach to adapt."""
    torch.manual_seed(0)
    descent = mp.Descent(steps=5, lr=lr, learn_lr="per_tensor", kl_weight=0.01)
    return mp.MetaLearner(nn.Linear(1, 1).double(), mp.Gaussian(), adaptation=descent, standardize=False)


@pytest.fixture(scope="module")
def fitted() -> mp.MetaLearner:
    return linear().fit(lines(40, spread=1.0), warm_start=10, **TRAINING, validation=UNSEEN)


def test_every_epoch_but_the_warm_start_is_validated_before_and_after_adaptation(fitted: mp.MetaLearner) -> None:
    warm, *epochs = fitted.history_
    assert (warm.validation, warm.validation_before) == (None, None)
    for record in epochs:
        assert record.validation is not None
        assert record.validation_before is not None
        assert record.validation < record.validation_before
    plain = linear().fit(lines(40, spread=1.0), warm_start=10, **TRAINING)
    assert_same_theta(fitted.theta_, plain.theta_)  # what is validated is not learned from
    assert plain.calibration_ is None
    raw = fitted.with_theta(fitted.theta_).evaluate(UNSEEN, samples=20, progress=False)
    assert raw.row()["nll"] == pytest.approx(epochs[-1].validation, rel=1e-12)


def test_forecasts_are_calibrated_by_the_number_of_examples(fitted: mp.MetaLearner) -> None:
    factors, new = fitted.calibration_, line(99, spread=1.0)
    assert factors is not None
    assert (factors.examples, factors.tasks) == ((0, 1, 2, 4), 30)
    raw = fitted.with_theta(fitted.theta_)
    assert raw.calibration_ is None
    for n in (0, 1, 3, 4):
        support = new.support.first(n)
        found, expected = (one.adapt(support) if n else one.prior_predictive() for one in (fitted, raw))
        found, expected = found.predict(new.query.x), expected.predict(new.query.x).widened(factors.factor(n))
        torch.testing.assert_close(found.means, expected.means)
        torch.testing.assert_close(found.std, expected.std)
    none = fitted.adapt(new.support, 0).predict(new.query.x)
    torch.testing.assert_close(none.std, fitted.predict(new.query.x).std, msg="no steps are the prior")
    before, after = (one.evaluate(UNSEEN, shots=(0, 1, 4), progress=False) for one in (raw, fitted))
    for old, row in zip(before.rows, after.rows, strict=True):
        assert row["nll"] < old["nll"] + 0.01
        assert 0.84 < row["coverage_90"] < 0.96


def test_factors_are_saved_shown_and_gone_with_another_theta(fitted: mp.MetaLearner, tmp_path: Path) -> None:
    fitted.save(tmp_path / "prior")
    loaded = mp.MetaLearner.load(tmp_path / "prior", nn.Linear(1, 1).double())
    assert loaded.calibration_ == fitted.calibration_
    assert repr(loaded).endswith(f"; {fitted.calibration_})")
    assert "coverage of the 90 % interval on 30 validation tasks 0: 0." in repr(fitted)
    assert repr(linear()).endswith("; not fitted)")
    assert repr(linear().start(UNSEEN)).endswith("; not calibrated)")
    loaded.start(UNSEEN)
    assert loaded.calibration_ is None


def test_calibration_can_be_left_out_and_done_later() -> None:
    learner = small_learner().fit(lines(4), **QUICK, validation=UNSEEN[:3], calibrate=False)
    assert learner.calibration_ is None
    assert learner.history_[-1].validation is not None
    found = learner.calibrate(UNSEEN[:5], shots=(0, 3), samples=4, progress=False).calibration_
    assert found is not None
    assert found.examples == (0, 3)
    learner.fit(lines(4), **QUICK)
    assert learner.calibration_ is None, "another theta"


def test_the_best_epoch_is_kept_where_asked_for() -> None:
    """The second epoch ruins theta."""
    how: dict[str, Any] = {**TRAINING, "schedule": "constant", "validation": UNSEEN[:12], "calibrate": False}
    last, best = (
        linear().fit(lines(40, spread=1.0), **{**how, "lr": 0.5, "scale_lr": 1.0, "epochs": 3}, keep_best=keep)
        for keep in (False, True)
    )
    assert last.history_ == best.history_
    scores = [record.validation or math.inf for record in best.history_]
    assert min(scores) < scores[-1]
    found = best.evaluate(UNSEEN[:12], samples=20, progress=False).row()["nll"]
    assert found == pytest.approx(min(scores), rel=1e-12)


def test_a_setting_varies_the_sizes_of_support_sets() -> None:
    seen: list[int] = []

    class Watched(mp.MetaLearner):
        def trainer(self, *arguments: Any, **options: Any) -> Any:
            trainer = super().trainer(*arguments, **options)
            seen.extend(trainer.tasks[i].support.size for i in range(40))
            return trainer

    torch.manual_seed(0)
    learner = Watched(mp.MLP(1, [3], 1).double(), mp.Gaussian(), standardize=False)
    learner.fit(EndlessLines(), **QUICK, shots=range(1, 5))
    assert {*seen} == {1, 2, 3, 4}
    assert all(len({*seen[start : start + 4]}) == 1 for start in range(0, 40, 4)), "one size for a meta-batch"
    with pytest.raises(ValueError, match="has 4 support examples, fewer than the 9"):
        small_learner().fit(EndlessLines(), **QUICK, shots=(1, 9))
    with pytest.raises(ValueError, match="shots must be"):
        mp.MetaTraining(shots=(-1,))


ALIKE = [line(i, spread=0.0, noise=0.5) for i in range(60)]
DIFFERENT = lines(40, spread=1.0)
GAINS_NOTHING = "adaptation gains nothing: over 20 tasks the mean NLL is"
VANISHED = "adaptation changes nothing: the learned step sizes have vanished, the largest is 1e-18"


@pytest.mark.parametrize(
    ("tasks", "lr", "validation", "warned"),
    [
        (ALIKE[:40], 1e-2, ALIKE[40:], GAINS_NOTHING),
        (ALIKE[:40], 1e-2, None, GAINS_NOTHING),
        (DIFFERENT, 1e-18, None, VANISHED),
        (DIFFERENT, 0.05, UNSEEN, None),
        (DIFFERENT, 0.05, None, None),
    ],
)
def test_an_adaptation_that_changes_nothing_is_warned_of_once(
    tasks: list[Task], lr: float, validation: Any, warned: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module starts with the slope that all tasks of ``ALIKE`` have."""
    monkeypatch.setattr(fitting, "JUDGED_FROM", 20)
    learner = linear(lr)
    learner.likelihood = mp.Gaussian(noise=0.5)
    nn.init.ones_(learner.module.weight)  # type: ignore[arg-type]
    nn.init.zeros_(learner.module.bias)  # type: ignore[arg-type]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        learner.fit(tasks, **{**TRAINING, "lr": 1e-4, "scale_lr": 1e-6}, validation=validation, calibrate=False)
    texts = [str(one.message) for one in found]
    assert len(texts) == (warned is not None), texts
    if warned is not None:
        assert texts[0].startswith(warned)
        assert "Otherwise try: another adaptation" in texts[0]


def test_short_trainings_are_not_judged() -> None:
    linear(1e-18).fit(lines(8), **QUICK)


def test_factors_of_a_forecast_of_classes_divide_logits() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 2)
    task = Task((x, torch.arange(6) % 3), (x, torch.arange(6) % 3))  # type: ignore[arg-type]
    learner = mp.MetaLearner(nn.Linear(2, 3), mp.Categorical()).start([task])
    raw = learner.predict(x).logits  # type: ignore[attr-defined]
    learner.calibration_ = CalibrationByShots((0,), (2.0,))
    torch.testing.assert_close(learner.predict(x).logits, raw / 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "adaptation", [mp.Descent(steps=2, learn_lr="per_tensor"), mp.ClosedForm(), mp.Context(size=4)]
)
@pytest.mark.parametrize("unit", [1e3, 1e-3])
def test_training_is_the_same_in_any_units_of_the_targets(adaptation: Adaptation, unit: float) -> None:
    """So a largest gradient norm of 1 fits targets of any size."""

    def fit(unit: float) -> mp.MetaLearner:
        torch.manual_seed(0)
        learner = mp.MetaLearner(mp.MLP(1, [3], 1).double(), mp.Gaussian(), adaptation=adaptation)
        tasks = [Task((s.x, unit * (3 + s.y)), (q.x, unit * (3 + q.y)), name) for s, q, name in lines(8)]
        return learner.fit(tasks, epochs=1, tasks_per_epoch=40, warm_start=2, progress=False)

    found, expected = fit(unit), fit(1.0)
    for name, value in expected.theta_.named().items():
        torch.testing.assert_close(found.theta_.named()[name], value, rtol=1e-8, atol=1e-10, msg=name)
    losses = [(a.loss, b.loss) for a, b in zip(found.history_, expected.history_, strict=True)]
    assert all(a == pytest.approx(b, rel=1e-9) for a, b in losses)
    assert max(record.grad_norms["scales"] for record in expected.history_) > 0.01


def test_the_number_of_examples_that_make_a_shot_is_said_once(tmp_path: Path) -> None:
    learner = small_learner(adaptation=mp.ClosedForm(components=1), examples_per_shot=2)
    learner.fit(lines(8), **QUICK, shots=(0, 2), validation=UNSEEN[:4])
    sizes = {
        task.support.size
        for task in map(learner.trainer(lines(8), mp.MetaTraining(shots=(0, 2))).tasks.__getitem__, range(40))
    }
    assert sizes == {0, 4}
    assert learner.calibration_ is not None
    assert learner.calibration_.examples == (0, 2, 4)
    learner.save(tmp_path)
    loaded = mp.MetaLearner.load(tmp_path)
    found = loaded.evaluate(UNSEEN[:4], shots=None, progress=False)
    assert [(row["shots"], row["support"]) for row in found.rows] == [(0, 0), (1, 2), (None, 4)]
    other = loaded.evaluate(UNSEEN[:4], shots=(1,), examples_per_shot=3, progress=False)
    assert [row["support"] for row in other.rows] == [3]
