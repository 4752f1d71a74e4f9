"""The search for numbers that are not finite. Reading a number makes the CPU wait for a GPU, so that many are read at
once, and those of a task on a GPU when it is done; on the CPU an inner loop that has diverged ends early."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from metaprior.inputs import named_parts
from metaprior.metagrad.problem import PARTS, NonFinite
from metaprior.tasks.task import Task

Step = int | str
"""An inner step, "outer", "sweep" or "data", as in ``NonFinite``."""
Terms = Mapping[str, Tensor]


class FiniteChecks:
    """The checks of one task, in order: the first number that is not finite is what is found, whenever it is read."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name, self._at_once = name, device.type == "cpu"
        self._unread: list[tuple[Step, Terms]] = []

    def failure(self, terms: Terms, step: Step, *, last: bool = False) -> NonFinite | None:
        """Return the first term that is not finite; on a GPU None until the ``last`` call, which looks at all."""
        self._unread.append((step, {name: value.detach() for name, value in terms.items()}))
        if not (last or self._at_once):
            return None
        unread, self._unread = self._unread, []
        return _first(unread, self.name)


def first_non_finite(terms: Terms, name: str, step: Step) -> NonFinite | None:
    """Return the place of the first of the named numbers that is not finite."""
    return _first([(step, terms)], name)


def _all_finite(values: Iterable[Tensor]) -> bool:
    """Return whether a sum over everything is finite, which it is only if all its terms are; it may overflow, too."""
    with torch.no_grad():
        return math.isfinite(sum(value.sum() for value in values))


def _first(numbers: Sequence[tuple[Step, Terms]], name: str) -> NonFinite | None:
    if _all_finite(value for _, terms in numbers for value in terms.values()):
        return None
    for step, terms in numbers:
        for term, value in terms.items():
            if not bool(value.isfinite().all()):
                bad = value[~value.isfinite()] if value.ndim else value.flatten()
                return NonFinite(name, step, term, float(bad[0]))  # type: ignore[arg-type]
    return None


def damages(tasks: Sequence[Task]) -> list[NonFinite | None]:
    """Return for each task the place of the first number in its own data that is not finite: no step size would help.

    Missing targets are no damage, but a query set without any target is: its value is NaN.
    """
    data = (values for task in tasks for values in (*task.support.tensors, *task.query.tensors))
    if all(task.query.size for task in tasks) and _all_finite(data):
        return [None] * len(tasks)
    return [
        first_non_finite(_data(task), task.name, "data")
        if task.query.size
        else NonFinite(task.name, "data", "query y", math.nan)
        for task in tasks
    ]


def damage(task: Task) -> NonFinite | None:
    """Return the place of the first number in a task's own data that is not finite: see ``damages``."""
    return damages([task])[0]


def _data(task: Task) -> dict[str, Tensor]:
    """Return a task's numbers by name."""
    named: dict[str, Tensor] = {}
    for part in PARTS:
        x, y = getattr(task, part)
        # Zeros only for this look: a NaN is a missing target, which the likelihood masks; infinite targets stay.
        known = y.nan_to_num(0.0, math.inf, -math.inf) if y.is_floating_point() else y
        named |= {**named_parts(x, f"{part} x"), f"{part} y": known}
    return named
