import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from benchmarks.solar import plain_network as module_under_test
from benchmarks.solar.plain_network import PlainNetwork, Tuning, of_networks, plain_network
from metaprior.likelihoods import NOISE_RHO, Likelihood
from metaprior.tasks.task import Examples, Task

LEADS = 2


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


SUPPORT = Examples(normal(3, 2, 8, 8), normal(3, LEADS, 8, 8, seed=1))


def task(index: int) -> Task:
    return Task(SUPPORT, Examples(normal(2, 2, 8, 8, seed=index), normal(2, LEADS, 8, 8, seed=index + 50)), str(index))


def unet(**changes: Any) -> mp.BayesianUNet:
    torch.manual_seed(0)
    return mp.BayesianUNet(2, LEADS, width=2, levels=2, **changes).double()


def network(likelihood: Likelihood | None = None, seed: int = 0) -> PlainNetwork:
    torch.manual_seed(seed)
    noise = {NOISE_RHO: torch.tensor(-0.5, dtype=torch.float64)} if isinstance(likelihood, mp.Gaussian) else {}
    outputs = LEADS if noise else 2 * LEADS
    return PlainNetwork(nn.Conv2d(2, outputs, 3, padding=1).double(), likelihood or mp.CRPSGaussian(), noise)


def test_without_steps_it_is_the_same_network() -> None:
    plain = network(mp.Gaussian())
    tuned = plain.fine_tuned(SUPPORT, Tuning(0, 1e-3))
    assert torch.equal(tuned.outputs(SUPPORT.x), plain.outputs(SUPPORT.x))
    assert torch.equal(tuned.noise[NOISE_RHO], plain.noise[NOISE_RHO])


def adam_by_hand(plain: PlainNetwork, tuning: Tuning) -> tuple[dict[str, Tensor], Tensor]:
    """Kingma & Ba's update, on the mean negative log-likelihood of the observations."""
    values = {**{f"w.{n}": p.detach() for n, p in plain.module.named_parameters()}, **plain.noise}
    first, second = ({name: torch.zeros_like(value) for name, value in values.items()} for _ in range(2))
    for step in range(1, tuning.steps + 1):
        leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
        outputs = nn.functional.conv2d(SUPPORT.x, leaves["w.weight"], leaves["w.bias"], padding=1)
        plain.likelihood.nll(outputs, SUPPORT.y, leaves).mean().backward()
        for name, leaf in leaves.items():
            assert leaf.grad is not None
            first[name] = 0.9 * first[name] + 0.1 * leaf.grad
            second[name] = 0.999 * second[name] + 0.001 * leaf.grad**2
            mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
            values[name] = values[name] - tuning.lr * mean / (square.sqrt() + 1e-8)
    return {name.removeprefix("w."): v for name, v in values.items() if name != NOISE_RHO}, values.get(
        NOISE_RHO, torch.zeros(())
    )


@pytest.mark.parametrize("likelihood", [mp.Gaussian(), mp.CRPSGaussian()])
def test_fine_tuning_is_adam_on_all_weights_and_the_noise(likelihood: Likelihood) -> None:
    plain, tuning = network(likelihood), Tuning(4, 0.03)
    before = copy.deepcopy(plain.module.state_dict())
    tuned = plain.fine_tuned(SUPPORT, tuning)
    weights, noise = adam_by_hand(plain, tuning)
    for name, value in tuned.module.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=1e-10, atol=1e-12)
    if plain.noise:
        torch.testing.assert_close(tuned.noise[NOISE_RHO], noise, rtol=1e-10, atol=1e-12)
        assert not tuned.noise[NOISE_RHO].requires_grad
    for name, value in plain.module.state_dict().items():
        assert torch.equal(value, before[name]), "the network itself stays as it is"


