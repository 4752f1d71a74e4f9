"""A learner with a closed form: training, resuming, ranks, saving, zero shots, and calibration on a known problem."""

from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior.training.trainer import Trainer
from tests.methods.small_learner import assert_same_theta
from tests.team.fake import together
from tests.training.lines import EndlessLines, copied, line, lines

QUICK: dict[str, Any] = {"epochs": 2, "tasks_per_epoch": 8, "meta_batch": 4, "scales_first": 0.5}


def learner_of(**changes: Any) -> mp.MetaLearner:
    torch.manual_seed(0)
    settings = {"adaptation": mp.ClosedForm(components=2), **changes}
    return mp.MetaLearner(mp.MLP(1, [3], 1).double(), mp.Gaussian(), **settings)


def trainer_of(**changes: Any) -> Trainer:
    return learner_of(standardize=False).trainer(EndlessLines(), mp.MetaTraining(**{**QUICK, **changes}))


def test_lines_are_learned_and_forecasts_are_calibrated_at_every_number_of_shots() -> None:
    """Lines are linear in the weights of one layer, so that only their prior has to be learned."""
    torch.manual_seed(0)
    tasks = mp.VariedSupport(EndlessLines(support=10), range(11))
    learner = mp.MetaLearner(torch.nn.Linear(1, 1).double(), mp.Gaussian(), adaptation=mp.ClosedForm(components=1))
    learner.fit(tasks, epochs=1, tasks_per_epoch=1200, meta_batch=8, lr=3e-2, scale_lr=0.1, progress=False)
    found = learner.evaluate(lines(80, support=10, query=20), shots=(0, 1, 10), progress=False)
    errors = [found.row(shots=shots)["mse"] for shots in (0, 1, 10)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.015  # noise of 0.01, and two weights from ten examples
    for shots in (0, 1, 10):
        assert 0.8 < found.row(shots=shots)["coverage_90"] < 0.98  # after few steps, on few tasks


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_training_is_bitwise_identical(stop: int) -> None:
    whole, first, second = (trainer_of(warm_start=2, warm_start_average=0.5) for _ in range(3))
    while not whole.done:
        whole.step()
    for _ in range(stop):
        first.step()
    second.restore(first.tensors(), first.progress)
    while not second.done:
        second.step()
    assert_same_theta(second.theta, whole.theta)


def test_several_ranks_learn_what_one_learns() -> None:
    def trained(_: object) -> dict[str, torch.Tensor]:
        trainer = trainer_of()
        while not trainer.done:
            trainer.step()
        return copied(trainer)

    (alone,) = together(1, trained)
    for other in together(3, trained):
        for name, value in other.items():
            torch.testing.assert_close(value, alone[name], rtol=1e-9, atol=1e-11, msg=name)


def test_a_saved_prior_forecasts_the_same_and_the_prior_predictive_is_that_of_no_examples(tmp_path: Path) -> None:
    adaptation = mp.ClosedForm(rank=2, components=3, temperature="learned", component_noise=True)
    learner = learner_of(adaptation=adaptation).fit(lines(8), **QUICK, progress=False)
    learner.save(tmp_path)
    loaded = mp.load(tmp_path)
    assert isinstance(loaded, mp.MetaLearner)
    assert loaded.adaptation == adaptation
    task = line(30)
    for one, other in (
        (learner.adapt(task.support), loaded.adapt(task.support)),
        (learner.prior_predictive(), loaded.adapt(task.support.first(0))),
    ):
        found, expected = one.predict(task.query.x), other.predict(task.query.x, samples=99, seed=5)
        assert torch.equal(found.mean, expected.mean)
        assert torch.equal(found.std, expected.std)


def in_units(examples: mp.Examples) -> mp.Examples:
    return mp.Examples(examples.x, 100 + 5 * examples.y)


def test_forecasts_are_in_the_users_units() -> None:
    task = line(20)
    shifted = [mp.Task(in_units(one.support), in_units(one.query), one.name) for one in lines(8)]
    plain, other = (learner_of().fit(tasks, **QUICK, progress=False) for tasks in (lines(8), shifted))
    found = plain.adapt(task.support).predict(task.query.x)
    again = other.adapt(in_units(task.support)).predict(task.query.x)
    torch.testing.assert_close(again.mean, 100 + 5 * found.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(again.parts["task"], 5 * found.parts["task"], rtol=1e-5, atol=1e-6)  # type: ignore[attr-defined]
