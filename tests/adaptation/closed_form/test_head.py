"""The last layer is found in any module, and features, weights and offset give the forward pass."""

import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.adaptation.closed_form.head import Head
from metaprior.models import Conv4
from metaprior.network import NOTHING_RANDOM, BayesianNetwork


class HeadFirst(nn.Module):
    """Its last layer is registered first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.first = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))  # type: ignore[no-any-return]


class Twice(nn.Module):
    """It calls one layer two times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x))  # type: ignore[no-any-return]


def convolution(**options: object) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.Tanh(), nn.Conv2d(5, 3, **options))  # type: ignore[arg-type]


def head_of(module: nn.Module, name: str | None = None) -> Head:
    return Head.of(BayesianNetwork(module, NOTHING_RANDOM), name)


IMAGE, SERIES = (2, 2, 9, 8), (2, 5, 3)
CASES = {
    "mlp": (mp.MLP(3, [7, 6], 2), (4, 3), "layers.4", 7),
    "no bias": (nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2, bias=False)), (4, 3), "2", 7),
    "series": (nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)), SERIES, "2", 7),
    "pixels": (convolution(kernel_size=1), IMAGE, "2", 6),
    "patches": (convolution(kernel_size=3, padding=1), IMAGE, "2", 46),
    "same": (convolution(kernel_size=(3, 5), padding="same", dilation=2), IMAGE, "2", 76),
    "strides": (convolution(kernel_size=2, stride=2, padding=1), IMAGE, "2", 21),
    "unet": (mp.UNet(4, 2, width=4, levels=2, scales=True), (2, 4, 8, 8), "output.change", 5),
    "conv4": (Conv4(width=8), (2, 1, 28, 28), None, 9),
    "named": (HeadFirst(), (4, 3), "last", 5),
}


@pytest.mark.parametrize("case", CASES)
def test_features_weights_and_offset_are_the_forward_pass(case: str) -> None:
    module, shape, name, size = CASES[case]
    head = head_of(module, "last" if case == "named" else None)
    assert head.size == size
    assert name in (None, head.name)
    x, plain = torch.randn(*shape), head.network.initial().plain
    head.check(plain, x)
    features, offset = head.split(plain, x)
    outputs = module(x)
    torch.testing.assert_close(head.from_rows(features @ head.weights.mT, offset) + offset, outputs)
    torch.testing.assert_close(head.from_rows(head.to_rows(outputs), outputs), outputs)
    assert "forward" not in vars(head.layer)


def test_the_features_are_differentiable_and_data_are_left_alone() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    head = head_of(module)
    plain = {name: value.requires_grad_() for name, value in head.network.initial().plain.items()}
    head.split(plain, torch.ones(2, 3)).features.sum().backward()
    assert plain["0.weight"].grad is not None
    assert plain["2.weight"].grad is None


@pytest.mark.parametrize(
    ("module", "name", "match"),
    [
        (nn.Sequential(nn.Linear(3, 2), nn.Tanh()), None, "something else comes after it. Try a network that ends"),
        (nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)), None, "something else comes after it"),
        (HeadFirst(), None, "The last layer that is called is 'last': try head='last'"),
        (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), "0", "The last layer that is called is '1'"),
        (Twice(), None, "must run once in a forward pass, but 'layer' ran 2 times"),
        (nn.Sequential(nn.LayerNorm(3)), None, "must find a Linear or Conv2d as last layer, got a Sequential"),
        (HeadFirst(), "lost", "head must be the name of a Linear or Conv2d, got 'lost'. The HeadFirst has last, first"),
    ],
)
def test_a_module_without_a_last_layer_is_refused(module: nn.Module, name: str | None, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        head_of(module, name).check(dict(module.named_parameters()), torch.randn(5, 3))


def test_a_convolution_of_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="groups=1"):
        head_of(nn.Conv2d(4, 4, 1, groups=2))
