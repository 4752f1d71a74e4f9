r"""U-Net that forecasts frames from frames (Ronneberger et al. 2015), with GroupNorm.

It is a chain of stages. A tuple ``(x, *skips)`` passes from stage to stage: the current features, and those that later
decoders will use, the next one first. The last entry is the last input frame, to which the network's output is added:
an output of zero is the persistence forecast.
"""

from collections import OrderedDict
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metaprior.checks import check_counts, check_integer

WIDEST = 8
"""Channels double from one resolution to the next, up to this multiple of the width."""

FIRST_SCALES, FIRST_RAW_SCALE = 0.1, -2.0
"""Where raw scales start: nearly the same everywhere, softplus(-2) = 0.13, for frames between -1 and 1."""

Features = tuple[Tensor, ...]


def _groups(channels: int) -> int:
    """Return the number of groups: of eight channels each, as far as they divide evenly."""
    return max(count for count in range(1, channels // 8 + 2) if channels % count == 0)


class ConvBlock(nn.Sequential):
    """Two 3x3 convolutions, each with GroupNorm and SiLU: (N, in, H, W) -> (N, out, H, W)."""

    def __init__(self, inputs: int, outputs: int, between: int | None = None) -> None:
        between = between or outputs
        super().__init__(
            nn.Conv2d(inputs, between, 3, padding=1, bias=False),
            nn.GroupNorm(_groups(between), between),
            nn.SiLU(),
            nn.Conv2d(between, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(_groups(outputs), outputs),
            nn.SiLU(),
        )


class Stem(nn.Module):
    """frames (N, input_len + known, H, W) -> (features at full resolution, the last frame for each target)."""

    def __init__(self, input_len: int, target_len: int, width: int, known: int) -> None:
        super().__init__()
        self.input_len, self.target_len = input_len, target_len
        self.block = ConvBlock(input_len + known, width)

    def forward(self, frames: Tensor) -> Features:
        """(N, input_len + known, H, W) -> (x, skip)."""
        last_frame = frames[:, self.input_len - 1 : self.input_len]
        return self.block(frames), last_frame.expand(-1, self.target_len, -1, -1)


class Encoder(nn.Module):
    """A block at half the resolution; the input is kept as a skip."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.block = ConvBlock(inputs, outputs)

    def forward(self, features: Features) -> Features:
        """(x, *skips) -> (smaller x, x, *skips)."""
        x, *skips = features
        return self.block(F.max_pool2d(x, 2)), x, *skips


class Merge(nn.Module):
    """Enlargement to the next skip, and concatenation. A stage without parameters can belong to a trunk."""

    def forward(self, features: Features) -> Features:
        """(x, skip, *skips) -> (larger x, *skips); any frame size, because x is enlarged to the skip's own."""
        x, skip, *skips = features
        larger = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=True)
        return torch.cat([skip, larger], 1), *skips


class Decoder(nn.Module):
    """A block over the features of two resolutions."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.block = ConvBlock(inputs, outputs, inputs // 2)

    def forward(self, features: Features) -> Features:
        """(x, *skips) -> (x, *skips)."""
        x, *skips = features
        return self.block(x), *skips


class Change(nn.Module):
    """The last frame plus a change, a 1x1 convolution of the features; with ``scales`` also raw scales."""

    def __init__(self, inputs: int, target_len: int, *, scales: bool) -> None:
        super().__init__()
        self.target_len = target_len
        self.change = nn.Conv2d(inputs, target_len * (2 if scales else 1), 1)
        if scales:
            with torch.no_grad():
                self.change.weight[target_len:] *= FIRST_SCALES
                self.change.bias[target_len:] = FIRST_RAW_SCALE  # type: ignore[index]

    def forward(self, features: Features) -> Tensor:
        """(x, last frame) -> frames (N, target_len, H, W), and behind them as many channels of raw scales."""
        x, last_frame = features
        change = self.change(x)
        return torch.cat([last_frame + change[:, : self.target_len], change[:, self.target_len :]], 1)


class UNet(nn.Sequential):
    """A U-Net that forecasts frames: (N, input_len + known, H, W) -> (N, target_len, H, W).

    H and W are at least 2**levels and otherwise free. What is learned is the change from the last input frame. Stages:
    ``stem``, ``encoder1``.., ``merge1``, ``decoder1``.. (the last is at full resolution), ``output``.

    Args:
        input_len: Number of frames that the network sees.
        target_len: Number of frames that it forecasts.
        width: Channels at full resolution. They double at each halving, up to 8 x width: with width 64 and four levels
            there are 64, 128, 256, 512, 512 channels and 17.3 million weights.
        levels: Number of times that the resolution is halved.
        known: Input channels behind the frames, for known facts about the target times.
        scales: Return as many outputs again, the raw scales of ``HeteroscedasticGaussian``.
    """

    def __init__(
        self,
        input_len: int = 4,
        target_len: int = 4,
        width: int = 16,
        levels: int = 4,
        known: int = 0,
        scales: bool = False,
    ) -> None:
        sizes = {"input_len": input_len, "target_len": target_len, "width": width, "levels": levels}
        check_counts(**sizes)
        check_integer("known", known, 0)
        channels = [width * min(2**level, WIDEST) for level in range(levels)]
        channels.append(channels[-1])
        stages: list[tuple[str, nn.Module]] = [("stem", Stem(input_len, target_len, width, known))]
        for level in range(1, levels + 1):
            stages.append((f"encoder{level}", Encoder(channels[level - 1], channels[level])))
        x = channels[-1]
        for number, level in enumerate(reversed(range(levels)), start=1):
            outputs = channels[max(level - 1, 0)]
            stages.append((f"merge{number}", Merge()))
            stages.append((f"decoder{number}", Decoder(x + channels[level], outputs)))
            x = outputs
        super().__init__(OrderedDict([*stages, ("output", Change(x, target_len, scales=scales))]))
        self.config: dict[str, Any] = {**sizes, "known": known, "scales": bool(scales)}


class BayesianUNet(UNet):
    r"""A ``UNet`` and the choice of its random parameters: "Bayesian" is not a kind of layer.

    The attribute ``stochastic`` is the regular expression of the random parameters, which ``MetaLearner`` and
    ``BayesByBackprop`` take as their default.

    Args:
        input_len: Number of frames that the network sees.
        target_len: Number of frames that it forecasts.
        width: Channels at full resolution.
        levels: Number of times that the resolution is halved.
        known: Input channels behind the frames, for known facts about the target times.
        scales: Return as many outputs again, the raw scales of ``HeteroscedasticGaussian`` and ``CRPSGaussian``.
        random: A regular expression for whole parameter names, or one of ``PRESETS``, from "all" (every weight has a
            distribution) to "output" (the last 1x1 convolution).
    """

    PRESETS: ClassVar[dict[str, str]] = {
        "all": r".*",
        "decoder": r"(decoder\d+|output)\..*",
        "head": r"(decoder{levels}|output)\..*",
        "norms": r".*block\.[14]\..*",
        "output": r"output\..*",
    }

    def __init__(
        self,
        input_len: int = 4,
        target_len: int = 4,
        width: int = 16,
        levels: int = 4,
        known: int = 0,
        scales: bool = True,
        random: str = "head",
    ) -> None:
        super().__init__(input_len, target_len, width, levels, known, scales)
        self.stochastic = self.PRESETS.get(random, random).replace("{levels}", str(levels))
        self.config["random"] = random
