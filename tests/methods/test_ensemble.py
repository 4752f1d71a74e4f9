"""Ensembles: several networks trained as one stack."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import metaprior as mp
from metaprior.compression import CompressionLoss
from metaprior.ensemble import EnsemblePosterior, fresh_start
from metaprior.methods.free_energy_fit import OfEach
from metaprior.minibatches import ShuffledData
from metaprior.stack_descent import DescentPlan, FreeEnergy, SharedParameters, Stack, StackDescent, new_record
from metaprior.tasks.task import Examples
from tests.methods.made_up import assert_same_fit, method, plane, small_net

FAST: dict[str, Any] = {"epochs": 4, "batch_size": 10, "progress": False}
PARTLY = {"stochastic": r"2\..*"}


def members(bnn: mp.BayesByBackprop) -> tuple[mp.Posterior, ...]:
    assert isinstance(bnn.posterior_, EnsemblePosterior)
    return bnn.posterior_.members


def test_every_member_is_the_network_that_would_be_trained_alone() -> None:
    """Start, noise and order of the data are those of its number; plain parameters and noise scale are its own."""
    x, y = plane()
    ensemble = method(members=3, **PARTLY).fit(x, y, **FAST)
    first = method(**PARTLY).fit(x, y, **FAST)
    own = members(ensemble)
    for name, value in first.posterior_.weights.named().items():  # type: ignore[union-attr]
        torch.testing.assert_close(own[0].weights.named()[name], value, rtol=1e-10, atol=1e-12)

    network, noise = mp.BayesianNetwork(small_net(), PARTLY["stochastic"]), mp.Noise(0)
    data = Examples(x, ensemble.posterior_.target_scale.to_internal(y.unsqueeze(1)))
    start = fresh_start(network, 0.1, noise.fork("member 2").seed)
    start.plain.update(mp.Gaussian().initial_parameters(data.y))
    plan = DescentPlan(12, 10, samples=2, kl_warmup=0.5, linear_warmup=True)
    stack = Stack(["alone"], [2], new_record(start)[None], 0, [data])
    batches = ShuffledData([data], [2], 10, "uniform", noise)
    energy, shared = FreeEnergy(network, mp.Gaussian()), SharedParameters(start.plain)
    descent = StackDescent(energy, stack, OfEach(mp.NormalPrior()), shared, plan, noise, batches)
    for step in range(12):
        descent.step(step, shared_lr=plan.lr_at(step))
    torch.testing.assert_close(own[2].weights.mu, descent.mu[0].detach(), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(own[2].weights.rho, descent.rho[0].detach(), rtol=1e-8, atol=1e-10)
    for name, value in shared.detached().items():
        torch.testing.assert_close(own[2].weights.plain[name], value, rtol=1e-8, atol=1e-10)


def test_members_differ_in_everything_they_learn() -> None:
    x, y = plane()
    own = members(method(members=3, **PARTLY).fit(x, y, **FAST))
    for name in own[0].weights.named():
        values = [one.weights.named()[name] for one in own]
        assert not torch.equal(values[0], values[1]), name
        assert not torch.equal(values[1], values[2]), name
    assert "plain.likelihood.rho" in own[0].weights.named()


def test_the_forecast_is_the_mixture_of_the_members() -> None:
    """Its variance is the mean of the members' variances plus the variance of their means."""
    x, y = plane()
    bnn = method(members=4).fit(x, y, **FAST)
    found = bnn.predict(x, samples=200)
    seeds = [0, *(mp.Noise(0).fork(f"member {k}").seed for k in range(1, 4))]
    parts = [one.predict(x, samples=50, seed=seed) for one, seed in zip(members(bnn), seeds, strict=True)]
    means, variances = torch.stack([one.mean for one in parts]), torch.stack([one.std**2 for one in parts])
    torch.testing.assert_close(found.mean, means.mean(0))
    torch.testing.assert_close(found.std**2, variances.mean(0) + means.var(0, correction=0), rtol=0.02, atol=0)
    torch.testing.assert_close(found.std**2, found.epistemic**2 + found.aleatoric**2)
    densities = torch.stack([one.log_prob(y) for one in parts]).exp()
    torch.testing.assert_close(found.log_prob(y).exp(), densities.mean(0), rtol=1e-6, atol=0)
    assert torch.equal(found.mean, bnn.predict(x, samples=200).mean)
    assert bnn.evaluate(x, y).row()["nll"] == pytest.approx(-float(bnn.predict(x).log_prob(y).mean()))


