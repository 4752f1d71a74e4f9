"""Learners with a context, alone and combined: fitted, saved, resumed, on several ranks, on every kind of data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.errors import CheckpointError
from metaprior.models.unet import UNet
from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.tasks.task import Task, Tasks, VariedSupport
from metaprior.tasks.waves import Sinusoids
from metaprior.training.settings import MetaTraining
from metaprior.weights import WeightDistribution
from tests.team.fake import together

CONTEXT = mp.Context(8)
ADAPTATIONS: dict[str, Any] = {
    "context": CONTEXT,
    "context+closed_form": CONTEXT + mp.ClosedForm(),
    "context+descent": CONTEXT + mp.Descent(2, learn_lr="per_tensor"),
}
SETTINGS = MetaTraining(epochs=1, tasks_per_epoch=12, meta_batch=4, warm_start=2, scales_first=0.25)


class Sides:
    """Endless tasks: the class of a point is its side of the task's line; one label is missing."""

    def __getitem__(self, index: int) -> Task:
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(12, 2, generator=generator)
        return Task.split(x, (x @ torch.randn(2, generator=generator) > 0).long(), 6, f"sides {index}")


class SomeMissing:
    """The tasks of a source with two outputs, of which some are missing."""

    def __getitem__(self, index: int) -> Task:
        generator = torch.Generator().manual_seed(index)
        x, y = torch.randn(12, 1, generator=generator), torch.randn(12, 2, generator=generator)
        y[torch.rand(12, generator=generator) < 0.3, 0] = torch.nan
        return Task.split(x, y, 6, f"some missing {index}")


def data(kind: str) -> tuple[nn.Module, mp.Likelihood, Tasks]:
    torch.manual_seed(0)
    if kind == "frames":
        blobs = DriftingBlobs(8, k_shot=3, k_query=2)
        return UNet(4, 2, 4, 1), mp.Gaussian(), VariedSupport(blobs, (0, 1, 3), together=4)
    source: Any = {"numbers": Sinusoids(6, 6), "labels": Sides(), "missing": SomeMissing()}[kind]
    likelihood = mp.Categorical() if kind == "labels" else mp.Gaussian()
    module = mp.MLP(2 if kind == "labels" else 1, [8, 8], 1 if kind == "numbers" else 2)
    return module, likelihood, VariedSupport(source, (0, 2, 6), together=4)


def learner_of(adaptation: str, kind: str = "numbers") -> tuple[mp.MetaLearner, Tasks]:
    module, likelihood, tasks = data(kind)
    stochastic = r"output\..*" if kind == "frames" and adaptation == "context+descent" else None
    return mp.MetaLearner(module, likelihood, adaptation=ADAPTATIONS[adaptation], stochastic=stochastic), tasks


@pytest.mark.filterwarnings("ignore:.* targets are missing")
@pytest.mark.parametrize("kind", ["numbers", "labels", "missing", "frames"])
@pytest.mark.parametrize("adaptation", ADAPTATIONS)
def test_a_learner_fits_adapts_saves_and_loads(adaptation: str, kind: str, tmp_path: Path) -> None:
    learner, tasks = learner_of(adaptation, kind)
    learner.fit(tasks, SETTINGS, progress=False)
    learner.save(tmp_path)
    again, task = mp.MetaLearner.load(tmp_path), tasks[4]
    assert again.adaptation == learner.adaptation
    for one, two in (
        (learner.prior_predictive(), again.prior_predictive()),
        (learner.adapt(task.support), again.adapt(task.support)),
    ):
        here, there = (own.predict(task.query.x, samples=3) for own in (one, two))
        assert bool(here.mean.isfinite().all())
        assert torch.equal(here.mean, there.mean)
        assert torch.equal(here.std, there.std)


@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize("adaptation", ADAPTATIONS)
def test_a_restored_training_is_bitwise_identical(adaptation: str, after: int) -> None:
    """The warm start lasts two steps, the scales alone one."""
    learner, tasks = learner_of(adaptation)
    straight = learner.trainer(tasks, SETTINGS)
    for _ in range(after):
        straight.step()
    state, progress = {n: v.clone() for n, v in straight.tensors().items()}, replace(straight.progress)
    while not straight.done:
        straight.step()
    learner, tasks = learner_of(adaptation)
    resumed = learner.trainer(tasks, SETTINGS)
    resumed.restore(state, progress)
    while not resumed.done:
        resumed.step()
    for name, value in straight.tensors().items():
        assert torch.equal(resumed.tensors()[name], value), name


