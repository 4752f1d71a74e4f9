from pathlib import Path

import pytest
import torch

import metaprior as mp
from metaprior.forecasts import GaussianForecast
from tests.methods.small_hierarchy import FAST, contents, fitted, inference, known_theta, waves


def test_a_fit_predicts_for_its_tasks_for_new_ones_and_for_none(tmp_path: Path) -> None:
    hvi = fitted(tmp_path / "store")
    x = torch.zeros(5, 1, dtype=torch.float64)
    new = mp.Examples(*waves(4)["wave 3"])
    for posterior in (hvi.prior_predictive(), hvi.posterior("wave 1"), hvi.adapt(new), hvi.adapt(new, 3)):
        forecast = posterior.predict(x, samples=4)
        assert isinstance(forecast, GaussianForecast)
        assert forecast.mean.shape == (5,)  # as the targets came
        assert posterior.split(x, thetas=2, phis=2).std.shape == (5,)
    assert hvi.task_names_ == ["wave 0", "wave 1", "wave 2"]
    assert len(hvi.history_) == 2


def test_adaptation_changes_nothing_that_was_learned(tmp_path: Path) -> None:
    hvi = fitted(tmp_path / "store")
    before, plain, psi = contents(tmp_path / "store"), hvi.prior_predictive().weights.plain, hvi.psi_
    hvi.adapt(mp.Examples(*waves(4)["wave 3"]), lr=0.5)
    assert contents(tmp_path / "store") == before
    assert all(torch.equal(value, plain[name]) for name, value in hvi.prior_predictive().weights.plain.items())
    assert all(torch.equal(one, other) for one, other in zip(hvi.psi_, psi, strict=True))


def test_a_new_task_starts_at_the_priors_centre_and_old_ones_go_on(tmp_path: Path) -> None:
    """With steps that lead nowhere, to be seen."""
    hvi = fitted(tmp_path / "store")
    centre = hvi.prior_predictive().weights.mu
    old = [hvi.posterior(name).weights.mu for name in hvi.task_names_]
    hvi.fit(waves(5), epochs=1, local_steps=1, lr=1e-300, progress=False)
    assert hvi.task_names_ == [f"wave {number}" for number in range(5)]
    for name, mu in zip(hvi.task_names_, [*old, centre, centre], strict=True):
        assert torch.equal(hvi.posterior(name).weights.mu, mu)
    assert [entry.steps for entry in hvi.posteriors.entries] == [5, 5, 5, 1, 1]
    assert len(hvi.history_) == 3
    assert hvi._fitted().sums.tasks == 5


def test_the_bound_asks_for_all_data_and_known_tasks(tmp_path: Path) -> None:
    hvi = fitted(tmp_path / "store")
    terms = hvi.elbo(waves(3), samples=3)
    kls = [float(hvi.psi_.kl_from(hvi.posterior(name).weights)) for name in hvi.task_names_]
    assert terms.kl == pytest.approx(sum(kls), rel=1e-12)
    assert terms.hyper_kl == pytest.approx(hvi.psi_.kl_to(mp.GaussianHyperprior()), rel=1e-12)
    assert hvi.elbo(waves(3), samples=3) == terms
    with pytest.raises(ValueError, match="some of the given ones are new"):
        hvi.elbo(waves(4))
    with pytest.raises(ValueError, match="not among the given ones, first 'wave 2'"):
        hvi.elbo(waves(2))
    with pytest.raises(ValueError, match="have other data"):
        hvi.elbo({name: (x, y + 5) for name, (x, y) in waves(3).items()})


def test_evaluation_scores_new_tasks(tmp_path: Path) -> None:
    hvi = fitted(tmp_path / "store")
    new = [mp.Task(mp.Examples(x[:4], y[:4]), mp.Examples(x[4:], y[4:]), name) for name, (x, y) in waves(5).items()][3:]
    result = hvi.evaluate(new, shots=(0, 2, None), samples=4, progress=False)
    assert [(row["shots"], row["steps"], row["tasks"]) for row in result.rows] == [(0, 0, 2), (2, 4, 2), (None, 4, 2)]


def test_a_task_that_cannot_be_adapted_to_is_counted_and_the_others_are_scored(tmp_path: Path) -> None:
    hvi = fitted(tmp_path / "store")
    (x, y), (_, huge) = waves(5)["wave 3"], waves(5)["wave 3"]
    tasks = [mp.Task(mp.Examples(x, targets), mp.Examples(x, y), "new") for targets in (y, huge * 1e200)]
    result = hvi.evaluate(tasks, shots=(None,), samples=4, progress=False)
    assert (result.row()["tasks"], result.row()["failed"]) == (1, 1)
    assert "the nll of 'the new task' became inf" in result.failures[0].message


def test_adaptation_is_as_the_fit_was_unless_told(tmp_path: Path) -> None:
    hvi = inference(tmp_path / "store").fit(waves(3), lr=1e-3, batch_size=2, samples=2, **FAST)
    new = mp.Examples(*waves(4)["wave 3"])
    same = hvi.adapt(new, 4, lr=1e-3, batch_size=2, samples=2)
    assert torch.equal(hvi.adapt(new).weights.mu, same.weights.mu)
    for other in ({"lr": 1e-2}, {"steps": 5}, {"seed": 1}):
        assert not torch.equal(hvi.adapt(new, **other).weights.mu, same.weights.mu)
    with pytest.raises(ValueError, match="steps must be an integer of at least 1, got 0"):
        hvi.adapt(new, 0)
    tasks = [mp.Task(new, new, "new")]
    slow, fast = (hvi.evaluate(tasks, shots=(None,), lr=lr, progress=False).row()["mse"] for lr in (1e-9, 0.1))
    assert slow != fast


def test_a_known_theta_starts_new_posteriors_where_the_first_did_whatever_the_module(tmp_path: Path) -> None:
    first = fitted(tmp_path / "store", hyperprior=known_theta())
    torch.manual_seed(5)
    again = inference(tmp_path / "store", hyperprior=known_theta(), module=mp.MLP(1, [4], 1).double())
    new = mp.Examples(*waves(4)["wave 3"])
    assert torch.equal(first.adapt(new).weights.mu, again.adapt(new).weights.mu)


@pytest.mark.parametrize("size", [129, 300])
def test_history_is_near_the_bound_also_where_batches_are_of_unequal_size(tmp_path: Path, size: int) -> None:
    tasks = waves(2, size)
    hvi = inference(tmp_path / "store").fit(tasks, epochs=40, local_steps=1, lr=1e-9, kl_warmup=0.0, progress=False)
    met = [record.nll * record.observations for record in hvi.history_]
    truth = hvi.elbo(tasks, samples=64).nll
    assert sum(met) / len(met) == pytest.approx(truth, rel=0.05)
    assert min(met) > 0.5 * truth
    assert max(met) < 2 * truth
