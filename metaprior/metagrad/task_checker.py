"""The check of tasks on their way into a training: in full for the first of a shape, quickly for the others."""

from collections.abc import Sequence
from typing import Protocol

from metaprior.checks import PairChecker, as_plain_tensor, plain_inputs, with_repeats, with_zeros
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.problem import PARTS
from metaprior.missing import TargetCount
from metaprior.network import BayesianNetwork
from metaprior.tasks.task import Examples, Task


class ChecksTasks(Protocol):
    """Something with a network and a likelihood that checks data in full: a ``Problem``, a ``TaskModel``."""

    @property
    def network(self) -> BayesianNetwork:
        """Return the network that the task's inputs must fit."""

    @property
    def likelihood(self) -> Likelihood:
        """Return the likelihood that the task's targets must fit."""

    def check(self, task: Task) -> Task:
        """Return the task in the types that gradients trust, or raise."""

    def check_examples(self, examples: Examples, what: str) -> Examples:
        """Return examples in the types that adapting trusts, or raise; an error starts with ``what``."""


def _plain(examples: Examples, what: str) -> Examples:
    return Examples(plain_inputs(examples.x, f"{what} x"), as_plain_tensor(examples.y, f"{what} y"))


class TaskChecker:
    """Check the first task of every shape in full (the network is run on it), and the shapes and types of the others.

    Observations without any target are left out. Numbers that are not finite pass: such a task is bad, and is skipped
    and counted where its loss is computed, so that one damaged file does not end a training of hours.
    """

    def __init__(self, model: ChecksTasks) -> None:
        self._model = model
        self._pair = PairChecker(model.network, model.likelihood)

    def taken(self) -> TargetCount:
        """Return the count of all targets, and of missing ones, since this was last asked."""
        count, self._pair.count = self._pair.count, TargetCount()
        return count

    def __call__(self, task: Task) -> Task:
        """Return the task in the types that the engines trust."""
        return self.several([task])[0]

    def several(self, tasks: Sequence[Task]) -> list[Task]:
        """Return tasks in the types that the engines trust; where targets are missing is read once for all of them."""
        pairs: list[tuple[object, object, str, int]] = []
        for task in tasks:
            named: dict[str, Examples] = {f"{task.name}: {part}": getattr(task, part) for part in PARTS}
            sets = {what: _plain(own, what) for what, own in named.items()}
            if not all(self._pair.knows(x) for x, _ in sets.values()):
                support, query = (Examples(with_zeros(x), with_repeats(y)) for x, y in sets.values())
                self._model.check(Task(support, query, task.name))
            # a support set may be empty
            pairs += [(x, y, what, least) for least, (what, (x, y)) in enumerate(sets.items())]
        found = [Examples(*pair) for pair in self._pair.several(pairs, finite=False)]
        return [
            Task(*own, task.name) for task, own in zip(tasks, zip(found[::2], found[1::2], strict=True), strict=True)
        ]
