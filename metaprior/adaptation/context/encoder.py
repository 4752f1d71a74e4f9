r"""The summary of a support set: a vector c that any order of the examples gives (deep sets, Zaheer et al. 2017).

$$c = h\Big(\frac1n\sum_{j=1}^n e(x_j, y_j),\; \max_j e(x_j, y_j),\; \log(1 + n)\Big)$$

with the embedding e of an example and a small network h. The summary of no examples is $h(0, 0, 0)$, which is a learned
constant. The maximum, entry by entry, keeps what a mean over many examples blurs: beside the mean alone it divides the
error on sine waves by three. The examples of many support sets are embedded in one pass.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from metaprior.inputs import Inputs, named_parts
from metaprior.likelihoods import Categorical, Likelihood
from metaprior.metagrad.problem import refuse_hidden_noise
from metaprior.network import refuse_batch_statistics
from metaprior.tasks.task import Examples, all_examples

CHANNELS = (32, 64, 64)
"""Channels of the convolutions that embed images, each at half the resolution of the one before."""
ADVICE = "Try to assign the layers in the order of forward, or Context(encoder=...) with a module of your own."


class SupportEncoder(nn.Module, ABC):
    """Support sets -> contexts of length ``size``; the base class of encoders of your own.

    A network whose method ``support_encoder()`` returns one takes the context as its second argument,
    ``forward(x, context)``: of shape (size,), or (N, size) with a context for every row of x. (Of several inputs: as
    the argument after the parts of a tuple, and beside those of a dictionary as ``context=``.) Whatever is learned are
    parameters of the encoder. Without parameters it is a fixed summary.
    """

    size: int

    @abstractmethod
    def forward(self, x: Any, y: Tensor, sizes: Tensor) -> Tensor:
        """Return (tasks, size) from the examples of all tasks, one after the other, and each task's number.

        Several inputs x are the tuple or the dictionary that was given.
        Without any example x and y have length 0 (and maybe no other axis); missing targets y are NaN.
        """

    def initial(self) -> dict[str, Tensor]:
        """Return first values of what is learned, by name."""
        return {name: p.detach().clone() for name, p in self.named_parameters() if p.requires_grad}

    def contexts(self, parameters: Mapping[str, Tensor], supports: Sequence[Examples]) -> Tensor:
        """Return the contexts of support sets, shape (tasks, size), with these values of what is learned."""
        sizes = torch.tensor([support.size for support in supports])
        x, y = all_examples(supports) if len(supports) else (None, None)
        return functional_call(self, dict(parameters), (x, y, sizes))  # type: ignore[no-any-return]


class SetEncoder(SupportEncoder):
    """Support sets -> contexts of length ``size``.

    Args:
        module: the network that will read the context. Without an ``encoder``, its first and last linear or
            convolutional layers tell the shapes of inputs and targets.
        likelihood: whether targets are real numbers or labels.
        size: length of a context, and of the embedding of an example.
        encoder: embeds examples, ``encoder(x, y) -> (N, size)``; x as it was given, y as the likelihood takes it, with
            zeros where real numbers are missing. None is the default: three layers for vectors, convolutions for
            images. It takes several inputs x where the first layer does too: side by side, as one vector.
    """

    def __init__(self, module: nn.Module, likelihood: Likelihood, size: int, encoder: nn.Module | None) -> None:
        super().__init__()
        like = next(p for p in module.parameters() if p.is_floating_point())
        with torch.random.fork_rng(devices=[]):  # every process and every binding starts from the same numbers
            torch.manual_seed(0)
            self.embed = copy.deepcopy(encoder) or default_embedding(module, likelihood, size)
            self.summary = nn.Sequential(nn.Linear(2 * size + 1, size), nn.SiLU(), nn.Linear(size, size))
        refuse_batch_statistics(self.embed)
        refuse_hidden_noise(self.embed)
        self.size, self._own = size, encoder is not None
        self.to(like)

    def forward(self, x: Any, y: Tensor, sizes: Tensor) -> Tensor:
        """Return (tasks, size) from the examples of all tasks, one after the other, and each task's number."""
        zeros = next(self.summary.parameters()).new_zeros(len(sizes), self.size)
        counts = sizes.to(zeros).unsqueeze(-1)
        if not len(y):
            return self.summary(torch.cat([zeros, zeros, counts], 1))  # type: ignore[no-any-return]
        y = y.masked_fill(y.isnan(), 0.0) if self._own and y.is_floating_point() else y
        embedded = self.embed(x, y)
        if embedded.shape != (len(y), self.size):
            raise ValueError(
                f"the encoder must return shape {(len(y), self.size)} for {len(y)} examples, one row of Context's "
                f"size for each, got {tuple(embedded.shape)}. Try Context(size=...)."
            )
        task = torch.arange(len(sizes)).repeat_interleave(sizes).to(y.device)
        mean = zeros.index_add(0, task, embedded) / counts.clamp_min(1.0)
        rows = task.unsqueeze(-1).expand_as(embedded)
        largest = zeros.scatter_reduce(0, rows, embedded, "amax", include_self=False)  # zeros stay where there is none
        return self.summary(torch.cat([mean, largest, counts.log1p()], 1))  # type: ignore[no-any-return]


