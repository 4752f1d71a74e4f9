import pytest
import torch

from metaprior import models
from metaprior.models import MLP


def test_shapes_and_flattened_images() -> None:
    assert MLP(784, [20, 20], 10)(torch.zeros(3, 28, 28)).shape == (3, 10)
    assert MLP(2, [], 1)(torch.zeros(3, 2)).shape == (3, 1)


def test_description_rebuilds_the_same_structure() -> None:
    net = MLP(3, [4, 5], 2, activation="tanh")
    again = models.rebuild(models.describe(net))
    assert [p.shape for p in again.parameters()] == [p.shape for p in net.parameters()]
    assert models.describe(torch.nn.Linear(1, 1)) is None


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="known are relu, silu, tanh"):
        MLP(1, [1], 1, activation="swish")
    with pytest.raises(ValueError, match="must be one of mlp"):
        models.rebuild({"kind": "transformer"})
