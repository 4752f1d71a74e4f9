import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import metaprior as mp
from metaprior.weights import Parameters, WeightDistribution, inverse_softplus


def random_weights(dimension: int, seed: int) -> WeightDistribution:
    generator = torch.Generator().manual_seed(seed)
    mu, rho = torch.randn(2, dimension, dtype=torch.float64, generator=generator)
    return WeightDistribution(mu, rho)


@pytest.mark.parametrize("value", [1e-8, 1e-3, 1.0, 30.0])
def test_inverse_softplus_inverts(value: float) -> None:
    x = torch.tensor(value, dtype=torch.float64)
    torch.testing.assert_close(nn.functional.softplus(inverse_softplus(x)), x, rtol=1e-6, atol=0)


def test_kl_is_the_sum_over_weights_of_torch_distributions() -> None:
    q, p = random_weights(50, 0), random_weights(50, 1)
    expected = kl_divergence(Normal(q.mu, q.sigma), Normal(p.mu, p.sigma)).sum()
    torch.testing.assert_close(mp.kl_divergence(q, p), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(p.kl_from(q), expected, rtol=1e-12, atol=0)


def test_kl_doubles_when_the_weights_are_doubled() -> None:
    q, p = random_weights(20, 0), random_weights(20, 1)
    twice_q, twice_p = (WeightDistribution(w.mu.repeat(2), w.rho.repeat(2)) for w in (q, p))
    torch.testing.assert_close(mp.kl_divergence(twice_q, twice_p), 2 * mp.kl_divergence(q, p))


def test_sample_is_mean_plus_sigma_times_noise() -> None:
    q = random_weights(5, 0)
    noise = torch.ones(3, 5, dtype=torch.float64)
    torch.testing.assert_close(q.sample(noise), (q.mu + nn.functional.softplus(q.rho)).expand(3, 5))


def test_signal_to_noise_of_a_pruned_weight_is_zero() -> None:
    q = WeightDistribution(torch.tensor([0.0, 2.0]), torch.tensor([-math.inf, inverse_softplus(torch.ones(())).item()]))
    torch.testing.assert_close(q.signal_to_noise(), torch.tensor([0.0, 2.0]))


def four_fields() -> WeightDistribution:
    plain = {"a": torch.tensor([3.0]), "b": torch.tensor(4.0)}
    return WeightDistribution(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), plain, torch.tensor(-1.0))


def test_named_tensors_and_back() -> None:
    theta = four_fields()
    assert list(theta.named()) == ["mu", "rho", "plain.a", "plain.b", "log_lr"]
    assert list(theta.replace(log_lr=None).named()) == ["mu", "rho", "plain.a", "plain.b"]
    back = WeightDistribution.from_named(theta.named())
    assert all(one is other for one, other in zip(back.tensors(), theta.tensors(), strict=True))


def test_map_and_zip_map_reach_every_tensor_and_keep_the_type() -> None:
    theta = four_fields()
    doubled, summed = theta.map(lambda value: 2 * value), theta.zip_map(torch.add, theta)
    assert type(doubled) is type(summed) is WeightDistribution
    for name, value in theta.named().items():
        assert torch.equal(doubled.named()[name], 2 * value)
        assert torch.equal(summed.named()[name], 2 * value)
    assert type(theta.zeros()) is Parameters
    assert not any(value.any() for value in theta.zeros().tensors())
    with pytest.raises(KeyError, match="log_lr"):
        theta.zip_map(torch.add, theta.replace(log_lr=None))


def test_a_detached_copy_shares_neither_memory_nor_graph() -> None:
    theta = four_fields().map(torch.Tensor.requires_grad_)
    for own, copy in zip(theta.tensors(), theta.map(lambda value: 1 * value).detached().tensors(), strict=True):
        assert not copy.requires_grad
        assert copy.data_ptr() != own.data_ptr()