def test_an_ensemble_is_the_mixture_of_its_members() -> None:
    members, x = [network(seed=seed) for seed in range(3)], SUPPORT.x
    found = module_under_test.forecast(members, x)
    raw = torch.stack([member.module(x).detach() for member in members])  # (3, N, 2 L, H, W)
    means, scales = raw[:, :, :LEADS], nn.functional.softplus(raw[:, :, LEADS:]) + 1e-3
    torch.testing.assert_close(found.mean, means.mean(0))
    torch.testing.assert_close(found.aleatoric, scales.square().mean(0).sqrt())
    density = torch.distributions.Normal(means, scales).log_prob(SUPPORT.y).flatten(2).sum(2)
    torch.testing.assert_close(found.log_prob(SUPPORT.y), density.logsumexp(0) - torch.log(torch.tensor(3.0)))
    assert float(found.epistemic.min()) > 0


def test_one_network_alone_has_no_spread_of_weights() -> None:
    for plain in (network(), network(mp.Gaussian())):
        found = module_under_test.forecast([plain], SUPPORT.x)
        assert not found.epistemic.any()
        torch.testing.assert_close(found.mean, plain.outputs(SUPPORT.x)[:, :LEADS])
    torch.testing.assert_close(found.std, nn.functional.softplus(plain.noise[NOISE_RHO]).expand_as(found.std))


@pytest.mark.parametrize("random", ["head", "all"])
def test_the_means_of_a_learner_are_what_its_prior_forecasts_without_sigma(random: str) -> None:
    inner = mp.Descent(steps=1, lr=1e-3, learn_lr="per_tensor", kl_weight=0.0)
    learner = mp.MetaLearner(
        unet(random=random), mp.CRPSGaussian(), adaptation=inner, relative_sigma=0, standardize=False
    )
    learner.fit([task(1), task(2)], epochs=0, warm_start=2, meta_batch=1, progress=False)
    plain, x = plain_network(learner), task(5).query.x
    assert not torch.equal(plain.outputs(x), learner.network.module(x)), "the warm start moved them"
    found, expected = module_under_test.forecast([plain], x), learner.prior_predictive().predict(x, samples=2)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.std, expected.std, rtol=1e-12, atol=1e-14)
    assert plain.noise == {}


class Shifted(nn.Module):
    """A frozen layer, and a buffer, before the one that learns."""

    def __init__(self, frozen: float) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 2, 1), nn.Conv2d(2, LEADS, 1)
        nn.init.constant_(self.first.weight, frozen)
        self.first.requires_grad_(False)
        self.register_buffer("shift", torch.tensor(frozen))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x) + self.shift))


def test_frozen_parts_and_buffers_belong_to_what_was_learned(tmp_path: Any) -> None:
    learner = mp.MetaLearner(Shifted(0.5), mp.Gaussian(), standardize=False).start([task(1)])
    learner.save(tmp_path)
    loaded = mp.MetaLearner.load(tmp_path, Shifted(0.1))
    x = task(5).query.x.float()
    torch.testing.assert_close(plain_network(loaded).outputs(x), learner.network.module(x))
    assert plain_network(loaded).noise.keys() == {NOISE_RHO}


def test_only_gaussian_likelihoods_forecast_maps() -> None:
    plain = PlainNetwork(nn.Conv2d(2, 2, 1).double(), mp.Bernoulli(), {})
    with pytest.raises(TypeError, match="maps need a Gaussian likelihood"):
        module_under_test.forecast([plain], SUPPORT.x)


def test_a_tuning_says_what_it_is() -> None:
    assert (str(Tuning(5, 1e-4)), str(Tuning(0, 0.0))) == ("5 steps of Adam, lr 0.0001", "as it is")


def test_networks_are_fine_tuned_each_on_the_support_set() -> None:
    members, tuning, unseen = [network(seed=0), network(seed=1)], Tuning(2, 1e-2), task(0)
    tuned = [member.fine_tuned(unseen.support, tuning) for member in members]
    expected = module_under_test.forecast(tuned, unseen.query.x)
    assert torch.equal(of_networks(members, tuning)(unseen, 0).means, expected.means)
    untouched = module_under_test.forecast(members, unseen.query.x)
    assert torch.equal(of_networks(members, Tuning(0, 0.0))(unseen, 0).means, untouched.means)
    assert not torch.equal(untouched.means, expected.means)
