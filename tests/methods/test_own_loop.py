import math
from typing import Any

import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior.likelihoods import NOISE_RHO
from metaprior.metagrad import meta_gradient, unrolled
from metaprior.noise import Noise
from metaprior.weights import WeightDistribution
from tests.bars import bars_at_once
from tests.training.lines import damaged, line, lines

INNER = mp.Descent(steps=2, lr=0.02, learn_lr="per_tensor")


def started(**changes: Any) -> mp.MetaLearner:
    torch.manual_seed(0)
    learner = mp.MetaLearner(
        mp.MLP(1, [3], 1).double(), mp.Gaussian(), **{"adaptation": INNER, **changes}, standardize=False
    )
    return learner.start(lines(4))


def flat(theta: WeightDistribution) -> Tensor:
    return torch.cat([t.detach().flatten().clone() for t in theta.tensors()])


@pytest.mark.parametrize("clip", [1e9, 0.05])
def test_a_step_is_descent_along_the_clipped_meta_gradient(clip: float) -> None:
    """Two meta-batches (of 3 and 1) against the slowest engine, task by task."""
    learner, noise, tasks = started(objective="abml"), Noise(8), lines(4)
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
    theta, problem, norms = learner.theta_.detached(), learner.problem(4), []
    for first, last in ((0, 3), (3, 4)):
        values = [unrolled(problem, theta, tasks[i], noise.at(task=i)) for i in range(first, last)]
        mean = torch.stack([flat(value.or_raise().grads) for value in values]).mean(0)
        norms.append(float(mean.norm()))
        mean = mean * min(1.0, clip / norms[-1])
        parts = (flat(theta) - 0.1 * mean).split([t.numel() for t in theta.tensors()])
        named = zip(theta.named().items(), parts, strict=True)
        theta = theta.from_named({name: part.view_as(value) for (name, value), part in named})
    summary = mp.meta_train_one_epoch(
        learner, tasks, optimizer, meta_batch=3, grad_clip_norm=clip, noise=noise, progress=False
    )
    torch.testing.assert_close(flat(learner.theta_), flat(theta), rtol=1e-6, atol=1e-8)
    assert (summary.steps, summary.tasks, summary.bad_tasks) == (2, 4, 0)
    assert summary.grad_norms["theta"] == pytest.approx((3 * norms[0] + norms[1]) / 4, rel=1e-5)
    assert min(norms) > 0.05
    assert learner.history_ == [summary]


def test_the_loss_is_the_mean_over_tasks() -> None:
    learner, noise = started(), Noise(8)
    expected = meta_gradient(learner.problem(1), learner.theta_, lines(4), noise).loss
    optimizer = torch.optim.SGD(learner.parameters(), lr=1e-12)
    summary = mp.meta_train_one_epoch(learner, iter(lines(4)), optimizer, noise=noise, progress=False)
    assert summary.steps == 4
    assert summary.loss == pytest.approx(float(expected), rel=1e-9)


def test_any_optimiser_learns() -> None:
    learner, tasks = started(), lines(8)
    optimizer = torch.optim.Adam(learner.parameters(), lr=0.03)
    losses = [mp.meta_train_one_epoch(learner, tasks, optimizer, meta_batch=4, progress=False).loss for _ in range(12)]
    assert losses[-1] < 0.8 * losses[0]
    assert len(learner.history_) == 12


def test_epochs_have_noise_of_their_own_and_are_repeatable() -> None:
    def run(epochs: int) -> list[float]:
        learner = started()
        still = torch.optim.SGD(learner.parameters(), lr=0.0)
        return [mp.meta_train_one_epoch(learner, lines(3), still, progress=False).loss for _ in range(epochs)]

    first = run(3)
    assert run(3) == first
    assert len(set(first)) == 3


def test_bad_tasks_are_left_out_and_counted() -> None:
    learner, twin = started(), started()
    tasks = [line(0), line(1), damaged(line(2)), damaged(line(3), "support")]
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
    summary = mp.meta_train_one_epoch(learner, tasks, optimizer, meta_batch=2, noise=Noise(1), progress=False)
    assert (summary.steps, summary.tasks, summary.bad_tasks) == (2, 2, 2)
    assert summary.failures == tuple(
        f"line {number}: its {part} y holds inf; nothing of this task was used. Repair its data"
        for number, part in ((2, "query"), (3, "support"))
    )
    good = torch.optim.SGD(twin.parameters(), lr=0.1)
    mp.meta_train_one_epoch(twin, tasks[:2], good, meta_batch=2, noise=Noise(1), progress=False)
    assert torch.equal(flat(learner.theta_), flat(twin.theta_))


def test_an_epoch_of_bad_tasks_stops_with_theta_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = started()
    before = flat(learner.theta_)
    bad = [line(0)._replace(support=mp.Examples(1e200 * line(0).support.x, line(0).support.y))] * 2
    with pytest.raises(mp.TrainingDiverged, match=r"none of 2 tasks had a finite gradient.*line 0: the .* became"):
        mp.meta_train_one_epoch(learner, bad, torch.optim.SGD(learner.parameters(), lr=0.1), progress=False)
    assert torch.equal(flat(learner.theta_), before)
    assert learner.history_ == []


