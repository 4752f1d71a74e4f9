"""What a task is: examples to learn from, and examples to be judged by."""

from typing import NamedTuple

from torch import Tensor


class Examples(NamedTuple):
    """Inputs x and targets y; the first axis of both is the observations."""

    x: Tensor
    y: Tensor

    @property
    def size(self) -> int:
        """Number of observations."""
        return len(self.x)

    def first(self, count: int) -> "Examples":
        """The first few of them."""
        return Examples(self.x[:count], self.y[:count])


class Task(NamedTuple):
    """A support set to adapt to, a query set to be judged by, and a name for messages."""

    support: Examples
    query: Examples
    name: str = "task"