class PairEmbedding(nn.Module):
    """Embeds pairs (x, y) of vectors, of an image and a vector (or a label), or of two images.

    Real-valued targets come with a mask, which is 0 where one is missing, and labels as one-hot codes.

    Args:
        first: the network's first layer: linear for vectors x, convolutional for images.
        last: its last layer, which says the same of targets.
        likelihood: the kind of targets.
        size: length of an embedding.
    """

    def __init__(
        self, first: nn.Linear | nn.Conv2d, last: nn.Linear | nn.Conv2d, likelihood: Likelihood, size: int
    ) -> None:
        super().__init__()
        self.labels = isinstance(likelihood, Categorical)
        self.images = isinstance(first, nn.Conv2d)
        self.image_targets = self.images and isinstance(last, nn.Conv2d)
        self.inputs = first.in_channels if isinstance(first, nn.Conv2d) else first.in_features
        self.outputs = last.out_channels if isinstance(last, nn.Conv2d) else last.out_features
        self.codes = codes = self.outputs if self.labels else 2 * (self.outputs // likelihood.outputs_per_target)
        known = self.inputs + codes
        self.convolutions = nn.Sequential()
        if self.images:
            for before, after in pairwise((known if self.image_targets else self.inputs, *CHANNELS)):
                self.convolutions.extend([nn.Conv2d(before, after, 3, stride=2, padding=1), nn.SiLU()])
            known = CHANNELS[-1] + (0 if self.image_targets else codes)
        self.layers = nn.Sequential(
            nn.Linear(known, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU(), nn.Linear(size, size)
        )

    def forward(self, x: Inputs, y: Tensor) -> Tensor:
        """Return (N, size) for inputs x and targets y."""
        if not isinstance(x, Tensor):
            x = self._side_by_side(x)
        x = x if self.images else x.flatten(1)
        if x.ndim != (4 if self.images else 2) or x.shape[1] != self.inputs or not x.is_floating_point():
            what = f"images (N, {self.inputs}, H, W)" if self.images else f"{self.inputs} numbers an example"
            raise ValueError(
                f"the default encoder takes real-valued x of {what}, as the layer does that the network registers "
                f"first, got {x.dtype} of shape {tuple(x.shape)}. {ADVICE}"
            )
        codes = self._codes(y).to(x)
        codes = codes if self.image_targets else codes.flatten(1)
        if codes.shape[1] != self.codes:
            raise ValueError(
                f"the default encoder takes targets for {self.outputs} outputs, which the layer has that the network "
                f"registers last, got shape {tuple(y.shape)}. {ADVICE}"
            )
        if not self.image_targets:
            features = self.convolutions(x).mean((2, 3)) if self.images else x
            return self.layers(torch.cat([features, codes], 1))  # type: ignore[no-any-return]
        codes = codes if codes.shape[2:] == x.shape[2:] else F.adaptive_avg_pool2d(codes, (x.shape[2], x.shape[3]))
        return self.layers(self.convolutions(torch.cat([x, codes], 1)).mean((2, 3)))  # type: ignore[no-any-return]

    def _side_by_side(self, x: Inputs) -> Tensor:
        """Return several inputs as one vector; raise unless it is what the first layer takes."""
        parts = named_parts(x)
        real = all(part.is_floating_point() for part in parts.values())
        if self.images or not real or sum(part[:1].numel() for part in parts.values()) != self.inputs:
            shapes = ", ".join(f"{name} {tuple(part.shape)} {part.dtype}" for name, part in parts.items())
            raise ValueError(
                f"the default encoder takes several real-valued inputs side by side, together {self.inputs} numbers "
                f"an example as the layer that the network registers first, got {shapes}. Try Context(encoder=...) "
                "with a module encoder(x, y) of your own, whose x is this tuple or dictionary."
            )
        return torch.cat([part.flatten(1) for part in parts.values()], 1)

    def _codes(self, y: Tensor) -> Tensor:
        """Return targets as numbers along axis 1: one-hot codes, or values and a mask; missing ones are zeros."""
        if self.labels:
            return (y.unsqueeze(1) == torch.arange(self.outputs, device=y.device).view(-1, *[1] * (y.ndim - 1))).float()
        missing = y.isnan()
        return torch.cat([y.masked_fill(missing, 0.0), (~missing).to(y)], 1)


def default_embedding(module: nn.Module, likelihood: Likelihood, size: int) -> PairEmbedding:
    """Return the embedding of a network's examples, by the kinds of its first and last layers."""
    layers = [part for part in module.modules() if isinstance(part, nn.Linear | nn.Conv2d)]
    other = [part for part in module.modules() if isinstance(part, nn.Embedding | nn.RNNBase | nn.Conv1d | nn.Conv3d)]
    if not layers or other:
        raise ValueError(
            "without an encoder of yours, the network must consist of Linear and Conv2d layers, which tell the shapes "
            f"of inputs and targets, got a {type(module).__name__}. Try "
            f"Context(encoder=...), with a module encoder(x, y) -> (N, {size})."
        )
    return PairEmbedding(layers[0], layers[-1], likelihood, size)
