r"""The network's side of a meta-gradient: the data loss as a function of a point in weight space.

A point is a list of tensors: the random weights' tensors (pieces of phi), then the adapted plain ones. What else the
loss depends on and does not move in the inner loop is **fixed**: plain parameters that are only meta-learned, and the
trunk's outputs, if the trunk is meta-learned. Examples are worked on in micro-batches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metaprior.metagrad.problem import Problem
from metaprior.stages import Chain, stages_of
from metaprior.tasks.task import Task
from metaprior.weights import WeightDistribution

Tensors = Sequence[Tensor]


class Rows(NamedTuple):
    """Examples at the head's door: features as the trunk gave them, and targets."""

    features: tuple[Tensor, ...]
    single: bool
    """The head takes one tensor, not a tuple."""
    y: Tensor


@dataclass(frozen=True)
class Chunk:
    """A micro-batch: its losses as a function of (adapted, fixed), and the values of the fixed tensors."""

    losses: Callable[[Tensors, Tensors], Tensor]
    """One number for each observation, shape (..., n)."""
    fixed: list[Tensor]
    window: tuple[slice, ...]
    """Where its rows are in the features."""

    def loss(self, adapted: Tensors, fixed: Tensors) -> Tensor:
        """Summed over observations."""
        return self.losses(adapted, fixed).sum(-1)


@dataclass
class FixedCotangent:
    """Derivatives by what does not move: plain parameters of the head and of the trunk by name, features by set of
    examples. The trunk is the same for all tasks of a stack, and its derivative the sum over them."""

    head: dict[str, Tensor]
    trunk: dict[str, Tensor]
    features: dict[str, tuple[Tensor, ...]]

    def by_name(self, stack: tuple[int, ...]) -> dict[str, Tensor]:
        """By every plain parameter. In a stack, every task's row of a trunk's parameter is the mean over tasks."""
        rows = {name: (t / stack[0]).expand(*stack, *t.shape) if stack else t for name, t in self.trunk.items()}
        shared = {name: self.head[name] + row for name, row in rows.items() if name in self.head}
        return {**self.head, **rows, **shared}


