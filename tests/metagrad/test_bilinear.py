"""Layers whose second derivatives leave out what nobody reads: torch's own are the reference."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from metaprior.metagrad import bilinear, keeping, twice_reverse
from metaprior.metagrad.bilinear import LeanLayers, WeightUse
from tests.metagrad.problems import assert_same, make_case, solved
from tests.metagrad.test_agreement import CASES, case_and_reference


@pytest.fixture(autouse=True)
def linear_layers_of_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bilinear, "SMALLEST", 0)


LAYERS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "linear": (F.linear, (4, 3), (5, 3)),
    "linear of sequences": (F.linear, (4, 6, 3), (5, 3)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, 2, 1), (2, 3, 8), (4, 3, 3)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (2, 3, 6, 5), (4, 3, 3, 3)),
    "conv2d, strides and dilation": (
        lambda x, w, b: F.conv2d(x, w, b, (2, 1), (0, 2), (1, 2)),
        (2, 3, 7, 7),
        (4, 3, 3, 3),
    ),
    "conv2d, groups": (lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=2), (2, 4, 5, 5), (6, 2, 3, 3)),
    "conv2d, same": (lambda x, w, b: F.conv2d(x, w, b, padding="same"), (2, 3, 5, 5), (4, 3, 3, 3)),
    "conv2d, no batch": (lambda x, w, b: F.conv2d(x, w, b), (3, 5, 5), (4, 3, 3, 3)),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b, padding=1), (2, 2, 4, 4, 4), (3, 2, 3, 3, 3)),
    "transposed 1d": (lambda x, w, b: F.conv_transpose1d(x, w, b, 2), (2, 3, 5), (3, 4, 2)),
    "transposed 2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
        (2, 3, 4, 4),
        (3, 4, 3, 3),
    ),
    "transposed 3d": (lambda x, w, b: F.conv_transpose3d(x, w, b, 2), (1, 2, 3, 3, 3), (2, 2, 2, 2, 2)),
}


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def second_derivatives(name: str, uses: bool, *, bias: bool, read: bool) -> tuple[list[Tensor], Tensor]:
    """The Hessian of a loss of a layer times a direction, by x, w and b; and the gradient by w."""
    function, *shapes = LAYERS[name]
    count = shapes[1][1] if "transposed" in name else shapes[1][0]
    leaves = [normal(*shape, seed=i).requires_grad_() for i, shape in enumerate((*shapes, (count,)))]
    x, w, b = leaves
    use = WeightUse(differentiated=True, read=read, into=torch.zeros_like(w))
    with LeanLayers({w: use} if uses else {}):
        output = function(x.tanh(), w, b if bias else None)
    gradient = torch.autograd.grad(output.tanh().pow(2).sum(), [x, w], create_graph=True)
    along = [normal(*shape, seed=5 + i) for i, shape in enumerate(shapes)]
    inner = sum((g * u).sum() for g, u in zip(gradient, along, strict=True))
    products = list(torch.autograd.grad(inner, leaves, materialize_grads=True, allow_unused=True))
    assert use.into is not None
    products[1] = products[1] + use.into
    return products, gradient[1].detach()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_second_derivatives_are_those_of_torch(name: str, bias: bool) -> None:
    expected, gradient = second_derivatives(name, False, bias=bias, read=True)
    for read in (True, False):
        found, own = second_derivatives(name, True, bias=bias, read=read)
        for theirs, ours in zip(expected, found, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
        if read or name in ("conv2d, same", "conv2d, no batch"):
            torch.testing.assert_close(own, gradient, rtol=1e-12, atol=1e-12)
        else:
            assert not own.any(), "a placeholder"
            assert own.untyped_storage().nbytes() == 8, "without memory"


@pytest.mark.parametrize("name", CASES)
def test_products_agree_with_full_unrolling(name: str) -> None:
    case, expected = case_and_reference(name)
    for engine in (twice_reverse, keeping(2)):
        assert_same(solved(engine, case), expected, case.problem)


class Shared(nn.Module):
    """One weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x).tanh())


class Normalised(nn.Module):
    """A weight that is a function of parameters: its gradient is read by theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = weight_norm(nn.Linear(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).tanh()


@pytest.mark.parametrize("module", [Shared, Normalised])
def test_weights_that_are_used_twice_or_computed(module: type[nn.Module]) -> None:
    from metaprior.metagrad import unrolled

    torch.manual_seed(0)
    case = make_case(module().double())
    expected = solved(unrolled, case)
    for engine in (twice_reverse, keeping(2)):
        assert_same(solved(engine, case), expected, case.problem)


@pytest.fixture
def weight_gradients(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the weights whose gradients were computed by a linear layer of this module."""
    sizes: list[int] = []
    original = bilinear.Linear.for_weight

    def noted(self: bilinear.Linear, x: Tensor, weight: Tensor, along: Tensor) -> Tensor:
        sizes.append(weight.numel())
        return original(self, x, weight, along)

    monkeypatch.setattr(bilinear.Linear, "for_weight", noted)
    return sizes


def test_a_product_computes_two_weight_gradients_for_each_layer_and_not_three(weight_gradients: list[int]) -> None:
    case = make_case("tanh")
    layers = sum(isinstance(part, nn.Linear) for part in case.problem.network.module.modules())
    solved(twice_reverse, case)
    steps = case.problem.inner.steps
    # The input of the first layer does not depend on weights, so it has one.
    assert len(weight_gradients) == steps * (2 * layers - 1)
