"""The fully connected network, and the four-block convolutional network of few-shot image classification."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from metaprior.checks import check_counts, check_integer
from metaprior.likelihoods import Likelihood

BLOCKS = 4
GROUPS = 8
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


class MLP(nn.Module):
    """Linear layers with an activation between them: (N, ...) -> (N, outputs); inputs are flattened first.

    Args:
        inputs: Numbers in one observation's input.
        hidden: Widths of the hidden layers, or the width of the only one.
        outputs: Number of outputs, or the likelihood that reads them: the network then has as many as that needs.
        activation: "relu", "silu" or "tanh".
        targets: Numbers in one observation's target (for ``Categorical``: classes), where outputs is a likelihood; 1 by
            default.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int] | int,
        outputs: int | Likelihood,
        activation: str = "relu",
        *,
        targets: int | None = None,
    ) -> None:
        super().__init__()
        outputs = _number_of_outputs(outputs, targets)
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; known are {', '.join(ACTIVATIONS)}")
        hidden = [hidden] if isinstance(hidden, int) else hidden
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


def _number_of_outputs(outputs: int | Likelihood, targets: int | None) -> int:
    """Return the number of outputs that was given, or that a likelihood needs for the number of targets."""
    if isinstance(outputs, Likelihood):
        check_integer("targets", 1 if targets is None else targets, 1)
        return outputs.num_outputs(1 if targets is None else targets)
    if targets is not None:
        raise ValueError(f"targets must be given only where outputs is a likelihood, got outputs={outputs!r}")
    return outputs


class PoolingBlock(nn.Sequential):
    """3x3 convolution, GroupNorm, ReLU and 2x2 max-pooling: (N, in, H, W) -> (N, out, H // 2, W // 2)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(math.gcd(outputs, GROUPS), outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )


class Conv4(nn.Sequential):
    """Images (N, channels, size, size) -> class scores (N, classes); size at least 16, because four blocks halve it.

    Stages: ``block1`` to ``block4``, ``flatten``, ``head``. With the defaults 64 features and 112,000 weights. The
    published network has BatchNorm, whose running statistics would pass from one task to another; GroupNorm has none.

    Vinyals et al. 2016, "Matching Networks for One Shot Learning"; Finn et al. 2017, section 5.2.
    """

    def __init__(self, channels: int = 1, size: int = 28, classes: int = 5, width: int = 64) -> None:
        check_counts(channels=channels, classes=classes, width=width)
        check_integer("size", size, 2**BLOCKS)  # every block halves the image
        stages: list[tuple[str, nn.Module]] = [
            (f"block{number}", PoolingBlock(channels if number == 1 else width, width))
            for number in range(1, BLOCKS + 1)
        ]
        features = width * (size // 2**BLOCKS) ** 2
        super().__init__(OrderedDict([*stages, ("flatten", nn.Flatten()), ("head", nn.Linear(features, classes))]))
        self.config: dict[str, Any] = {"channels": channels, "size": size, "classes": classes, "width": width}
