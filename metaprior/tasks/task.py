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


def as_examples(value: object, name: str) -> Examples:
    """Inputs and targets as ``Examples``; TypeError for what is no pair of them."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"{name} has to be a pair (x, y) of inputs and targets, got {_said(value)}")
    return Examples(*value)


def as_task(value: object) -> Task:
    """A task whose two sets are pairs (x, y); TypeError for what is no ``Task``."""
    if not isinstance(value, Task):
        raise TypeError(
            "a task has to be a metaprior.Task(support=(x, y), query=(x, y), name=...), and tasks a list of them or "
            f"something that gives one by index; got {_said(value)}"
        )
    support, query = (as_examples(getattr(value, part), f"{part} of {value.name}") for part in ("support", "query"))
    return Task(support, query, value.name)


def _said(value: object) -> str:
    kind = type(value).__name__
    return f"{kind} of {len(value)}" if isinstance(value, tuple | list) else kind
