"""The contract of task models, proved with a way of adapting that has no random weights and no steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior import adaptation
from metaprior.metagrad import mixed
from metaprior.tasks.task import Tasks
from metaprior.training.trainer import Trainer
from tests.adaptation.offsets import STRENGTH, Offset, registered
from tests.methods.small_learner import assert_same_theta
from tests.team.fake import together
from tests.training.lines import EndlessLines, copied, damaged, diverging, line, lines

QUICK: dict[str, Any] = {"epochs": 2, "tasks_per_epoch": 8, "meta_batch": 4, "scales_first": 0.5}


@pytest.fixture(autouse=True)
def offset_is_a_way_of_adapting() -> Iterator[None]:
    with registered():
        yield


def learner_of(settings: Offset | None = None, **changes: Any) -> mp.MetaLearner:
    torch.manual_seed(0)
    return mp.MetaLearner(mp.MLP(1, [3], 1).double(), mp.Gaussian(), adaptation=settings or Offset(), **changes)


def fitted(**changes: Any) -> mp.MetaLearner:
    return learner_of().fit(lines(8), **{**QUICK, "progress": False, **changes})


def trainer_of(tasks: Tasks, **changes: Any) -> Trainer:
    return learner_of(standardize=False).trainer(tasks, mp.MetaTraining(**{**QUICK, **changes}))


@pytest.mark.parametrize("warm_start", [0, 3])
def test_theta_is_plain_and_everything_in_it_is_learned(warm_start: int) -> None:
    start, learner = learner_of().start(lines(8)), fitted(warm_start=warm_start, epochs=4)
    assert learner.theta_.mu.shape == learner.theta_.rho.shape == (0,)
    for name, value in learner.theta_.plain.items():
        assert not torch.equal(value, start.theta_.plain[name]), name
    assert learner.history_[-1].phase == "everything"


def test_forecasts_are_in_the_users_units_and_an_empty_support_is_the_prior() -> None:
    learner, task = fitted(), line(20)
    shifted = [mp.Task(*(mp.Examples(x, 100 + 5 * y) for x, y in one[:2]), one.name) for one in lines(8)]
    other = learner_of().fit(shifted, **QUICK, progress=False)
    mean = learner.adapt(task.support).predict(task.query.x).mean
    again = other.adapt((task.support.x, 100 + 5 * task.support.y)).predict(task.query.x).mean
    torch.testing.assert_close(again, 100 + 5 * mean, rtol=1e-6, atol=1e-6)
    assert learner.predict(task.query.x.numpy()).mean.shape == (5, 1)


def test_a_saved_prior_is_loaded_with_its_adaptation(tmp_path: Path) -> None:
    learner = learner_of(Offset(floor=3.0)).fit(lines(8), **QUICK, progress=False)
    learner.save(tmp_path)
    loaded = mp.load(tmp_path)
    assert isinstance(loaded, mp.MetaLearner)
    assert loaded.adaptation == Offset(floor=3.0)
    assert_same_theta(loaded.theta_, learner.theta_)
    task = line(30)
    expected = learner.adapt(task.support).predict(task.query.x)
    assert torch.equal(loaded.adapt(task.support).predict(task.query.x).mean, expected.mean)
    with pytest.raises(mp.CheckpointError, match="does not have the structure that was saved"):
        mp.load(tmp_path, mp.MLP(1, [4], 1).double())


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_training_is_bitwise_identical(stop: int) -> None:
    whole, first = (trainer_of(EndlessLines(), warm_start=2, warm_start_average=0.5) for _ in range(2))
    while not whole.done:
        whole.step()
    for _ in range(stop):
        first.step()
    second = trainer_of(EndlessLines(), warm_start=2, warm_start_average=0.5)
    second.restore(first.tensors(), first.progress)
    while not second.done:
        second.step()
    assert_same_theta(second.theta, whole.theta)
    for name, value in whole.tensors().items():
        assert torch.equal(second.tensors()[name], value), name


@pytest.mark.parametrize("shard", [False, True])
def test_several_ranks_learn_what_one_learns(shard: bool) -> None:
    def trained(_: object) -> dict[str, torch.Tensor]:
        learner = learner_of(standardize=False)
        trainer = learner.trainer(EndlessLines(), mp.MetaTraining(**QUICK, warm_start=1), shard=shard)
        while not trainer.done:
            trainer.step()
        return copied(trainer)

    (alone,) = together(1, trained)
    first, *others = together(3, trained)
    for name, value in first.items():
        torch.testing.assert_close(value, alone[name], rtol=1e-10, atol=1e-12, msg=name)
        assert all(torch.equal(other[name], value) for other in others), name


def test_tasks_without_a_finite_gradient_are_left_out_and_named() -> None:
    model, learner = learner_of(standardize=False).task_model(), learner_of(standardize=False)
    theta = learner.start(lines(4)).theta_.detached()
    good = [line(0), line(3)]
    tasks = [good[0], damaged(line(1)), diverging(line(2)), good[1]]
    found, expected = (model.sums(theta, own, mp.Noise()) for own in (tasks, good))
    assert found.names == expected.names == ("line 0", "line 3")
    assert sorted(failure.task for failure in found.failures) == ["line 1", "line 2"]
    for name, value in expected.grads.named().items():
        torch.testing.assert_close(found.grads.named()[name], value)
    assert model.sums(theta, [], mp.Noise()).grads is None


def test_an_epoch_of_your_own_moves_theta() -> None:
    learner = learner_of().start(lines(8))
    before = learner.theta_.plain[STRENGTH].detach().clone()
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-2)
    record = mp.meta_train_one_epoch(learner, lines(8), optimizer, meta_batch=4, progress=False)
    assert record.tasks == 8
    assert not torch.equal(learner.theta_.plain[STRENGTH], before)


def test_evaluation_has_no_steps() -> None:
    found = fitted().evaluate(lines(3), shots=(0, 2, None), progress=False)
    assert [row["steps"] for row in found.rows] == [0, 0, 0]
    assert found.row(shots=0)["tasks"] == 3


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fitted().adapt(line(1).support, 3), ValueError, "steps must be None"),
        (lambda: learner_of(stochastic=".*").fit(lines(4)), ValueError, "stochastic must be None"),
        (lambda: learner_of(engine=mixed).fit(lines(4)), ValueError, "engine must be None"),
        (lambda: learner_of(objective="abml").fit(lines(4)), ValueError, "objective must be one of query"),
        (lambda: fitted(balance_step_sizes=True), ValueError, "balance_step_sizes"),
        (lambda: fitted().problem(), TypeError, "has no inner loop"),
        (lambda: mp.MetaLearner(mp.MLP(1, [3], 1), mp.Gaussian(), adaptation=3).fit(lines(4)), TypeError, "adaptation"),
    ],
)
def test_what_cannot_work_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_theta_of_another_model_is_refused() -> None:
    learner = fitted()
    other = learner.theta_.replace(plain={**learner.theta_.plain, STRENGTH: torch.ones(2).double()})
    with pytest.raises(ValueError, match=r"'plain.head.strength' with shape \(2,\), and the model needs \(1,\)"):
        learner.task_model().check_theta(other)


def test_adaptations_are_described_and_restored() -> None:
    for settings in (mp.Descent(steps=3, lr=0.2, learn_lr="one", adapt=None), Offset(2.0)):
        assert adaptation.restore(adaptation.describe(settings)) == settings
    with pytest.raises(ValueError, match=r"kind must be one of descent, .*offset, got 'other'"):
        adaptation.restore({"kind": "other"})


def test_where_only_scales_move_their_gradient_is_the_same_and_that_of_the_means_is_zero() -> None:
    trainer = trainer_of(lines(8))
    tasks, noise = [trainer.model.check(task) for task in lines(3)], mp.Noise(0)
    both, scales = (trainer.model.sums(trainer.theta, tasks, noise, means_move=moves) for moves in (True, False))
    groups = trainer.model.groups(trainer.theta)
    assert both.grads is not None
    assert scales.grads is not None
    for name, value in scales.grads.named().items():
        if name in groups["means"]:
            assert not value.any()
            assert both.grads.named()[name].any()
        else:
            torch.testing.assert_close(value, both.grads.named()[name])