@pytest.mark.parametrize("likelihood", [mp.Gaussian(), mp.Gaussian(noise=0.5), mp.Categorical()])
def test_an_ensemble_is_saved_and_loaded(likelihood: mp.Likelihood, tmp_path: Path) -> None:
    x, y = plane()
    torch.manual_seed(0)
    labels = isinstance(likelihood, mp.Categorical)
    net = mp.MLP(3, [4], 2 if labels else 1).double()
    targets = (y > 4).long() if labels else y
    bnn = mp.BayesByBackprop(net, likelihood, members=3).fit(x, targets, **FAST)
    bnn.save(tmp_path / "fit")
    loaded = mp.load(tmp_path / "fit")
    assert isinstance(loaded, mp.BayesByBackprop)
    assert (loaded.members, loaded.history_) == (3, bnn.history_)
    assert loaded.evaluate(x, targets).rows == bnn.evaluate(x, targets).rows
    for one, other in zip(members(bnn), members(loaded), strict=True):
        assert all(torch.equal(value, other.weights.named()[name]) for name, value in one.weights.named().items())
    loaded.prune(0.5).save(tmp_path / "pruned")
    again = mp.load(tmp_path / "pruned", net)
    assert isinstance(again, mp.BayesByBackprop)
    assert all(int((one.weights.sigma == 0).sum()) == round(len(one.weights.mu) / 2) for one in members(again))
    assert bnn.fit(x, targets, **FAST).history_ == loaded.history_, "fitted again, it is the same"


def test_an_ensemble_stops_early_and_keeps_its_best_epoch() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, dtype=torch.float64, generator=generator), torch.randn(40, generator=generator)
    seen = list[mp.BayesByBackprop]()
    fit: dict[str, Any] = {"epochs": 200, "lr": 0.1, "kl_warmup": 0.0, "patience": 4, "progress": False}
    bnn = method(members=2, temperature=0.01)
    bnn.fit(x, y, validation=0.5, **fit, callbacks=[lambda fit, record: seen.append(fit.fitted())])
    scores = [record.validation for record in bnn.history_]
    best = scores.index(min(scores))  # type: ignore[type-var]
    assert len(scores) == best + 5 < 200
    # What callbacks see in an epoch was kept in those before it, so the best one is seen in the one after it.
    for kept, own in zip(members(seen[best + 1]), members(bnn), strict=True):
        assert torch.equal(kept.weights.mu, own.weights.mu)
    assert torch.equal(members(seen[-1])[0].weights.mu, members(bnn)[0].weights.mu)


def test_an_ensemble_learns_from_a_loader_and_from_weights() -> None:
    x, y = plane()
    whole: dict[str, Any] = {"epochs": 4, "batch_size": 30, "progress": False}
    memory, streamed = method(members=2).fit(x, y, **whole), method(members=2).fit(TensorDataset(x, y), **whole)
    for one, other in zip(members(memory), members(streamed), strict=True):
        torch.testing.assert_close(one.weights.mu, other.weights.mu, rtol=1e-10, atol=1e-12)
    loader = DataLoader(TensorDataset(x, y), 8)
    assert len(members(method(members=2).fit(loader, epochs=4, progress=False, validation=loader))) == 2
    counts = torch.tensor([1, 2, 0] * 10)
    expected = method(members=2).fit(x.repeat_interleave(counts, 0), y.repeat_interleave(counts), **whole)
    found = method(members=2).fit(x, y, sample_weight=counts, **whole)
    for one, other in zip(members(expected), members(found), strict=True):
        torch.testing.assert_close(one.weights.mu, other.weights.mu, rtol=1e-10, atol=1e-12)


