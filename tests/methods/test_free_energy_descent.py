import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.methods.fit_data import hold_out
from metaprior.methods.free_energy_fit import held_out_free_energy
from metaprior.minibatches import HeldOutData, WeightedExamples
from metaprior.stack_descent import FreeEnergy
from metaprior.tasks.task import Examples
from tests.methods.test_bayes_by_backprop import FAST, linear, linear_problem, trained


def in_pieces(x: Tensor, y: Tensor, batch_size: int) -> HeldOutData:
    return HeldOutData(WeightedExamples(Examples(x, y)), batch_size)


def test_samples_in_groups_give_the_gradient_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = linear_problem()
    whole = mp.BayesByBackprop(linear(), mp.Gaussian()).fit(x, y, samples=5, **FAST)
    monkeypatch.setattr("metaprior.posterior.NUMBERS_AT_ONCE", 6)  # two samples of three weights at a time
    grouped = mp.BayesByBackprop(linear(), mp.Gaussian()).fit(x, y, samples=5, **FAST)
    torch.testing.assert_close(whole.posterior_.weights.mu, grouped.posterior_.weights.mu, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(whole.predict(x).mean, grouped.predict(x).mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weighting", ["uniform", "geometric"])
def test_history_is_the_mean_free_energy_of_the_epoch(weighting: str) -> None:
    """With a vanishing learning rate the weights stay, so an epoch's terms are those of the start."""
    x, y = linear_problem()
    bnn = mp.BayesByBackprop(linear(), mp.Gaussian(noise=0.5), standardize=False, temperature=0.3, relative_sigma=1e-6)
    bnn.fit(x, y, epochs=1, batch_size=7, lr=1e-12, weighting=weighting, progress=False)
    q = mp.BayesianNetwork(linear()).initial(1e-6)
    residual = (y - x @ q.mu) / 0.5
    nll = (0.5 * residual**2 + math.log(0.5) + 0.5 * math.log(2 * math.pi)).mean() / 0.3
    assert bnn.history_[0].nll == pytest.approx(float(nll), rel=1e-4)
    assert bnn.history_[0].kl == pytest.approx(float(mp.NormalPrior().kl_from(q)) / 40, rel=1e-4)


def test_a_fraction_is_held_out_and_the_rest_is_trained_on() -> None:
    data = WeightedExamples(Examples(torch.arange(20.0), torch.arange(20.0)))
    (train, _), (held_out, _) = hold_out(data, 0.25, mp.Noise(0))
    assert (train.size, held_out.size) == (15, 5)
    assert sorted([*train.x.tolist(), *held_out.x.tolist()]) == list(range(20))
    assert sorted(held_out.x.tolist()) not in ([0, 1, 2, 3, 4], [15, 16, 17, 18, 19]), "drawn at random, not cut off"


def test_held_out_data_are_scored_without_dropout() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 20, dtype=torch.float64), nn.Dropout(0.5), nn.Linear(20, 1, dtype=torch.float64))
    network = mp.BayesianNetwork(net)
    x, y = linear_problem()
    energy, data = FreeEnergy(network, mp.Gaussian(noise=0.5)), in_pieces(x, y.unsqueeze(-1), 16)
    prior, q = mp.NormalPrior(), network.initial()
    assert len({held_out_free_energy(energy, prior, q, data, 40, mp.Noise(0)) for _ in range(2)}) == 1


def test_early_stopping_keeps_the_best_held_out_weights_after_the_warm_up() -> None:
    """Pure noise: whatever is learned is wrong on held-out data, so training stops long before its last epoch."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 5, generator=generator), torch.randn(60, generator=generator)
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(mp.MLP(5, [50], 1), mp.Gaussian(), temperature=0.01)
    bnn.fit(x[:30], y[:30], epochs=400, validation=(x[30:], y[30:]), patience=5, kl_warmup=0.0, progress=False)
    scores = [epoch.validation for epoch in bnn.history_]
    assert len(scores) < 400
    assert len(scores) - 1 - int(np.argmin(scores)) == 5
    energy = FreeEnergy(bnn.posterior_.network, bnn.posterior_.likelihood, bnn.temperature)
    scale = bnn.posterior_.target_scale
    held_out = in_pieces(x[30:], scale.to_internal(y[30:].unsqueeze(-1)), 7)
    kept = held_out_free_energy(energy, bnn.prior, bnn.posterior_.weights, held_out, 30, mp.Noise(0))
    assert kept == pytest.approx(min(scores), rel=1e-6)
    bnn.fit(x[:30], y[:30], epochs=100, validation=[x[30:], y[30:]], patience=5, kl_warmup=0.5, progress=False)  # type: ignore[arg-type]
    assert len(bnn.history_) >= 55, "epochs of the warm-up are not compared"


def test_held_out_free_energy_is_the_closed_form_of_a_linear_model() -> None:
    r"""$\frac{1}{T N_v} E_q[-\log p] + KL / N$ with $E_q (y - w x)^2 = (y - \mu x)^2 + \sigma^2 x^2$."""
    x, y = linear_problem()
    network = mp.BayesianNetwork(linear())
    q = network.initial(relative_sigma=0.01)
    energy, data = FreeEnergy(network, mp.Gaussian(noise=0.5), temperature=0.3), in_pieces(x, y.unsqueeze(-1), 16)
    residual = (y - x @ q.mu) ** 2 + (x**2) @ q.sigma**2
    nll = 0.5 * residual / 0.25 + math.log(0.5) + 0.5 * math.log(2 * math.pi)
    expected = nll.mean() / 0.3 + mp.NormalPrior().kl_from(q) / 1000
    found = held_out_free_energy(energy, mp.NormalPrior(), q, data, 1000, mp.Noise(0))
    assert found == pytest.approx(float(expected), rel=0.01)  # 16 weight samples
    dominated_by_kl = held_out_free_energy(energy, mp.NormalPrior(), q, data, 1, mp.Noise(0))
    assert dominated_by_kl - found == pytest.approx(0.999 * float(mp.NormalPrior().kl_from(q)), rel=1e-6)


def test_a_gradient_that_is_not_a_number_in_the_last_step_is_noticed() -> None:
    class Kinked(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            z = super().forward(x)
            return z + (z - z.detach()).square().sqrt()

    x, y = torch.randn(10, 2), torch.randn(10)
    with pytest.raises(mp.TrainingDiverged, match="became nan"):
        mp.BayesByBackprop(Kinked(2, 1), mp.Gaussian()).fit(x, y, epochs=1, progress=False)


def test_a_held_out_outlier_that_overflows_is_noticed() -> None:
    bnn, x = trained()
    with pytest.raises(mp.TrainingDiverged, match="the validation became"):
        bnn.fit(x, x[:, 0], validation=(torch.full((1, 4), 1e38), torch.zeros(1)), **FAST)
