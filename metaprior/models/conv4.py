"""The four-block convolutional network of few-shot image classification, with GroupNorm."""

import math
from collections import OrderedDict
from typing import Any

from torch import nn

from metaprior.checks import check_integer

BLOCKS = 4
GROUPS = 8


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
        for name, value in (("channels", channels), ("classes", classes), ("width", width)):
            check_integer(name, value, 1)
        check_integer("size", size, 2**BLOCKS)  # every block halves the image
        stages: list[tuple[str, nn.Module]] = [
            (f"block{number}", PoolingBlock(channels if number == 1 else width, width))
            for number in range(1, BLOCKS + 1)
        ]
        features = width * (size // 2**BLOCKS) ** 2
        super().__init__(OrderedDict([*stages, ("flatten", nn.Flatten()), ("head", nn.Linear(features, classes))]))
        self.config: dict[str, Any] = {"channels": channels, "size": size, "classes": classes, "width": width}
