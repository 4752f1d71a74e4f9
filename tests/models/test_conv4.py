import pytest
import torch
from torch import nn
from torch.nn import functional as F

from metaprior.models import Conv4
from metaprior.network import stages_of


def test_the_usual_size() -> None:
    net = Conv4()
    convolutions = 9 * 64 + 3 * 9 * 64 * 64
    assert sum(p.numel() for p in net.parameters()) == convolutions + 4 * 2 * 64 + 64 * 5 + 5 == 112_005
    for width in (1, 3, 6, 20, 64):  # groups divide any width
        assert Conv4(width=width)(torch.zeros(3, 1, 28, 28)).shape == (3, 5)


@pytest.mark.parametrize(("size", "features"), [(16, 4), (28, 4), (31, 4), (32, 16), (84, 100)])
def test_images_of_other_sizes(size: int, features: int) -> None:
    net = Conv4(channels=3, size=size, classes=2, width=4)
    assert net.head.in_features == features
    assert net(torch.zeros(2, 3, size, size)).shape == (2, 2)


def test_it_is_four_times_convolution_norm_relu_and_pooling_and_then_linear() -> None:
    net = Conv4(channels=2, size=20, classes=3, width=12).double()
    x = images = torch.randn(2, 2, 20, 20, dtype=torch.float64)
    weights = dict(net.named_parameters())
    for part in weights.values():
        nn.init.normal_(part, std=0.3)
    for block in ("block1", "block2", "block3", "block4"):
        x = F.conv2d(x, weights[f"{block}.0.weight"], padding=1)
        x = F.group_norm(x, 4, weights[f"{block}.1.weight"], weights[f"{block}.1.bias"])  # 12 channels in 4 groups
        x = F.max_pool2d(x.clamp_min(0), 2)
    expected = x.reshape(2, 12) @ weights["head.weight"].T + weights["head.bias"]
    torch.testing.assert_close(net(images), expected)


def test_stages() -> None:
    net = Conv4(width=2)
    assert [name for name, _ in net.named_children()] == ["block1", "block2", "block3", "block4", "flatten", "head"]
    assert stages_of(net) == list(net.children())
