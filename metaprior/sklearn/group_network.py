"""The network of grouped tables, whose last layer is what differs between groups."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from metaprior.checks import check_counts
from metaprior.models.small import ACTIVATIONS


class GroupNetwork(nn.Module):
    r"""A linear model and a network with one last layer: (N, inputs) -> (N, outputs).

    The last layer reads the hidden units $h(x)$, the inputs and a constant, the latter two scaled so that each of the
    three has about the same weight in a prior that is the same for all features: $[h(x), \sqrt{H/p}\,x, \sqrt H]$. What
    differs between groups can thus be their level, their slopes, and any function of hidden units.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, activation: str = "tanh") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        check_counts(**{f"hidden[{place}]": width for place, width in enumerate(hidden)})
        self.arguments = (inputs, tuple(hidden), outputs, activation)
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise([inputs, *hidden]):
            layers += [nn.Linear(fan_in, fan_out), ACTIVATIONS[activation]()]
        self.trunk = nn.Sequential(*layers)
        features = hidden[-1] if hidden else 0
        self.size = math.sqrt(max(1, features))
        self.head = nn.Linear(features + inputs + 1, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs) -> (N, outputs)."""
        parts = [x * (self.size / math.sqrt(x.shape[1])), torch.full_like(x[:, :1], self.size)]
        if len(self.trunk):
            parts.append(self.trunk(x))
        return self.head(torch.cat(parts, 1))  # type: ignore[no-any-return]


def made(seed: int, inputs: int, hidden: Sequence[int], outputs: int, activation: str) -> GroupNetwork:
    """Return a network in float64 whose first weights are a function of the seed; torch's generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GroupNetwork(inputs, hidden, outputs, activation).double()
