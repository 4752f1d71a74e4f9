"""Summaries of support sets: any order, any number, many tasks in one pass, missing targets, labels and images."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from metaprior.adaptation.context.encoder import SetEncoder
from metaprior.likelihoods import Categorical, Gaussian, GaussianMixture, HeteroscedasticGaussian, Likelihood
from metaprior.models.small import MLP, Conv4
from metaprior.models.unet import UNet
from metaprior.tasks.task import Examples

SIZE = 6
Case = tuple[nn.Module, Likelihood, Examples]


def case(name: str) -> Case:
    """Return a network, a likelihood, and ten examples."""
    cases: dict[str, Callable[[], Case]]
    torch.manual_seed(0)
    images, labels = torch.randn(10, 1, 16, 16), torch.arange(10) % 3
    cases = {
        "vectors": lambda: (MLP(2, [4], 1), Gaussian(), Examples(torch.randn(10, 2), torch.randn(10, 1))),
        "scales": lambda: (
            MLP(6, [4], 4),
            HeteroscedasticGaussian(),
            Examples(torch.randn(10, 3, 2), torch.randn(10, 2)),
        ),
        "mixture": lambda: (MLP(2, [4], 6), GaussianMixture(2), Examples(torch.randn(10, 2), torch.randn(10, 1))),
        "labels": lambda: (MLP(2, [4], 3), Categorical(), Examples(torch.randn(10, 2), labels)),
        "labelled images": lambda: (Conv4(1, 16, 3, 8), Categorical(), Examples(images, labels)),
        "frames": lambda: (UNet(1, 2, 4, 2), Gaussian(), Examples(images, torch.randn(10, 2, 16, 16))),
        "half resolution": lambda: (UNet(1, 2, 4, 2), Gaussian(), Examples(images, torch.randn(10, 2, 8, 8))),
    }
    return cases[name]()


@pytest.fixture(params=["vectors", "scales", "mixture", "labels", "labelled images", "frames", "half resolution"])
def double(request: pytest.FixtureRequest) -> tuple[SetEncoder, Examples]:
    module, likelihood, examples = case(request.param)
    encoder = SetEncoder(module.double(), likelihood, SIZE, None)
    y = examples.y.double() if examples.y.is_floating_point() else examples.y
    return encoder, Examples(examples.x.double(), y)


def test_any_order_many_tasks_and_no_examples(double: tuple[SetEncoder, Examples]) -> None:
    encoder, examples = double
    parameters = encoder.initial()
    shuffled = examples.rows(torch.randperm(10))
    sets = [examples, examples.first(0), shuffled, examples.first(3), examples.first(0)]
    together = encoder.contexts(parameters, sets)
    alone = torch.cat([encoder.contexts(parameters, [one]) for one in sets])
    assert together.shape == (5, SIZE)
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(together[0], together[2])
    torch.testing.assert_close(together[1], together[4])
    assert bool(together.isfinite().all())
    assert not torch.allclose(together[0], together[3])


def test_knows_the_number_of_examples(double: tuple[SetEncoder, Examples]) -> None:
    encoder, examples = double
    twice = examples.rows(torch.arange(10).repeat(2))
    one, two = encoder.contexts(encoder.initial(), [examples, twice])
    assert not torch.allclose(one, two)


def test_gradients_also_of_the_empty_set_alone() -> None:
    module, likelihood, examples = case("vectors")
    encoder = SetEncoder(module, likelihood, SIZE, None)
    for count, moved in ((0, "summary"), (4, "embed")):
        leaves = {name: value.requires_grad_() for name, value in encoder.initial().items()}
        grads = torch.autograd.grad(
            encoder.contexts(leaves, [examples.first(count)]).square().sum(), list(leaves.values()), allow_unused=True
        )
        assert all(grad is None or bool(grad.isfinite().all()) for grad in grads)
        found = {name for name, grad in zip(leaves, grads, strict=True) if grad is not None and bool(grad.any())}
        assert any(name.startswith(moved) for name in found)


def test_missing_targets_are_marked_and_their_values_ignored() -> None:
    module, likelihood, examples = case("frames")
    encoder = SetEncoder(module, likelihood, SIZE, None)
    y = examples.y.clone()
    y[:, 1, :4] = torch.nan
    zeros = Examples(examples.x, y.nan_to_num(0.0))
    missing, zero = encoder.contexts(encoder.initial(), [Examples(examples.x, y), zeros])
    assert bool(missing.isfinite().all())
    assert not torch.allclose(missing, zero)


def test_the_first_values_are_the_same_in_every_process_and_leave_the_generator_alone() -> None:
    module, likelihood, _ = case("vectors")
    before = torch.get_rng_state()
    one, two = (SetEncoder(module, likelihood, SIZE, None).initial() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(before, torch.get_rng_state())


class Own(nn.Module):
    """An encoder with a frozen layer, which does not look at x."""

    def __init__(self, size: int = SIZE) -> None:
        super().__init__()
        self.layer, self.fixed = nn.Linear(1, size), nn.Linear(size, size).requires_grad_(False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.fixed(self.layer(y))  # type: ignore[no-any-return]


def test_an_encoder_of_ones_own_is_pooled_and_keeps_what_is_frozen() -> None:
    module, likelihood, examples = case("vectors")
    own = Own()
    encoder = SetEncoder(module, likelihood, SIZE, own)
    parameters = encoder.initial()
    assert [name for name in parameters if name.startswith("embed")] == ["embed.layer.weight", "embed.layer.bias"]
    rows = own(examples.x, examples.y)
    expected = encoder.summary(torch.cat([rows.mean(0), rows.amax(0), torch.tensor([11.0]).log()]))
    torch.testing.assert_close(encoder.contexts(parameters, [examples])[0], expected)


def test_what_an_encoder_cannot_take_raises() -> None:
    module, likelihood, examples = case("vectors")
    with pytest.raises(ValueError, match=r"must return shape \(10, 6\) .* got \(10, 5\)"):
        SetEncoder(module, likelihood, SIZE, Own(5)).contexts(
            SetEncoder(module, likelihood, 6, Own(5)).initial(), [examples]
        )
    with pytest.raises(ValueError, match="got a LSTM"):
        SetEncoder(nn.LSTM(1, 1), likelihood, SIZE, None)
    encoder = SetEncoder(module, likelihood, SIZE, None)
    for x in (torch.ones(10, 3), torch.ones(10, 2, dtype=torch.long)):
        with pytest.raises(ValueError, match="default encoder takes real-valued x of 2 numbers"):
            encoder.contexts(encoder.initial(), [Examples(x, examples.y)])
    with pytest.raises(ValueError, match=r"takes targets for 1 outputs, .* got shape \(10, 2\)\. Try to assign"):
        encoder.contexts(encoder.initial(), [Examples(examples.x, examples.y.repeat(1, 2))])
