import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.likelihoods import NOISE
from metaprior.metagrad import meta_gradient, mixed
from metaprior.metagrad.problem import LOG_LR
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.training import trainer as trainer_module
from metaprior.weights import WeightDistribution
from tests.methods import by_hand
from tests.training.lines import EndlessLines, damaged, line, lines

QUICK: dict[str, Any] = {"epochs": 1, "tasks_per_epoch": 8, "progress": False, "search_step_size": False}
MAML = mp.InnerLoop(steps=2, lr=0.05, kl_weight=0.0, learn_lr="per_tensor")


def small_learner(**changes: Any) -> mp.MetaLearner:
    torch.manual_seed(0)
    return mp.MetaLearner(mp.MLP(1, [3], 1).double(), mp.Gaussian(), **changes)


def assert_same_theta(found: WeightDistribution, expected: WeightDistribution) -> None:
    assert torch.equal(found.mu, expected.mu)
    assert torch.equal(found.rho, expected.rho)
    assert found.plain.keys() == expected.plain.keys()
    for name, value in expected.plain.items():
        assert torch.equal(found.plain[name], value), name


# --- the objective, by hand -------------------------------------------------------------------------------------------

THETA = by_hand.Theta(mu=0.4, rho=-0.7, noise=-0.3, log_lr_mu=-2.5, log_lr_rho=-2.0, log_lr_noise=-3.0)
ADAPTED = by_hand.Lambda(mu=0.7, rho=-1.1, noise=-0.5)
TASK = line(3, support=3, query=5)
INNER = mp.InnerLoop(steps=3, lr=0.1, learn_lr="per_tensor", kl_weight=0.7, samples=2)


HYPERPRIOR = mp.NormalGammaHyperprior(2.5, 0.3)


def one_weight(hyperprior: mp.NormalGammaHyperprior | None = HYPERPRIOR) -> mp.MetaLearner:
    module = nn.Linear(1, 1, bias=False).double()
    learner = mp.MetaLearner(
        module, mp.Gaussian(), inner=INNER, objective="abml", outer_samples=3, hyperprior=hyperprior
    )
    learner.theta_ = as_weights(THETA)
    return learner


