"""The Gaussian whose loss weighs observations by their scale."""

import pytest
import torch

import metaprior as mp
from metaprior.likelihoods import Masked


def parts(count: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    outputs = torch.randn(count, 4, dtype=torch.float64, generator=draw)
    return outputs, torch.randn(count, 2, dtype=torch.float64, generator=draw)


def test_without_balance_it_is_the_likelihood() -> None:
    outputs, targets = parts()
    expected = mp.HeteroscedasticGaussian().nll(outputs, targets, {})
    torch.testing.assert_close(mp.BalancedGaussian(balance=0).nll(outputs, targets, {}), expected, rtol=0, atol=0)


def test_the_weights_are_powers_of_the_scale_of_mean_one_and_have_no_gradient() -> None:
    outputs, targets = parts()
    outputs.requires_grad_()
    plain, balanced = mp.HeteroscedasticGaussian(), mp.BalancedGaussian(balance=0.3)
    _, scale = plain.mean_and_scale(outputs.detach(), 1)
    weights = scale**0.6 / (scale**0.6).mean(0)
    expected = (weights * plain.elementwise_nll(outputs, targets, {})).sum()
    found = balanced.nll(outputs, targets, {}).sum()
    torch.testing.assert_close(found, expected)
    (ours,), (theirs,) = torch.autograd.grad(found, [outputs]), torch.autograd.grad(expected, [outputs])
    torch.testing.assert_close(ours, theirs)


def test_full_balance_gives_errors_the_same_pull_on_the_mean() -> None:
    outputs, targets = parts()
    outputs.requires_grad_()
    mean, scale = mp.HeteroscedasticGaussian().mean_and_scale(outputs, 1)
    (pull,) = torch.autograd.grad(mp.BalancedGaussian(balance=1).nll(outputs, targets, {}).sum(), [outputs])
    expected = (mean - targets) / scale.square().mean(0)
    torch.testing.assert_close(pull[:, :2], expected)


def test_an_observation_that_counts_twice_is_there_twice() -> None:
    outputs, targets = parts()
    counts = torch.tensor([1.0, 2, 0, 1, 3, 1, 0], dtype=torch.float64)
    rows = torch.repeat_interleave(torch.arange(7), counts.long())
    balanced = mp.BalancedGaussian()
    expected = balanced.total_nll(outputs[rows], targets[rows], {})
    torch.testing.assert_close(balanced.total_nll(outputs, targets, {}, counts), expected)
    images, pixels = outputs[..., None, None].expand(-1, -1, 2, 3), targets[..., None, None].expand(-1, -1, 2, 3)
    torch.testing.assert_close(balanced.total_nll(images, pixels, {}, counts), 6 * expected)


def test_observations_of_which_none_counts_have_no_loss_and_no_gradient() -> None:
    """The last mini-batch of a pass can hold nothing but rows that fill others up."""
    outputs = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    loss = mp.BalancedGaussian().total_nll(outputs, torch.zeros(2, 2).double(), {}, torch.zeros(2).double())
    (gradient,) = torch.autograd.grad(loss, [outputs])
    assert float(loss.detach()) == 0
    assert gradient.count_nonzero() == 0


def test_missing_targets_do_not_count_in_the_mean_of_the_weights() -> None:
    """Each channel alone, without the rows that it misses, has the same loss; also where observations count twice."""
    outputs, targets = parts()
    outputs.requires_grad_()
    targets[1:4, 0] = targets[4, 1] = torch.nan
    counts, masked = torch.tensor([1.0, 2, 3, 1, 3, 1, 0], dtype=torch.float64), Masked(mp.BalancedGaussian())
    for own in (None, counts):
        found, expected = masked.total_nll(outputs, targets, {}, own), torch.zeros((), dtype=torch.float64)
        for channel in range(2):
            rows = targets[:, channel].isfinite()
            alone, y = outputs[rows][:, channel::2], targets[rows, channel : channel + 1]
            expected = expected + mp.BalancedGaussian().total_nll(alone, y, {}, None if own is None else own[rows])
        torch.testing.assert_close(found, expected)
    targets[:, 0] = torch.nan  # a channel of which nothing is known
    (gradient,) = torch.autograd.grad(masked.total_nll(outputs, targets, {}, counts), [outputs])
    assert bool(gradient.isfinite().all())
    assert bool((gradient[:, 0] == 0).all())


def test_a_balance_outside_of_zero_and_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"balance must lie between 0 and 1, got 1\.5"):
        mp.BalancedGaussian(balance=1.5)
