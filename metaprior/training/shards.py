"""Which part of theta a process keeps the optimiser's state for: all of it, or a part as large as the others'.

AdamW treats every number by itself, so a part of theta can be moved without knowing the rest. Sharded, a process holds
the moments of its part alone; theta itself is whole everywhere, because every task needs all of it.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

SMALLEST = 2**12
"""Numbers from which a tensor is divided; smaller ones every process moves by itself, all in the same way."""


class Whole:
    """Everything is here."""

    def part(self, tensor: Tensor) -> Tensor:
        """What is held of a tensor; in the same memory."""
        return tensor

    def join(self, part: Tensor, into: Tensor) -> None:
        """Bring a tensor up to date, after its parts were moved."""

    def whole(self, part: Tensor) -> Tensor:
        """A tensor from its parts."""
        return part


class Sharded(Whole):
    """Of every large tensor a part is here, as a DTensor. All processes call everything together."""

    def __init__(self, device: torch.device, rank: int, size: int) -> None:
        from torch.distributed.device_mesh import init_device_mesh  # a second to import

        self._rank, self._size = rank, size
        self._mesh: DeviceMesh = init_device_mesh(device.type, (size,))

    def part(self, tensor: Tensor) -> Tensor:
        """See ``Whole``."""
        from torch.distributed.tensor import DTensor, Replicate, Shard

        tensor = tensor.detach()
        if tensor.numel() < SMALLEST:
            return DTensor.from_local(tensor, self._mesh, [Replicate()], run_check=False)
        parts = tensor.chunk(self._size)  # as DTensor divides: the last ones may be shorter, or not be there
        own = parts[self._rank] if self._rank < len(parts) else tensor[:0]
        return DTensor.from_local(
            own, self._mesh, [Shard(0)], run_check=False, shape=tensor.shape, stride=tensor.stride()
        )

    def join(self, part: Tensor, into: Tensor) -> None:
        """See ``Whole``."""
        if into.numel() >= SMALLEST:
            with torch.no_grad():
                into.copy_(self.whole(part))

    def whole(self, part: Tensor) -> Tensor:
        """See ``Whole``."""
        full: Tensor = part.full_tensor() if hasattr(part, "full_tensor") else part  # AdamW's step is a plain tensor
        return full.detach()