class DataLoss:
    r"""$\sum_n -\log p(y_n | \phi, \text{plain})$ for one task or (``tasks`` > 0) for a stack of them, one number each.

    The trunk (the stages in front of everything that is adapted) is run here, once: without a graph, or, where there is
    memory for it (``keep_trunk``), with one that is used at the end.
    """

    def __init__(
        self, problem: Problem, theta: WeightDistribution, task: Task, *, tasks: int = 0, keep_trunk: bool = False
    ) -> None:
        self.problem, self.network = problem, problem.network
        self.stack = (tasks,) if tasks else ()
        self.adapted_names = problem.adapted_names
        split = problem.trunk_stages
        self._trunk, self._head = Chain(self.network.module, 0, split), Chain(self.network.module, split)
        self._plain = {name: value.detach() for name, value in theta.plain.items()}
        fixed = [name for name in theta.plain if name not in self.adapted_names]
        in_trunk, in_head = _used_in(self.network.module, 0, split), _used_in(self.network.module, split, None)
        self.trunk_names = [name for name in fixed if name in in_trunk] if problem.learn_trunk else []
        self.fixed_names = [name for name in fixed if name in in_head or name not in self.network.plain_names]
        self._examples = {"support": task.support, "query": task.query}
        self._trunk_values = {name: self._plain[name].detach() for name in fixed if name in in_trunk}
        for name in self.trunk_names:
            self._trunk_values[name].requires_grad_()
        self._kept_trunk: dict[str, list[Any]] = {}
        keep = keep_trunk and bool(self.trunk_names)
        self._rows = {part: self._through_trunk(part, keep) for part in self._examples if self.observations(part)}

    def observations(self, part: str) -> int:
        """Number of observations (of each task)."""
        axis, examples = len(self.stack), self._examples[part]
        if examples.x.shape[axis] != examples.y.shape[axis]:
            raise ValueError(f"the {part} set has {examples.x.shape[axis]} inputs and {examples.y.shape[axis]} targets")
        return examples.x.shape[axis]

    def point(self, phi: Tensor, plain: Mapping[str, Tensor]) -> list[Tensor]:
        """Views of phi (..., D) in the random tensors' shapes, then the adapted plain tensors."""
        layout, lead = self.network.layout, phi.shape[:-1]
        pieces = zip(phi.split(layout.sizes, -1), layout.shapes, strict=True)
        return [
            *(piece.view((*lead, *shape)) for piece, shape in pieces),
            *(plain[name] for name in self.adapted_names),
        ]

    def fixed_cotangent(self) -> FixedCotangent:
        """Zeros for every fixed tensor that is learned."""
        head = {name: self._plain[name].new_zeros((*self.stack, *self._plain[name].shape)) for name in self.fixed_names}
        trunk = {name: torch.zeros_like(self._plain[name]) for name in self.trunk_names}
        features = {part: tuple(map(torch.zeros_like, _real(rows.features))) for part, rows in self._rows.items()}
        return FixedCotangent(head, trunk, features if self.trunk_names else {})

    def fixed_views(self, cotangent: FixedCotangent, part: str, chunk: Chunk) -> list[Tensor]:
        """The parts of a cotangent that belong to a chunk's fixed tensors."""
        plain = [cotangent.head[name] for name in self.fixed_names]
        return [*plain, *(whole[chunk.window] for whole in cotangent.features.get(part, ()))]

    def chunks(self, part: str) -> Iterator[Chunk]:
        """The examples of one set in micro-batches."""
        rows = self._rows[part]
        shared = [self._plain[name].expand((*self.stack, *self._plain[name].shape)) for name in self.fixed_names]
        for window in self._windows(part):
            features, y = tuple(f[window] for f in rows.features), rows.y[window]
            yield Chunk(
                self._chunk_losses(features, rows.single, y),
                [*shared, *(_real(features) if self.trunk_names else ())],
                window,
            )

    def _windows(self, part: str) -> Iterator[tuple[slice, ...]]:
        count = self.observations(part)
        size = self.problem.micro_batch or count
        for start in range(0, count, size):
            yield (*(slice(None) for _ in self.stack), slice(start, min(start + size, count)))

    def _chunk_losses(
        self, features: tuple[Tensor, ...], single: bool, y: Tensor
    ) -> Callable[[Tensors, Tensors], Tensor]:
        count = len(self.fixed_names)

        def nll(adapted: Tensors, fixed: Tensors, features: tuple[Tensor, ...], y: Tensor) -> Tensor:
            pieces = zip((*self.network.layout.names, *self.adapted_names), adapted, strict=True)
            named = {**dict(pieces), **dict(zip(self.fixed_names, fixed, strict=True))}
            outputs = self._run(self._head, named, features[0] if single else features)
            return self.problem.likelihood.nll(outputs, y, named)

        function: Any = torch.vmap(nll) if self.stack else nll

        def losses(adapted: Tensors, fixed: Tensors) -> Tensor:
            inputs = _with_real(features, fixed[count:]) if self.trunk_names else features
            return function(list(adapted), list(fixed[:count]), inputs, y)  # type: ignore[no-any-return]

        return losses

    def _run(self, part: Chain, named: Mapping[str, Tensor], features: Any) -> Any:
        own = {name: value for name, value in named.items() if name in self._own_names}
        return self.network.run_part(part, own, features)

    @property
    def _own_names(self) -> tuple[str, ...]:
        return (*self.network.layout.names, *self.network.plain_names)

    def _through_trunk(self, part: str, keep: bool) -> Rows:
        """Examples with the trunk's outputs for inputs."""
        examples = self._examples[part]
        if not self.problem.trunk_stages:
            return Rows((examples.x,), True, examples.y)
        flat = examples.x.flatten(0, len(self.stack))  # the trunk is the same for all tasks of a stack
        with torch.set_grad_enabled(keep):
            outputs = [self._run_trunk(x) for x in flat.split(self.problem.micro_batch or len(flat))]
        if keep:
            self._kept_trunk[part] = outputs
        lead = examples.x.shape[: len(self.stack) + 1]
        features = [
            torch.cat(pieces).detach().unflatten(0, lead) for pieces in zip(*map(_several, outputs), strict=True)
        ]
        return Rows(tuple(features), isinstance(outputs[0], Tensor), examples.y)

    def _run_trunk(self, x: Tensor) -> Any:
        return self._run(self._trunk, self._trunk_values, x)

    def pull_back_trunk(self, cotangent: FixedCotangent) -> None:
        """Add to the trunk's cotangent, in micro-batches: by its kept graph, or run once more."""
        for part, features in cotangent.features.items():
            kept = self._kept_trunk.pop(part, [])
            x, *along = (tensor.flatten(0, len(self.stack)) for tensor in (self._examples[part].x, *features))
            size = self.problem.micro_batch or len(x)
            for start in range(0, len(x), size):
                rows = slice(start, start + size)
                with torch.enable_grad():
                    outputs = kept.pop(0) if kept else self._run_trunk(x[rows])
                self._pull_back_rows(_real(_several(outputs)), [f[rows] for f in along], cotangent.trunk)
                del outputs

    def _pull_back_rows(self, outputs: Tensors, along: Tensors, into: dict[str, Tensor]) -> None:
        moving = [(output, v) for output, v in zip(outputs, along, strict=True) if output.requires_grad]
        tensors, directions = [pair[0] for pair in moving], [pair[1] for pair in moving]
        leaves = [self._trunk_values[name] for name in into]
        for total, grad in zip(
            into.values(), torch.autograd.grad(tensors, leaves, directions, allow_unused=True), strict=True
        ):
            if grad is not None:
                total += grad


def _several(output: Any) -> tuple[Tensor, ...]:
    """A stage's output as a tuple, also if it is a single tensor."""
    return (output,) if isinstance(output, Tensor) else output


def _real(features: Tensors) -> tuple[Tensor, ...]:
    """Those that have a derivative (a mask or an index has none)."""
    return tuple(feature for feature in features if feature.is_floating_point())


def _with_real(features: Tensors, real: Tensors) -> tuple[Tensor, ...]:
    """The features, with the real ones among them replaced."""
    replacements = iter(real)
    return tuple(next(replacements) if feature.is_floating_point() else feature for feature in features)


def _used_in(module: torch.nn.Module, start: int, stop: int | None) -> set[str]:
    """Names of the parameters of some of a module's stages."""
    used = {id(p) for stage in stages_of(module)[start:stop] for p in stage.parameters()}
    return {name for name, p in module.named_parameters(remove_duplicate=False) if id(p) in used}
