"""A meta-learner in use: any module and likelihood, saving, and what users are told."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import metaprior as mp
from metaprior.likelihoods import NOISE_RHO
from metaprior.metagrad import mixed
from metaprior.methods import target_units
from metaprior.tasks.task import Examples, Task
from metaprior.training import trainer as trainer_module
from tests.methods.small_learner import MAML, QUICK, assert_same_theta, small_learner
from tests.training.lines import damaged, line, lines

# --- the first look at the tasks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("enough", "asked"), [(2**24, 20), (1, 1)])
def test_the_first_look_takes_some_tasks_and_of_large_ones_fewer(
    enough: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_units, "FIRST_NUMBERS", enough)
    positions = []

    class Watched:
        def __getitem__(self, index: int) -> Task:
            positions.append(index)
            return line(index)

    small_learner().start(Watched())
    assert positions == list(range(asked))


# --- adaptation -------------------------------------------------------------------------------------------------------


def blobs(index: int) -> Task:
    """Three classes around centres that differ from task to task."""
    generator = torch.Generator().manual_seed(index)
    centres = 2 * torch.randn(3, 2, generator=generator)
    labels = torch.arange(3).repeat(4)
    x = centres[labels] + 0.3 * torch.randn(12, 2, generator=generator)
    return Task(Examples(x[:6], labels[:6]), Examples(x[6:], labels[6:]), f"blobs {index}")


def test_labels_are_learned_from_few_examples() -> None:
    torch.manual_seed(0)
    inner = mp.Descent(steps=5, lr=0.5, learn_lr="per_tensor", kl_weight=0.01)
    learner = mp.MetaLearner(nn.Linear(2, 3), mp.Categorical(), adaptation=inner)
    learner.fit([blobs(i) for i in range(20)], **QUICK | {"tasks_per_epoch": 120, "lr": 0.01})
    scores = learner.evaluate([blobs(i) for i in range(100, 120)], progress=False)
    assert scores.row(shots=None)["error"] < 0.3 < 0.5 < scores.row(shots=0)["error"]
    forecast = learner.adapt(blobs(100).support).predict(blobs(100).query.x, samples=5)
    torch.testing.assert_close(forecast.mean.sum(-1), torch.ones(6))


def test_zero_steps_are_the_prior() -> None:
    learner, task = small_learner().fit(lines(5), **QUICK), line(8)
    before = learner.prior_predictive().predict(task.query.x, samples=4)
    assert torch.equal(learner.adapt(task.support, 0).predict(task.query.x, samples=4).mean, before.mean)
    assert not torch.equal(learner.adapt(task.support).predict(task.query.x, samples=4).mean, before.mean)


@pytest.mark.parametrize(
    ("steps", "lr", "noise", "sigma", "message"),
    [
        (200, 1e4, 1.0, 0.1, r"became (nan|inf).*inner step \d+.*A smaller inner lr"),
        # The losses of a step are those before it.
        (1, 1e308, 1e-3, 0.1, r"(mean|scale) of a weight became -?(nan|inf) \(inner step 0\)"),
        (1, 1e308, 1e-3, 0.0, r"(mean|scale) of a weight became -?(nan|inf) \(inner step 0\)"),
    ],
)
def test_adaptation_that_explodes_says_so(steps: int, lr: float, noise: float, sigma: float, message: str) -> None:
    inner = mp.Descent(steps=steps, lr=lr, kl_weight=0.0)
    learner = mp.MetaLearner(
        nn.Linear(1, 1).double(), mp.Gaussian(noise=noise), adaptation=inner, relative_sigma=sigma, standardize=False
    )
    with pytest.raises(FloatingPointError, match=message):
        learner.start(lines(3)).adapt(line(0).support)


# --- the loss of a point prior ----------------------------------------------------------------------------------------


def test_maml_is_saved_and_adapts(tmp_path: Path) -> None:
    learner = small_learner(adaptation=MAML, relative_sigma=0).fit(lines(5), **QUICK)
    assert bool(torch.isneginf(learner.theta_.rho).all())
    learner.save(tmp_path)
    loaded = mp.MetaLearner.load(tmp_path)
    assert_same_theta(loaded.theta_, learner.theta_)
    forecast = loaded.adapt(line(8).support).predict(line(8).query.x, samples=5)
    assert not forecast.epistemic.any(), "a point has no uncertainty of weights"
    loss = loaded.outer_loop_loss(loaded.adapt(line(8).support), line(8))
    assert float(loss.total) == pytest.approx(float(-forecast.log_prob(line(8).query.y).mean()), rel=1e-9)


def test_the_inner_loss_of_a_point_has_no_kl() -> None:
    learner = small_learner(adaptation=MAML, relative_sigma=0).start(lines(5))
    loss = learner.inner_loop_loss(learner.adapt(line(8).support), line(8).support)
    assert float(loss.kl) == 0.0


# --- saving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"adaptation": mp.Descent(steps=3, lr=0.02, momentum=0.3, samples=2, adapt="likelihood.*", damped=False)},
        {"adaptation": mp.Descent(2, 0.02, "one"), "objective": "abml", "hyperprior": None},
        {"objective": "abml", "hyperprior": mp.NormalGammaHyperprior(3.0, 0.5), "outer_samples": 2, "seed": 5},
        {"objective": "predictive", "outer_samples": 4, "memory": "2GiB", "stochastic": r"2\..*|1\..*"},
    ],
    ids=["inner", "one step size", "hyperprior", "predictive"],
)
def test_saving_and_loading_changes_no_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    if "stochastic" in changes:
        names = [name for name, _ in mp.MLP(1, [3], 1).named_parameters()]
        changes = {**changes, "stochastic": "|".join(names[2:]).replace(".", r"\.")}
    learner = small_learner(**changes).fit(lines(5), **QUICK)
    learner.save(tmp_path)
    loaded = mp.MetaLearner.load(tmp_path)
    assert_same_theta(loaded.theta_, learner.theta_)
    for name in (
        "adaptation",
        "objective",
        "hyperprior",
        "outer_samples",
        "relative_sigma",
        "memory",
        "seed",
        "likelihood",
    ):
        assert getattr(loaded, name) == getattr(learner, name), name
    assert loaded.network.stochastic == learner.network.stochastic
    task = line(8)
    mine, theirs = (which.adapt(task.support).predict(task.query.x, samples=4) for which in (learner, loaded))
    assert torch.equal(mine.mean, theirs.mean)
    assert torch.equal(mine.std, theirs.std)


# --- what users are told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "elbo"}, "objective must be one of query, predictive, abml, or an Objective; got 'elbo'"),
        ({"relative_sigma": math.nan}, "relative_sigma must be at least 0, got nan"),
        ({"relative_sigma": 0}, r"relative_sigma=0 is a point prior.*kl_weight=0"),
        ({"relative_sigma": 0, "adaptation": MAML, "objective": "abml"}, r"point prior.*objective='query'"),
        ({"objective": "predictive"}, "needs outer_samples of at least 2, got 1"),
        ({"adaptation": mp.Descent(adapt="nothing")}, "matches none of the plain parameters"),
    ],
)
def test_invalid_arguments_are_refused_by_the_first_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_learner(**changes).fit(lines(3), **QUICK)


def test_settings_and_tasks_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="objective must be one of the package's to be saved"):
        small_learner(objective=mp.QueryLoss(2)).fit(lines(3), **QUICK).save(tmp_path)
    with pytest.raises(TypeError, match=r"unknown settings epoch, learning_rate; valid are epochs, tasks_per_epoch"):
        small_learner().fit(lines(2), epoch=3, learning_rate=1.0)
    with pytest.raises(ValueError, match="there are no tasks: the collection is empty"):
        small_learner().fit([], **QUICK)
    with pytest.raises(ValueError, match="there are no tasks"):
        small_learner().start([])
    wrong = line(1)._replace(query=Examples(torch.ones(2, 3).double(), torch.ones(2, 1).double()))
    with pytest.raises((ValueError, RuntimeError), match=r"line 1|shapes"):
        small_learner().fit([wrong], **QUICK)


def test_settings_come_as_one_or_by_name() -> None:
    settings = mp.MetaTraining(epochs=1, tasks_per_epoch=8, search_step_size=False)
    as_one = small_learner().fit(lines(5), settings, progress=False)
    changed = small_learner().fit(lines(5), replace(settings, epochs=3), epochs=1, progress=False)
    by_name = small_learner().fit(lines(5), **QUICK)
    for other in (as_one, changed):
        assert_same_theta(other.theta_, by_name.theta_)
        assert len(other.history_) == 1


def test_start_gives_leaves_to_learn() -> None:
    learner = small_learner().start(lines(5))
    assert learner.history_ == []
    parameters = list(learner.parameters())
    assert len(parameters) == 4
    assert all(p.is_leaf and p.requires_grad for p in parameters)
    targets = torch.cat([part.y for i in range(20) for part in trainer_module.task_at(lines(5), i, 0)[:2]])
    scale = torch.nn.functional.softplus(learner.theta_.plain[NOISE_RHO].detach())
    torch.testing.assert_close(scale, targets.square().mean().sqrt(), rtol=1e-12, atol=0)
    assert bool((learner.theta_.log_lr == math.log(0.01)).all())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_first_noise_scale_is_that_of_the_finite_targets(value: float) -> None:
    class OneDamaged:
        def __getitem__(self, index: int) -> Task:
            return damaged(line(index), value=value) if index == 3 else line(index)

    scale = torch.nn.functional.softplus(small_learner().start(OneDamaged()).theta_.plain[NOISE_RHO].detach())
    good = torch.cat([part.y for i in range(20) for part in line(i)[:2]])
    bad = line(3).query.y[:1]
    expected = ((good.square().sum() - bad.square().sum()) / (len(good) - 1)).sqrt()
    torch.testing.assert_close(scale, expected, rtol=1e-9, atol=0)


def test_a_given_engine_is_used() -> None:
    trainer = small_learner(engine=mixed).trainer(lines(5), mp.MetaTraining())
    assert trainer.model.how == ("mixed", None, True)
    assert small_learner().trainer(lines(5), mp.MetaTraining(meta_batch=1)).model.how.stacked is False
