"""What all networks of the package have in common, and the MLP."""

import pytest
import torch
from torch import nn

from metaprior import models
from metaprior.models import MLP, BayesianUNet, Conv4, UNet


def test_shapes_and_flattened_images() -> None:
    assert MLP(784, [20, 20], 10)(torch.zeros(3, 28, 28)).shape == (3, 10)
    assert MLP(2, [], 1)(torch.zeros(3, 2)).shape == (3, 1)


@pytest.mark.parametrize(
    "net",
    [
        MLP(3, [4, 5], 2, activation="tanh"),
        Conv4(channels=3, size=32, classes=4, width=6),
        UNet(3, 2, width=5, levels=2),
        BayesianUNet(3, 2, width=2, levels=2, known=2, scales=False, random="decoder"),
    ],
)
def test_description_rebuilds_the_same_structure(net: nn.Module) -> None:
    again = models.rebuild(models.describe(net) or {})
    assert type(again) is type(net)
    assert {n: p.shape for n, p in again.named_parameters()} == {n: p.shape for n, p in net.named_parameters()}
    assert getattr(again, "stochastic", None) == getattr(net, "stochastic", None)
    assert models.describe(nn.Linear(1, 1)) is None


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (
            {"kind": "mlp", "inputs": 1, "hidden": [1], "outputs": 1, "activation": "swish"},
            "known are relu, silu, tanh",
        ),
        ({"kind": "transformer"}, "must be one of mlp"),
        *(({"kind": "conv4", name: 0}, f"{name} must be an integer of at least 1") for name in ("channels", "width")),
        ({"kind": "conv4", "size": 15}, "size must be an integer of at least 16, got 15"),
        *(({"kind": "unet", name: 0}, f"{name} must be an integer of at least 1") for name in ("target_len", "levels")),
        ({"kind": "unet", "known": -1}, "known must be an integer of at least 0, got -1"),
    ],
)
def test_invalid_settings_are_refused(description: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        models.rebuild(description)
