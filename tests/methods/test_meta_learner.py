from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.likelihoods import NOISE_RHO
from metaprior.metagrad import meta_gradient
from metaprior.noise import Noise
from metaprior.tasks.task import Examples
from metaprior.training import trainer as trainer_module
from metaprior.weights import WeightDistribution
from tests.methods import by_hand
from tests.methods.small_learner import QUICK, assert_same_theta, small_learner
from tests.training.lines import EndlessLines, damaged, line, lines

# --- the objective, by hand -------------------------------------------------------------------------------------------

THETA = by_hand.Theta(mu=0.4, rho=-0.7, noise=-0.3, log_lr_mu=-2.5, log_lr_rho=-2.0, log_lr_noise=-3.0)
ADAPTED = by_hand.Lambda(mu=0.7, rho=-1.1, noise=-0.5)
TASK = line(3, support=3, query=5)
INNER = mp.Descent(steps=3, lr=0.1, learn_lr="per_tensor", kl_weight=0.7, samples=2)
HYPERPRIOR = mp.NormalGammaHyperprior(2.5, 0.3)


def one_weight(hyperprior: mp.NormalGammaHyperprior | None = HYPERPRIOR) -> mp.MetaLearner:
    module = nn.Linear(1, 1, bias=False).double()
    learner = mp.MetaLearner(
        module,
        mp.Gaussian(),
        adaptation=INNER,
        objective="abml",
        outer_samples=3,
        hyperprior=hyperprior,
        standardize=False,
    )
    learner.theta_ = as_weights(THETA)
    return learner


def as_weights(theta: by_hand.Theta) -> WeightDistribution:
    def number(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    plain = {NOISE_RHO: number(theta.noise)[0]}
    return WeightDistribution(number(theta.mu), number(theta.rho), plain, number(*theta[3:]))


def adapted_posterior(learner: mp.MetaLearner) -> mp.Posterior:
    weights = as_weights(THETA._replace(**ADAPTED._asdict()))
    return replace(learner.prior_predictive(), weights=weights.replace(log_lr=None))


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
    return [float(grads.mu), float(grads.rho), float(grads.plain[NOISE_RHO]), *grads.log_lr.tolist()]


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
    assert [float(weights.mu), float(weights.rho), float(weights.plain[NOISE_RHO])] == pytest.approx(list(q), rel=1e-12)
    assert weights.log_lr is None


# --- learning ---------------------------------------------------------------------------------------------------------


def test_a_known_prior_is_recovered() -> None:
    """y = w x + 0.5 noise, w from N(2, 0.5^2): theta goes there from N(0.5, 0.05^2), and adaptation to Bayes' rule.

    Sigma stays somewhat below 0.5: it is also where four inner steps start from, and they do not quite arrive.
    """
    family: dict[str, Any] = {"support": 3, "query": 3, "slope": 2.0, "spread": 0.5, "noise": 0.5}
    module = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(module.weight, 0.5)
    inner = mp.Descent(steps=4, lr=0.1, learn_lr="per_tensor", samples=4)
    learner = mp.MetaLearner(
        module, mp.Gaussian(noise=0.5), adaptation=inner, objective="abml", hyperprior=None, standardize=False
    )
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
    inner = mp.Descent(steps=5, lr=0.3, learn_lr="per_tensor", kl_weight=0.01)
    learner = mp.MetaLearner(nn.Linear(1, 1).double(), mp.Gaussian(), adaptation=inner, standardize=False)
    how: dict[str, Any] = {"warm_start": 30, "warm_start_lr": 0.1, "lr": 0.02, "search_step_size": False}
    learner.fit(lines(40, spread=1.0), epochs=2, tasks_per_epoch=40, progress=False, **how)
    assert [summary.phase for summary in learner.history_] == ["warm start", *["everything"] * 2]
    assert [summary.tasks for summary in learner.history_] == [120, 40, 40]
    assert learner.history_[-1].loss < learner.history_[0].loss
    scores = learner.evaluate([line(i, spread=1.0) for i in range(500, 530)], progress=False)
    assert scores.row(shots=0)["support"] == 0
    assert scores.row(shots=None)["support"] == 4
    assert scores.row(shots=None)["mse"] < 0.7 * scores.row(shots=0)["mse"]


def test_a_fit_that_is_stopped_keeps_what_it_has_learned() -> None:
    learner = small_learner()
    bad = [line(0), *(damaged(line(i), "support") for i in range(1, 60))]
    learner.seed = next(seed for seed in range(100) if trainer_module.task_at(bad, 0, seed).name == "line 0")
    with pytest.raises(mp.TrainingDiverged, match="tasks in a row had no finite gradient"):
        learner.fit(bad, **QUICK | {"epochs": 9, "most_bad_tasks": 8})
    learner.adapt(line(0).support)  # there is a theta, and it is finite


def test_ctrl_c_keeps_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small_learner().fit(lines(4), **QUICK | {"epochs": 2, "schedule": "constant", "scales_first": 0.0})
    real, steps = trainer_module.Trainer.step, list[int]()

    def step(self: Any) -> Any:
        steps.append(self.progress.step)
        if self.progress.step == self.settings.steps_per_epoch * 2:
            raise KeyboardInterrupt
        return real(self)

    monkeypatch.setattr(trainer_module.Trainer, "step", step)
    learner = small_learner()
    with pytest.raises(KeyboardInterrupt):
        learner.fit(lines(4), **QUICK | {"epochs": 9, "schedule": "constant", "scales_first": 0.0})
    assert_same_theta(learner.theta_, whole.theta_)
    assert len(learner.history_) == 2


def test_the_warm_start_learns_from_a_source_of_its_own() -> None:
    def fitted(tasks: Any, **sources: Any) -> WeightDistribution:
        torch.manual_seed(0)
        learner = mp.MetaLearner(mp.MLP(1, [3], 1).double(), mp.Gaussian(noise=0.5), standardize=False)
        return learner.fit(tasks, epochs=0, warm_start=3, progress=False, **sources).theta_

    tasks, others = lines(7), EndlessLines(slope=-2.0)
    assert_same_theta(fitted(tasks, pooled=others), fitted(others))
    assert_same_theta(fitted(tasks, pooled=tasks), fitted(tasks))
    assert not torch.equal(fitted(tasks, pooled=others).mu, fitted(tasks).mu)


def test_num_tasks_is_the_sources_length_or_what_will_be_drawn() -> None:
    learner, settings = one_weight(), mp.MetaTraining(epochs=3, tasks_per_epoch=20)
    assert learner.trainer(lines(7), settings).model.problem.objective == mp.AmortizedELBO(7, 3, learner.hyperprior)
    endless = learner.trainer(EndlessLines(), settings).model.problem.objective
    assert isinstance(endless, mp.AmortizedELBO)
    assert endless.num_tasks == 60


def test_objectives_by_name() -> None:
    assert small_learner(outer_samples=3).problem(1).objective == mp.QueryLoss(3)
    assert small_learner(objective="predictive", outer_samples=3).problem(1).objective == mp.QueryLoss(3, True)
    own = mp.QueryLoss(5)
    assert small_learner(objective=own).problem(9).objective is own