class Normed(nn.Module):
    """A frozen layer, a buffer and a layer that torch cannot vectorise."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(2.0))
        self.frozen, self.body = nn.Linear(3, 4), nn.LSTM(4, 4, batch_first=True)
        self.head = nn.Linear(4, 1)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self.frozen(x).unsqueeze(1))[0][:, -1])
        return self.scale * out


def test_frozen_parameters_and_buffers_are_the_same_for_all_members(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Normed()
    x, y = (part.float() for part in plane())
    bnn = mp.BayesByBackprop(module, mp.Gaussian(), members=2, stochastic="head.*").fit(x, y, **FAST)
    for one in members(bnn):
        assert torch.equal(one.network.constants["frozen.weight"], module.frozen.weight)
        assert torch.equal(one.network.constants["scale"], torch.tensor(2.0))
    plain = [one.weights.plain["body.weight_ih_l0"] for one in members(bnn)]
    assert not torch.allclose(plain[0], plain[1], atol=0.1)
    bnn.save(tmp_path / "fit")
    loaded = mp.load(tmp_path / "fit", module)
    assert isinstance(loaded, mp.BayesByBackprop)
    assert torch.equal(loaded.predict(x).mean, bnn.predict(x).mean)


def test_new_starts_are_drawn_as_layers_draw_them() -> None:
    network = mp.BayesianNetwork(small_net())
    state = torch.get_rng_state()
    one, same, other = (fresh_start(network, 0.1, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state), "torch's global generator is left as it is"
    assert torch.equal(one.mu, same.mu)
    assert not torch.equal(one.mu, other.mu)
    assert float(one.mu.abs().max()) <= 3**-0.5, "the bound of a layer of three inputs"
    assert torch.equal(network.initial().mu, mp.BayesianNetwork(small_net()).initial().mu)


def test_a_module_that_cannot_be_drawn_anew_is_refused() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 1, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight

    x, y = plane()
    with pytest.raises(
        ValueError, match=r"members must be 1 for a module .* got Own with 'weight'. Try a method reset"
    ):
        method(module=Own(), members=2).fit(x, y, **FAST)
    with pytest.raises(ValueError, match="members must be an integer of at least 1, got 0"):
        method(members=0).fit(x, y, **FAST)
    assert_same_fit(
        method(module=Own(), members=1).fit(x, y, **FAST), method(module=Own()).fit(x, y, **FAST), rtol=0, atol=0
    )


def widened_ensemble() -> tuple[EnsemblePosterior, Tensor, Tensor]:
    """Return an ensemble whose members have spreads of their own, and the data of its fit."""
    x, y = plane()
    posterior = method(members=3).fit(x, y, **FAST).posterior_
    assert isinstance(posterior, EnsemblePosterior)
    own = [member.widened(factor) for member, factor in zip(posterior.members, (1.0, 1.5, 3.0), strict=True)]
    return replace(posterior, members=tuple(own)), x, y


def test_a_compressed_ensemble_predicts_with_samples_of_all_members_and_their_spreads() -> None:
    posterior, x, y = widened_ensemble()
    small = posterior.compress(12, x, y, candidates=150, seed=4)
    assert [len(member.phis) for member in small.members] == [4, 4, 4]  # type: ignore[attr-defined]
    full = posterior.predict(x, samples=150, seed=4)
    assert small.loss == CompressionLoss.between(full, small.predict(x), y)
    assert small.loss.mean < 0.1
    assert small.loss.std < 0.1
    torch.testing.assert_close(small.predict(x, samples=90, seed=8).mean, small.predict(x).mean)
    narrow = replace(posterior, members=tuple(replace(one, spread=1.0) for one in posterior.members))
    assert float((narrow.predict(x).std / small.predict(x).std).max()) < 0.8
    with pytest.raises(ValueError, match=r"k \(of an ensemble\) must be an integer of at least 6, got 5"):
        posterior.compress(5, x)
    with pytest.raises(ValueError, match=r"candidates must be at least k = 12, got 10. Try 120"):
        posterior.compress(12, x, candidates=10)


def test_the_program_of_an_ensemble_gives_the_numbers_of_predict() -> None:
    posterior, x, _ = widened_ensemble()
    for one in (posterior, posterior.compress(6, x, candidates=30)):
        mean, std = one.export(None, x, samples=7, seed=3).module()(x[:5])
        expected = one.predict(x[:5], samples=7, seed=3)
        torch.testing.assert_close(mean, expected.mean)
        torch.testing.assert_close(std, expected.std)
