"""Fully connected network."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


class MLP(nn.Module):
    """Linear layers with an activation between them: (N, ...) -> (N, outputs); inputs are flattened first."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, activation: str = "relu") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; known are {', '.join(ACTIVATIONS)}")
        self.config: dict[str, Any] = {
            "inputs": int(inputs),
            "hidden": [int(width) for width in hidden],
            "outputs": int(outputs),
            "activation": activation,
        }
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise([inputs, *hidden]):
            layers += [nn.Linear(fan_in, fan_out), ACTIVATIONS[activation]()]
        self.layers = nn.Sequential(*layers, nn.Linear([inputs, *hidden][-1], outputs))

    def stages(self) -> list[nn.Module]:
        """Flattening, then layer by layer."""
        return [nn.Flatten(), *self.layers]

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) -> (N, outputs)."""
        return self.layers(x.flatten(1))  # type: ignore[no-any-return]