def as_weights(theta: by_hand.Theta) -> WeightDistribution:
    def number(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    plain = {NOISE: number(theta.noise)[0], LOG_LR: number(*theta[3:])}
    return WeightDistribution(number(theta.mu), number(theta.rho), plain)


def adapted_posterior(learner: mp.MetaLearner) -> mp.Posterior:
    weights = as_weights(THETA._replace(**ADAPTED._asdict()))
    return replace(learner.prior, weights=weights._replace(plain={NOISE: weights.plain[NOISE]}))


def points(examples: Examples) -> by_hand.Points:
    return list(zip(examples.x.flatten().tolist(), examples.y.flatten().tolist(), strict=True))


def draws(noise: Noise, samples: int) -> list[float]:
    like = torch.zeros(1, dtype=torch.float64)
    return [float(noise.at(sample=number).normal(like)) for number in range(samples)]


def test_the_inner_loss_by_hand() -> None:
    learner, support = one_weight(), points(TASK.support)
    found = learner.inner_loop_loss(adapted_posterior(learner), TASK.support, seed=5)
    eps = draws(Noise(5).fork("inner loss"), 2)
    assert float(found.nll) == pytest.approx(by_hand.expected_nll(ADAPTED, support, eps) / 3, rel=1e-12)
    assert float(found.kl) == pytest.approx(0.7 * by_hand.kl(ADAPTED, THETA) / 3, rel=1e-12)


def test_the_papers_objective_has_every_term() -> None:
    learner = one_weight()
    found = learner.outer_loop_loss(adapted_posterior(learner), TASK, num_tasks=7, seed=5)
    eps = draws(Noise(5).fork("outer").at(step=0), 3)
    expected = by_hand.outer_terms(ADAPTED, THETA, points(TASK.support), points(TASK.query), eps, 7, 2.5, 0.3)
    for name, value in expected._asdict().items():
        assert float(getattr(found, name)) == pytest.approx(value, rel=1e-12), name
        assert value != 0, name
    assert float(found.total) == pytest.approx(sum(expected), rel=1e-12)


def meta_loss_by_hand(theta: by_hand.Theta, noise: Noise) -> float:
    """The whole way from theta through three inner steps to the meta-loss, M = 7."""
    support, query = points(TASK.support), points(TASK.query)
    q = by_hand.Lambda(theta.mu, theta.rho, theta.noise)
    for step in range(3):
        q = by_hand.inner_step(q, theta, support, draws(noise.at(step=step), 2), 0.7)
    return sum(by_hand.outer_terms(q, theta, support, query, draws(noise.fork("outer").at(step=0), 3), 7, 2.5, 0.3))


def central_difference(function: Any, at: Sequence[float], step: float = 1e-5) -> list[float]:
    def moved(index: int, by: float) -> by_hand.Theta:
        return by_hand.Theta(*(value + by * (i == index) for i, value in enumerate(at)))

    return [(function(moved(i, step)) - function(moved(i, -step))) / (2 * step) for i in range(len(at))]


def as_list(grads: WeightDistribution) -> list[float]:
    return [float(grads.mu), float(grads.rho), float(grads.plain[NOISE]), *grads.plain[LOG_LR].tolist()]


def test_the_meta_gradient_is_the_derivative_of_what_is_written_by_hand() -> None:
    learner, noise = one_weight(), Noise(3, task=2)
    batch = meta_gradient(learner.problem(7), learner.theta_, [learner.problem(7).check(TASK)], noise)
    assert float(batch.loss) == pytest.approx(meta_loss_by_hand(THETA, noise), rel=1e-12)
    expected = central_difference(lambda theta: meta_loss_by_hand(theta, noise), THETA)
    assert as_list(batch.grads) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_hyperpriors_part_of_the_gradient() -> None:
    gradients = []
    for learner in (one_weight(), one_weight(None)):
        task = learner.problem(7).check(TASK)
        gradients.append(meta_gradient(learner.problem(7), learner.theta_, [task], Noise()).grads)
    by_mu, by_rho = (float(getattr(gradients[0], part) - getattr(gradients[1], part)) for part in ("mu", "rho"))
    s, share = by_hand.softplus(THETA.rho), 1 / (7 * 8)
    assert by_mu == pytest.approx(share * THETA.mu, rel=1e-9)
    assert by_rho == pytest.approx(share * by_hand.sigmoid(THETA.rho) * (2 * 1.5 / s - 2 * 0.3 / s**3), rel=1e-9)
    difference = central_difference(lambda theta: -by_hand.log_hyperprior(theta, 2.5, 0.3) * share, THETA)
    assert [by_mu, by_rho, 0, 0, 0, 0] == pytest.approx(difference, rel=1e-6, abs=1e-9)


def test_adapt_takes_the_steps_written_by_hand() -> None:
    learner, noise = one_weight(), Noise(4).fork("adapt")
    q = by_hand.Lambda(THETA.mu, THETA.rho, THETA.noise)
    for step in range(6):
        q = by_hand.inner_step(q, THETA, points(TASK.support), draws(noise.at(step=step), 2), 0.7)
    weights = learner.adapt(TASK.support, 6, seed=4).weights
    assert [float(weights.mu), float(weights.rho), float(weights.plain[NOISE])] == pytest.approx(list(q), rel=1e-12)
    assert LOG_LR not in weights.plain


# --- learning ---------------------------------------------------------------------------------------------------------


def test_a_known_prior_is_recovered() -> None:
    """y = w x + 0.5 noise, w from N(2, 0.5^2): theta goes there from N(0.5, 0.05^2), and adaptation to Bayes' rule.

    Sigma stays somewhat below 0.5: it is also where four inner steps start from, and they do not quite arrive.
    """
    family: dict[str, Any] = {"support": 3, "query": 3, "slope": 2.0, "spread": 0.5, "noise": 0.5}
    module = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(module.weight, 0.5)
    inner = mp.InnerLoop(steps=4, lr=0.1, learn_lr="per_tensor", samples=4)
    learner = mp.MetaLearner(module, mp.Gaussian(noise=0.5), inner=inner, objective="abml", hyperprior=None)
    how: dict[str, Any] = {"meta_batch": 16, "lr": 0.1, "scale_lr": 0.2, "search_step_size": False, "progress": False}
    learner.fit(lines(60, **family), epochs=2, tasks_per_epoch=480, **how)
    prior_mean, prior_sigma = float(learner.theta_.mu), float(learner.theta_.sigma)
    assert prior_mean == pytest.approx(2.0, abs=0.25)
    assert 0.25 < prior_sigma < 0.7

    before, after = 0.0, 0.0
    for index in range(1000, 1030):
        support = line(index, **family).support
        precision = float(support.x.square().sum()) / 0.5**2 + prior_sigma**-2
        bayes = (float((support.x * support.y).sum()) / 0.5**2 + prior_mean / prior_sigma**2) / precision
        before += abs(prior_mean - bayes)
        after += abs(float(learner.adapt(support).weights.mu) - bayes)
    assert after < 0.35 * before


def test_training_lowers_the_loss_and_adaptation_the_error() -> None:
    torch.manual_seed(0)
    inner = mp.InnerLoop(steps=5, lr=0.3, learn_lr="per_tensor", kl_weight=0.01)
    learner = mp.MetaLearner(nn.Linear(1, 1).double(), mp.Gaussian(), inner=inner)
    how: dict[str, Any] = {"warm_start": 30, "warm_start_lr": 0.1, "lr": 0.02, "search_step_size": False}
    learner.fit(lines(40, spread=1.0), epochs=2, tasks_per_epoch=40, progress=False, **how)
    assert [summary.phase for summary in learner.history_] == ["warm start", *["everything"] * 2]
    assert [summary.tasks for summary in learner.history_] == [120, 40, 40]
    assert learner.history_[-1].loss < learner.history_[0].loss
    scores = learner.evaluate([line(i, spread=1.0) for i in range(500, 530)], progress=False)
    assert scores.row(shots=0)["support"] == 0
    assert scores.row(shots=None)["support"] == 4
    assert scores.row(shots=None)["mse"] < 0.7 * scores.row(shots=0)["mse"]


def test_fits_are_the_same_bit_for_bit_and_another_seed_is_another() -> None:
    state = torch.get_rng_state()
    first, again = (small_learner().fit(lines(7), **QUICK).theta_ for _ in range(2))
    assert_same_theta(again, first)
    other = small_learner(seed=1).fit(lines(7), **QUICK).theta_
    assert not torch.equal(other.mu, first.mu)
    torch.set_rng_state(state)


def test_no_other_generator_is_touched_and_the_module_is_left_as_it_is() -> None:
    learner = small_learner()
    parameters = [p.detach().clone() for p in learner.network.module.parameters()]
    state = torch.get_rng_state()
    learner.fit(lines(7), **QUICK).adapt(line(0).support)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, parameters, learner.network.module.parameters()))


