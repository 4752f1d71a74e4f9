"""Which part of theta a process keeps the optimiser's state for: all of it, or a part as large as the others'.

AdamW treats every number by itself, so a part of theta can be moved without knowing the rest (ZeRO's first stage,
Rajbhandari et al. 2020). Sharded, a process holds the moments of its part alone; theta itself is whole everywhere,
because every task needs all of it.
"""

import torch
from torch import Tensor

from metaprior.team import current_team

SMALLEST = 2**12
"""Numbers from which a tensor is divided; smaller ones every process moves by itself, all in the same way."""
ALIGNED = 64
"""Parts begin at multiples of so many numbers: an operation on a part then rounds as that on the whole does."""


class Whole:
    """Everything is here."""

    def part(self, tensor: Tensor) -> Tensor:
        """What is held of a contiguous tensor; in the same memory."""
        return tensor

    def join(self, tensor: Tensor) -> None:
        """Bring a tensor up to date, after every process has changed its part of it."""

    def whole(self, part: Tensor, like: Tensor) -> Tensor:
        """A tensor from its parts."""
        return part


class Sharded(Whole):
    """Of every large tensor a part is here. All processes call everything together."""

    def __init__(self) -> None:
        self._team = current_team()

    def part(self, tensor: Tensor) -> Tensor:
        """See ``Whole``; flat."""
        return self._parts(tensor)[self._team.rank]

    def join(self, tensor: Tensor) -> None:
        """See ``Whole``."""
        if tensor.numel() >= SMALLEST:
            self._team.exchange_(self._parts(tensor))

    def whole(self, part: Tensor, like: Tensor) -> Tensor:
        """See ``Whole``."""
        tensor = torch.empty_like(like, requires_grad=False)
        self.part(tensor).copy_(part)
        self.join(tensor)
        return tensor

    def _parts(self, tensor: Tensor) -> list[Tensor]:
        """Of each rank; a small tensor is all of everybody's. Later ones may be shorter, or empty."""
        flat, size = tensor.detach().view(-1), self._team.size
        if tensor.numel() < SMALLEST:
            return [flat] * size
        length = -(-len(flat) // (size * ALIGNED)) * ALIGNED
        return [flat[rank * length : (rank + 1) * length] for rank in range(size)]