def test_a_points_scales_stay_points() -> None:
    learner = started(adaptation=mp.Descent(steps=2, lr=0.05, kl_weight=0.0, learn_lr="one"), relative_sigma=0)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=0.01)
    before = learner.theta_.detached()
    mp.meta_train_one_epoch(learner, lines(4), optimizer, meta_batch=2, progress=False)
    assert bool(torch.isneginf(learner.theta_.rho).all())
    assert learner.theta_.rho not in optimizer.state, "an optimiser passes over what has no gradient"
    assert bool((learner.theta_.mu != before.mu).all())
    assert not torch.equal(learner.theta_.log_lr, before.log_lr)
    assert not torch.equal(learner.theta_.plain[NOISE_RHO], before.plain[NOISE_RHO])


def test_tasks_of_different_sizes_are_taken_one_by_one() -> None:
    learner = started()
    tasks = [line(0), line(1), line(2), line(3, support=2), line(4)]
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.01)
    assert mp.meta_train_one_epoch(learner, tasks, optimizer, meta_batch=2, progress=False).tasks == 5


def test_the_hyperpriors_share_needs_the_number_of_tasks() -> None:
    def hyperprior(tasks: Any, **given: Any) -> float:
        learner = started(objective="abml")
        optimizer = torch.optim.SGD(learner.parameters(), lr=0.0)
        return mp.meta_train_one_epoch(learner, tasks, optimizer, progress=False, **given).hyper

    assert hyperprior(lines(2)) == pytest.approx(5 * hyperprior(lines(2), num_tasks=10), rel=1e-9)
    assert hyperprior(iter(lines(2)), num_tasks=2) == pytest.approx(hyperprior(lines(2)), rel=1e-12)
    with pytest.raises(ValueError, match=r"no length.*num_tasks="):
        hyperprior(iter(lines(2)))


def test_what_cannot_work_says_so() -> None:
    learner = started()
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="there are no tasks: the collection is empty, or an iterator"):
        mp.meta_train_one_epoch(learner, [], optimizer, progress=False)
    with pytest.raises(ValueError, match="meta_batch must be an integer of at least 1, got 0"):
        mp.meta_train_one_epoch(learner, lines(2), optimizer, meta_batch=0)
    with pytest.raises(ValueError, match="grad_clip_norm must be a positive number, got -1"):
        mp.meta_train_one_epoch(learner, lines(2), optimizer, grad_clip_norm=-1)
    learner.start(lines(2))
    with pytest.raises(ValueError, match=r"4 of the optimiser's 4 tensors are not the learner's.*after start"):
        mp.meta_train_one_epoch(learner, lines(2), optimizer)
    fresh = mp.MetaLearner(mp.MLP(1, [3], 1), mp.Gaussian(), standardize=False)
    with pytest.raises(mp.NotFittedError, match=r"or start\(tasks\)"):
        mp.meta_train_one_epoch(fresh, lines(2), optimizer)


def test_the_bar_is_called_meta_training(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bars_at_once(monkeypatch)
    learner = started()
    summary = mp.meta_train_one_epoch(learner, lines(3), torch.optim.SGD(learner.parameters(), lr=0.1))
    bar = capsys.readouterr().err
    assert "Meta-Training: 100%" in bar
    assert "3/3" in bar
    assert f"loss={summary.loss:.3g}, bad=0" in bar


def test_a_fitted_learner_can_be_trained_on() -> None:
    learner = started()
    learner.fit(lines(4), epochs=1, tasks_per_epoch=4, progress=False, search_step_size=False)
    before = flat(learner.theta_)
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
    mp.meta_train_one_epoch(learner, lines(4), optimizer, progress=False)
    assert not torch.equal(flat(learner.theta_), before)
    assert len(learner.history_) == 2


def test_meta_evaluate_by_hand() -> None:
    """Twenty weight samples of the adapted posterior, one after the other."""
    learner, task = started(), line(9)
    mean, std, epistemic, forecast = mp.meta_evaluate(learner, task, steps=3, samples=20, seed=2)
    posterior = learner.adapt(task.support, 3, seed=2)
    outputs = []
    for number in range(20):
        phi = posterior.weights.sample(Noise(2).fork("predict").at(sample=number).normal(posterior.weights.mu))
        outputs.append(learner.network(phi, posterior.weights.plain, task.query.x))
    expected = sum(outputs) / 20
    assert isinstance(expected, Tensor)
    variance = sum((output - expected) ** 2 for output in outputs) / 19
    assert isinstance(variance, Tensor)
    torch.testing.assert_close(mean, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(epistemic, variance.sqrt(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(std**2, epistemic**2 + forecast.aleatoric**2, rtol=1e-9, atol=1e-12)
    assert mean.shape == task.query.y.shape


def test_meta_evaluate_does_not_look_at_the_query_targets() -> None:
    learner, task = started(), line(9)
    blind = task._replace(query=mp.Examples(task.query.x, task.query.y * math.nan))
    assert torch.equal(mp.meta_evaluate(learner, blind).mean, mp.meta_evaluate(learner, task).mean)
    assert not torch.equal(mp.meta_evaluate(learner, task, steps=0).mean, mp.meta_evaluate(learner, task).mean)


def test_meta_evaluate_takes_pairs_and_says_how_plain_tuples_become_tasks() -> None:
    learner, (support, query, name) = started(), line(9)
    pairs = mp.Task(tuple(support), tuple(query), name)  # type: ignore[arg-type]
    assert torch.equal(mp.meta_evaluate(learner, pairs).mean, mp.meta_evaluate(learner, line(9)).mean)
    with pytest.raises(TypeError, match=r"a task must be a metaprior\.Task.*Try Task\(\*task\)"):
        mp.meta_evaluate(learner, (tuple(support), tuple(query)))  # type: ignore[arg-type]