def test_a_fit_that_fails_leaves_the_last_theta() -> None:
    learner = small_learner().fit(lines(4), **QUICK)
    theta = learner.theta_
    bad = [line(0), *(damaged(line(i), "support") for i in range(1, 60))]
    learner.seed = next(seed for seed in range(100) if trainer_module.task_at(bad, 0, seed).name == "line 0")
    with pytest.raises(mp.MetaTrainingStopped, match="tasks in a row had no finite gradient"):
        learner.fit(bad, **QUICK | {"epochs": 9, "most_bad_tasks": 8})
    assert learner.theta_ is theta


def test_num_tasks_is_the_sources_length_or_what_will_be_drawn() -> None:
    learner, settings = one_weight(), mp.MetaTraining(epochs=3, tasks_per_epoch=20)
    assert learner.trainer(lines(7), settings).problem.objective == mp.AmortizedELBO(7, 3, learner.hyperprior)
    endless = learner.trainer(EndlessLines(), settings).problem.objective
    assert isinstance(endless, mp.AmortizedELBO)
    assert endless.num_tasks == 60


def test_objectives_by_name() -> None:
    assert small_learner(outer_samples=3).problem(1).objective == mp.QueryLoss(3)
    assert small_learner(objective="predictive", outer_samples=3).problem(1).objective == mp.QueryLoss(3, True)
    own = mp.QueryLoss(5)
    assert small_learner(objective=own).problem(9).objective is own