@pytest.mark.parametrize("adaptation", ADAPTATIONS)
def test_two_ranks_learn_the_same_and_that_of_one_process(adaptation: str) -> None:
    def theta() -> WeightDistribution:
        with torch.random.fork_rng(devices=[]):
            learner, tasks = learner_of(adaptation)
        learner.module.double()
        return learner.fit(tasks, SETTINGS, progress=False).theta_

    (alone,) = together(1, lambda _: theta())
    first, second = together(2, lambda _: theta())
    for name, value in first.named().items():
        torch.testing.assert_close(value, alone.named()[name], rtol=1e-8, atol=1e-10, msg=name)
        assert torch.equal(second.named()[name], value), name


class Own(nn.Module):
    """An encoder of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.layer(torch.cat([x, y], 1)).tanh()  # type: ignore[no-any-return]


def test_an_encoder_of_ones_own_is_given_again_to_load(tmp_path: Path) -> None:
    module, likelihood, tasks = data("numbers")
    context = mp.Context(8, encoder=Own())
    learner = mp.MetaLearner(module, likelihood, adaptation=context).fit(tasks, SETTINGS, progress=False)
    learner.save(tmp_path)
    with pytest.raises(CheckpointError, match=r"encoder of your own \(Own\)"):
        mp.MetaLearner.load(tmp_path)
    again, task = mp.MetaLearner.load(tmp_path, adaptation=mp.Context(8, encoder=Own())), tasks[4]
    one, two = (own.adapt(task.support).predict(task.query.x) for own in (learner, again))
    assert torch.equal(one.mean, two.mean)


class Levels:
    """Endless tasks whose targets are a constant and noise."""

    def __getitem__(self, index: int) -> Task:
        generator = torch.Generator().manual_seed(index)
        y = torch.randn(1, generator=generator) + 0.1 * torch.randn(12, 1, generator=generator)
        return Task.split(torch.randn(12, 1, generator=generator), y, 8, f"level {index}")


def test_a_few_steps_learn_to_read_a_constant_from_one_example() -> None:
    torch.manual_seed(0)
    learner = mp.MetaLearner(mp.MLP(1, [16], 1), mp.Gaussian(), adaptation=mp.Context(16), standardize=False)
    tasks = VariedSupport(Levels(), (0, 1, 8), together=8)
    learner.fit(tasks, epochs=1, tasks_per_epoch=8 * 100, meta_batch=8, lr=1e-2, progress=False)
    variances, spreads = torch.zeros(3), torch.zeros(3)
    for index in range(5000, 5040):
        task = Levels()[index]
        for place, shots in enumerate((0, 1, 8)):
            forecast = learner.adapt(task.support.first(shots)).predict(task.query.x)
            variances[place] += (forecast.mean - task.query.y).square().mean() / 40
            spreads[place] += forecast.std.mean() / 40
    assert bool((variances[1:] < 0.2 * variances[0]).all())
    assert bool((spreads[1:] < 0.85 * spreads[0]).all())


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="reading must be one of"):
        mp.Context(reading="outputs")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size must be an integer"):
        mp.Context(0)
    with pytest.raises(TypeError, match=r"encoder must be an nn\.Module"):
        mp.Context(encoder="mean")  # type: ignore[arg-type]
    learner, tasks = learner_of("context")
    learner.objective = "abml"
    with pytest.raises(ValueError, match="objective must be one of query, got 'abml'"):
        learner.fit(tasks, SETTINGS, progress=False)


def test_a_task_model_is_kept_until_something_that_it_is_made_of_changes() -> None:
    learner, tasks = learner_of("context")
    model = learner.start(tasks).task_model()
    assert learner.task_model() is model is learner.with_theta(learner.theta_).task_model()
    changes: list[Any] = [
        learner.module.eval,
        lambda: learner.module.get_submodule("layers").__setattr__("0", nn.Linear(1, 8)),
        lambda: setattr(learner, "adaptation", mp.Context(8, "inputs")),
        lambda: setattr(learner, "likelihood", mp.Gaussian(0.3)),
        lambda: setattr(learner, "relative_sigma", 0.2),
    ]
    for change in changes:
        change()
        before, model = model, learner.task_model()
        assert model is not before
        assert model is learner.task_model()
