"""A learner of a few weights, and settings with which it is done at once."""

from typing import Any

import torch

import metaprior as mp
from metaprior.weights import WeightDistribution

QUICK: dict[str, Any] = {"epochs": 1, "tasks_per_epoch": 8, "progress": False, "search_step_size": False}
MAML = mp.Descent(steps=2, lr=0.05, kl_weight=0.0, learn_lr="per_tensor")


def small_learner(**changes: Any) -> mp.MetaLearner:
    torch.manual_seed(0)
    return mp.MetaLearner(mp.MLP(1, [3], 1).double(), mp.Gaussian(), **changes, standardize=False)


def assert_same_theta(found: WeightDistribution, expected: WeightDistribution) -> None:
    assert found.named().keys() == expected.named().keys()
    for name, value in expected.named().items():
        assert torch.equal(found.named()[name], value), name