# --- any module, any likelihood ---------------------------------------------------------------------------------------


class Gated(nn.Module):
    """A forward of its own: two branches, a buffer, a parameter used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(1, 4), nn.Linear(1, 4)
        self.out = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        both = torch.tanh(self.left(x)) * torch.sigmoid(self.right(x) + self.shift)
        return (both @ self.out + (self.out**2).sum()).unsqueeze(-1)


def test_any_module_can_be_learned(tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = mp.MetaLearner(Gated(), mp.Gaussian(), stochastic="out|left.*").fit(lines(5), **QUICK)
    assert set(learner.network.layout.names) == {"out", "left.weight", "left.bias"}
    assert {"right.weight", "right.bias", NOISE, LOG_LR} == learner.theta_.plain.keys()
    learner.save(tmp_path)
    with pytest.raises(mp.CheckpointError, match="a network of your own"):
        mp.MetaLearner.load(tmp_path)
    loaded = mp.MetaLearner.load(tmp_path, Gated())
    assert_same_theta(loaded.theta_, learner.theta_)
    x, y = line(9).support
    mine, theirs = (which.adapt((x, y)).predict(x, samples=4) for which in (learner, loaded))
    assert torch.equal(mine.mean, theirs.mean)


def blobs(index: int) -> Task:
    """Three classes around centres that differ from task to task."""
    generator = torch.Generator().manual_seed(index)
    centres = 2 * torch.randn(3, 2, generator=generator)
    labels = torch.arange(3).repeat(4)
    x = centres[labels] + 0.3 * torch.randn(12, 2, generator=generator)
    return Task(Examples(x[:6], labels[:6]), Examples(x[6:], labels[6:]), f"blobs {index}")


def test_labels_are_learned_from_few_examples() -> None:
    torch.manual_seed(0)
    inner = mp.InnerLoop(steps=5, lr=0.5, learn_lr="per_tensor", kl_weight=0.01)
    learner = mp.MetaLearner(nn.Linear(2, 3), mp.Categorical(), inner=inner)
    learner.fit([blobs(i) for i in range(20)], **QUICK | {"tasks_per_epoch": 120, "lr": 0.01})
    scores = learner.evaluate([blobs(i) for i in range(100, 120)], progress=False)
    assert scores.row(shots=None)["error"] < 0.3 < 0.5 < scores.row(shots=0)["error"]
    forecast = learner.adapt(blobs(100).support).predict(blobs(100).query.x, samples=5)
    torch.testing.assert_close(forecast.mean.sum(-1), torch.ones(6))


def test_targets_without_a_channel_axis_come_back_without_one() -> None:
    def scalar(task: Task) -> Task:
        return Task(*(Examples(part.x, part.y[:, 0]) for part in task[:2]), task.name)

    learner = small_learner().fit([scalar(task) for task in lines(5)], **QUICK)
    assert_same_theta(learner.theta_, small_learner().fit(lines(5), **QUICK).theta_)
    task = line(8)
    with_axis = learner.adapt(task.support).predict(task.query.x, samples=4)
    without = learner.adapt(scalar(task).support).predict(task.query.x, samples=4)
    assert with_axis.mean.shape == (5, 1)
    assert torch.equal(without.mean, with_axis.mean[:, 0])
    assert learner.evaluate([scalar(task)], progress=False).rows == learner.evaluate([task], progress=False).rows


def test_support_sets_are_pairs_of_tensors_or_arrays() -> None:
    learner, support = small_learner().fit(lines(5), **QUICK), line(8).support
    expected = learner.adapt(support).weights
    assert_same_theta(learner.adapt((support.x, support.y)).weights, expected)
    assert_same_theta(learner.adapt((support.x.numpy(), support.y.numpy())).weights, expected)
    single = learner.adapt((support.x.numpy().astype(np.float32), support.y.numpy()[:, 0]))
    torch.testing.assert_close(single.weights.mu, expected.mu, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="support: x has to be a torch tensor or a NumPy array, got list"):
        learner.adapt(([[1.0]], [[1.0]]))
    with pytest.raises(ValueError, match=r"support: y has 1 NaN or infinite values"):
        learner.adapt(damaged(line(8), "support").support)


def test_zero_steps_are_the_prior() -> None:
    learner, task = small_learner().fit(lines(5), **QUICK), line(8)
    before = learner.prior.predict(task.query.x, samples=4)
    assert torch.equal(learner.adapt(task.support, 0).predict(task.query.x, samples=4).mean, before.mean)
    assert not torch.equal(learner.adapt(task.support).predict(task.query.x, samples=4).mean, before.mean)


def test_adaptation_that_explodes_says_so() -> None:
    inner = mp.InnerLoop(steps=200, lr=1e4, kl_weight=0.0)
    learner = mp.MetaLearner(nn.Linear(1, 1).double(), mp.Gaussian(noise=1.0), inner=inner).start(lines(3))
    with pytest.raises(FloatingPointError, match=r"became (nan|inf).*inner step \d+.*A smaller inner lr"):
        learner.adapt(line(0).support)


# --- the loss of a point prior ----------------------------------------------------------------------------------------


def test_maml_is_saved_and_adapts(tmp_path: Path) -> None:
    learner = small_learner(inner=MAML, relative_sigma=0).fit(lines(5), **QUICK)
    assert bool(torch.isneginf(learner.theta_.rho).all())
    learner.save(tmp_path)
    loaded = mp.MetaLearner.load(tmp_path)
    assert_same_theta(loaded.theta_, learner.theta_)
    forecast = loaded.adapt(line(8).support).predict(line(8).query.x, samples=5)
    assert not forecast.epistemic.any(), "a point has no uncertainty of weights"
    loss = loaded.outer_loop_loss(loaded.adapt(line(8).support), line(8))
    assert float(loss.total) == pytest.approx(float(-forecast.log_prob(line(8).query.y).mean()), rel=1e-9)


def test_the_inner_loss_of_a_point_has_no_kl() -> None:
    learner = small_learner(inner=MAML, relative_sigma=0).start(lines(5))
    loss = learner.inner_loop_loss(learner.adapt(line(8).support), line(8).support)
    assert float(loss.kl) == 0.0


# --- saving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"inner": mp.InnerLoop(steps=3, lr=0.02, momentum=0.3, samples=2, adapt="likelihood.*", damped=False)},
        {"inner": mp.InnerLoop(2, 0.02, "one"), "objective": "abml", "hyperprior": None},
        {"objective": "abml", "hyperprior": mp.NormalGammaHyperprior(3.0, 0.5), "outer_samples": 2, "seed": 5},
        {"objective": "predictive", "outer_samples": 4, "memory": "2GiB", "stochastic": r"2\..*|1\..*"},
    ],
    ids=["default", "inner", "one step size", "hyperprior", "predictive"],
)
def test_saving_and_loading_changes_no_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    if "stochastic" in changes:
        names = [name for name, _ in mp.MLP(1, [3], 1).named_parameters()]
        changes = {**changes, "stochastic": "|".join(names[2:]).replace(".", r"\.")}
    learner = small_learner(**changes).fit(lines(5), **QUICK)
    learner.save(tmp_path)
    loaded = mp.MetaLearner.load(tmp_path)
    assert_same_theta(loaded.theta_, learner.theta_)
    for name in ("inner", "objective", "hyperprior", "outer_samples", "relative_sigma", "memory", "seed", "likelihood"):
        assert getattr(loaded, name) == getattr(learner, name), name
    assert loaded.history_ == []
    assert loaded.network.stochastic == learner.network.stochastic
    task = line(8)
    mine, theirs = (which.adapt(task.support).predict(task.query.x, samples=4) for which in (learner, loaded))
    assert torch.equal(mine.mean, theirs.mean)
    assert torch.equal(mine.std, theirs.std)


def test_what_cannot_be_saved_or_loaded_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="an objective of your own cannot be saved"):
        small_learner(objective=mp.QueryLoss(2)).fit(lines(3), **QUICK).save(tmp_path / "a")
    module = nn.Sequential(OrderedDict(a=nn.Linear(1, 3), b=nn.Linear(3, 1))).double()
    mp.MetaLearner(module, mp.Gaussian()).fit(lines(3), **QUICK).save(tmp_path / "b")
    with pytest.raises(mp.CheckpointError, match="does not have the structure that was saved"):
        mp.MetaLearner.load(tmp_path / "b", nn.Linear(1, 1).double())
    with pytest.raises(mp.CheckpointError):
        mp.BayesByBackprop.load(tmp_path / "b", module)


# --- what users are told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "elbo"}, "objective is one of query, predictive, abml, or an Objective; got 'elbo'"),
        ({"relative_sigma": -0.1}, "relative_sigma has to be at least 0, got -0.1"),
        ({"relative_sigma": math.nan}, "relative_sigma has to be at least 0, got nan"),
        ({"relative_sigma": 0}, r"relative_sigma=0 is a point prior.*kl_weight=0"),
        ({"relative_sigma": 0, "inner": MAML, "objective": "abml"}, r"point prior.*objective='query'"),
        ({"objective": "predictive"}, "needs outer_samples of at least 2, got 1"),
        ({"stochastic": "nothing"}, "matches none of the module's learnable parameters"),
        ({"inner": mp.InnerLoop(adapt="nothing")}, "matches none of the plain parameters"),
    ],
)
def test_what_cannot_work_is_said_when_it_is_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_learner(**changes)


def test_a_theta_is_needed_first() -> None:
    learner = small_learner()
    for use in (lambda: learner.adapt(line(0).support), lambda: learner.prior, lambda: list(learner.parameters())):
        with pytest.raises(ValueError, match=r"there is no theta yet: call fit\(tasks\) \(or start\(tasks\)"):
            use()


def test_settings_and_tasks_are_checked() -> None:
    with pytest.raises(TypeError, match=r"unknown settings epoch, learning_rate; known are epochs, tasks_per_epoch"):
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
    scale = torch.nn.functional.softplus(learner.theta_.plain[NOISE].detach())
    torch.testing.assert_close(scale, targets.square().mean().sqrt(), rtol=1e-12, atol=0)
    assert bool((learner.theta_.plain[LOG_LR] == math.log(0.01)).all())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_first_noise_scale_is_that_of_the_finite_targets(value: float) -> None:
    class OneDamaged:
        def __getitem__(self, index: int) -> Task:
            return damaged(line(index), value=value) if index == 3 else line(index)

    scale = torch.nn.functional.softplus(small_learner().start(OneDamaged()).theta_.plain[NOISE].detach())
    good = torch.cat([part.y for i in range(20) for part in line(i)[:2]])
    bad = line(3).query.y[:1]
    expected = ((good.square().sum() - bad.square().sum()) / (len(good) - 1)).sqrt()
    torch.testing.assert_close(scale, expected, rtol=1e-9, atol=0)


def test_a_given_engine_is_used() -> None:
    trainer = small_learner(engine=mixed).trainer(lines(5), mp.MetaTraining())
    assert trainer.engine is mixed
    assert trainer.stacked
    assert small_learner().trainer(lines(5), mp.MetaTraining(meta_batch=1)).stacked is False
