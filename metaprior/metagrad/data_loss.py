r"""The network's side of a meta-gradient: the data loss in weight space, its gradient and its Hessian products.

The loss $\ell(a, f)$ is a function of a point a, a list of tensors: the random weights' tensors (pieces of phi), then
the adapted plain ones. What else it depends on does not move in the inner loop and is **fixed** (f): plain parameters
that are only meta-learned, and the trunk's outputs, if the trunk is meta-learned. For a direction u in the space of a,
Hessian products are $\nabla^2_{aa}\ell\,u$ and $\nabla^2_{fa}\ell\,u$: both are derivatives of $\nabla\ell$ along u,
because second derivatives commute. Examples are worked on in micro-batches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import grad, jvp

from metaprior.inputs import axes_of, map_parts, parts_of, rebuilt, rows_of, size_of, split
from metaprior.metagrad.bilinear import LeanLayers, WeightUse
from metaprior.metagrad.problem import Problem
from metaprior.network import Chain, stages_of
from metaprior.tasks.task import Task
from metaprior.weights import WeightDistribution

Tensors = Sequence[Tensor]


class Rows(NamedTuple):
    """Examples as the head takes them: the trunk's outputs (or the inputs) and targets."""

    features: tuple[Tensor, ...]
    form: Any
    """The form in which the head takes them: one tensor, a tuple or a dictionary."""
    y: Tensor


@dataclass(frozen=True)
class Chunk:
    """A micro-batch: its losses as a function of (adapted, fixed), and the values of the fixed tensors."""

    losses: Callable[[Tensors, Tensors], Tensor]
    """One loss for each observation, shape (..., n)."""
    fixed: list[Tensor]
    window: tuple[slice, ...]
    """The rows of the features that it holds."""
    vectorised: bool = False
    """Whether the losses are those of a stack of tasks."""

    def loss(self, adapted: Tensors, fixed: Tensors) -> Tensor:
        """Return the loss, summed over observations."""
        return self.losses(adapted, fixed).sum(-1)


@dataclass
class FixedCotangent:
    """Derivatives by what does not move: plain parameters of head and trunk by name, features by set of examples.

    The trunk is the same for all tasks of a stack, and its derivative the sum over them.
    """

    head: dict[str, Tensor]
    trunk: dict[str, Tensor]
    features: dict[str, tuple[Tensor, ...]]

    def by_name(self, stack: tuple[int, ...]) -> dict[str, Tensor]:
        """Return the derivative by every plain parameter; in a stack, rows of trunk parameters are means over tasks."""
        rows = {name: (t / stack[0]).expand(*stack, *t.shape) if stack else t for name, t in self.trunk.items()}
        shared = {name: self.head[name] + row for name, row in rows.items() if name in self.head}
        return {**self.head, **rows, **shared}


class DataLoss:
    r"""$\sum_n -\log p(y_n | \phi, \text{plain})$ for one task or (``tasks`` > 0) for a stack of them, one number each.

    The trunk (the stages in front of everything that is adapted) is run once, here: without a graph, or with one that
    is used at the end (``keep_trunk``, which takes memory).
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
        self._axes = {name: parameter.ndim for name, parameter in self.network.module.named_parameters()}
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
        """Return the number of observations (of each task)."""
        axis, examples = len(self.stack), self._examples[part]
        *inputs, targets = (shape[axis] for shape in examples.shapes)
        if any(size != targets for size in inputs):
            raise ValueError(f"the {part} set has {', '.join(map(str, inputs))} inputs and {targets} targets")
        return targets

    def point(self, phi: Tensor, plain: Mapping[str, Tensor]) -> list[Tensor]:
        """Return views of phi (..., D) in the random tensors' shapes, then the adapted plain tensors."""
        layout, lead = self.network.layout, phi.shape[:-1]
        pieces = zip(phi.split(layout.sizes, -1), layout.shapes, strict=True)
        return [
            *(piece.view((*lead, *shape)) for piece, shape in pieces),
            *(plain[name] for name in self.adapted_names),
        ]

    def _of_stack(self, name: str) -> Tensor:
        """Return a plain tensor with a row for each task of a stack.

        Tasks share it, unless theta has one axis more than the network's parameter: then each has a row of its own.
        """
        value = self._plain[name]
        own = bool(self.stack) and value.ndim > self._axes.get(name, value.ndim)
        return value if own else value.expand((*self.stack, *value.shape))

    def fixed_cotangent(self) -> FixedCotangent:
        """Return zeros for every fixed tensor that is learned."""
        head = {name: torch.zeros_like(self._of_stack(name)) for name in self.fixed_names}
        trunk = {name: torch.zeros_like(self._plain[name]) for name in self.trunk_names}
        features = {part: tuple(map(torch.zeros_like, _real(rows.features))) for part, rows in self._rows.items()}
        return FixedCotangent(head, trunk, features if self.trunk_names else {})

    def fixed_views(self, cotangent: FixedCotangent, part: str, chunk: Chunk) -> list[Tensor]:
        """Return the parts of a cotangent that belong to a chunk's fixed tensors."""
        plain = [cotangent.head[name] for name in self.fixed_names]
        return [*plain, *(whole[chunk.window] for whole in cotangent.features.get(part, ()))]

    def chunks(self, part: str) -> Iterator[Chunk]:
        """Iterate over the examples of one set in micro-batches."""
        if part not in self._rows:
            return
        rows = self._rows[part]
        shared = [self._of_stack(name) for name in self.fixed_names]
        count = self.observations(part)
        size = self.problem.micro_batch or count
        for start in range(0, count, size):
            window = (*(slice(None) for _ in self.stack), slice(start, min(start + size, count)))
            features, y = tuple(f[window] for f in rows.features), rows.y[window]
            yield Chunk(
                self._chunk_losses(features, rows.form, y),
                [*shared, *(_real(features) if self.trunk_names else ())],
                window,
                vectorised=bool(self.stack),
            )

    def _chunk_losses(self, features: tuple[Tensor, ...], form: Any, y: Tensor) -> Callable[[Tensors, Tensors], Tensor]:
        count = len(self.fixed_names)

        def nll(adapted: Tensors, fixed: Tensors, features: tuple[Tensor, ...], y: Tensor) -> Tensor:
            pieces = zip((*self.network.layout.names, *self.adapted_names), adapted, strict=True)
            named = {**dict(pieces), **dict(zip(self.fixed_names, fixed, strict=True))}
            outputs = self._run(self._head, named, rebuilt(form, features))
            return self.problem.likelihood.nll(outputs, y, named)

        function: Any = torch.vmap(nll) if self.stack else nll

        def losses(adapted: Tensors, fixed: Tensors) -> Tensor:
            inputs = _with_real(features, fixed[count:]) if self.trunk_names else features
            return function(list(adapted), list(fixed[:count]), inputs, y)  # type: ignore[no-any-return]

        return losses

    def _run(self, part: Chain, named: Mapping[str, Tensor], features: Any) -> Any:
        known = (*self.network.layout.names, *self.network.plain_names)
        own = {name: value for name, value in named.items() if name in known}
        return self.network.run_part(part, own, features)

    def _through_trunk(self, part: str, keep: bool) -> Rows:
        """Return the examples with the trunk's outputs for inputs."""
        examples = self._examples[part]
        if not self.problem.trunk_stages:
            return Rows(parts_of(examples.x), axes_of(examples.x), examples.y)
        flat = self._flat(examples.x)
        with torch.set_grad_enabled(keep):
            outputs = [
                self._run(self._trunk, self._trunk_values, x)
                for x in split(flat, self.problem.micro_batch or size_of(flat))
            ]
        if keep:
            self._kept_trunk[part] = outputs
        lead = examples.y.shape[: len(self.stack) + 1]
        features = [torch.cat(own).detach().unflatten(0, lead) for own in zip(*map(parts_of, outputs), strict=True)]
        return Rows(tuple(features), axes_of(outputs[0]), examples.y)

    def _flat(self, x: Any) -> Any:
        """Return x with tasks and observations on one axis: the trunk is the same for all tasks of a stack."""
        return map_parts(lambda part: part.flatten(0, len(self.stack)), x)

    def pull_back_trunk(self, cotangent: FixedCotangent) -> None:
        """Add to the trunk's cotangent in micro-batches, by its kept graph or by running it once more."""
        for part, features in cotangent.features.items():
            kept = self._kept_trunk.pop(part, [])
            x, along = self._flat(self._examples[part].x), self._flat(features)
            size = self.problem.micro_batch or size_of(x)
            for start in range(0, size_of(x), size):
                rows = slice(start, start + size)
                with torch.enable_grad():
                    outputs = kept.pop(0) if kept else self._run(self._trunk, self._trunk_values, rows_of(x, rows))
                self._pull_back_rows(_real(parts_of(outputs)), [f[rows] for f in along], cotangent.trunk)
                del outputs

    def _pull_back_rows(self, outputs: Tensors, along: Tensors, into: dict[str, Tensor]) -> None:
        moving = [(output, v) for output, v in zip(outputs, along, strict=True) if output.requires_grad]
        tensors, directions = [pair[0] for pair in moving], [pair[1] for pair in moving]
        leaves = [self._trunk_values[name] for name in into]
        grads = torch.autograd.grad(tensors, leaves, directions, allow_unused=True)
        for total, own in zip(into.values(), grads, strict=True):
            if own is not None:
                total += own


def _real(features: Tensors) -> tuple[Tensor, ...]:
    """Return the features that have a derivative (a mask or an index has none)."""
    return tuple(feature for feature in features if feature.is_floating_point())


def _with_real(features: Tensors, real: Tensors) -> tuple[Tensor, ...]:
    """Return the features with the real ones among them replaced."""
    replacements = iter(real)
    return tuple(next(replacements) if feature.is_floating_point() else feature for feature in features)


def _used_in(module: torch.nn.Module, start: int, stop: int | None) -> set[str]:
    """Return the names of the parameters of some of a module's stages."""
    used = {id(p) for stage in stages_of(module)[start:stop] for p in stage.parameters()}
    return {name for name, p in module.named_parameters(remove_duplicate=False) if id(p) in used}


# --- gradients and Hessian products of a chunk ------------------------------------------------------------------------


class HessianProduct(Protocol):
    """A way to multiply a vector with the Hessian of a chunk's loss."""

    def __call__(self, chunk: Chunk, adapted: Tensors, direction: Tensors, into: Tensors, into_fixed: Tensors) -> None:
        """Add the Hessian at ``adapted`` times ``direction`` to ``into``, and its fixed part to ``into_fixed``."""


def forward_over_reverse(
    chunk: Chunk, adapted: Tensors, direction: Tensors, into: Tensors, into_fixed: Tensors
) -> None:
    """Differentiate the gradient (reverse mode) along u by forward mode (Pearlmutter 1994). Exact."""

    def gradient(point: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return grad(lambda a, f: chunk.loss(a, f).sum(), argnums=(0, 1))(point, list(chunk.fixed))  # type: ignore[no-any-return]

    products, fixed = jvp(gradient, (list(adapted),), (list(direction),))[1]
    _add([*products, *fixed], [*into, *into_fixed])


def reverse_over_reverse(
    chunk: Chunk, adapted: Tensors, direction: Tensors, into: Tensors, into_fixed: Tensors
) -> None:
    """Differentiate the inner product of the gradient and u, both by reverse mode. Exact."""
    KeptGradient(chunk, adapted).add_product(direction, into, into_fixed)


class KeptGradient:
    """The graph of a gradient, without its numbers: one Hessian product without a second forward pass."""

    def __init__(self, chunk: Chunk, adapted: Tensors, factor: float = 1.0, into: Tensors | None = None) -> None:
        """Compute the gradient with its graph, and add factor times the gradient to ``into``."""
        self._adapted = [tensor.detach().requires_grad_() for tensor in adapted]
        self._fixed = [tensor.detach().requires_grad_() for tensor in chunk.fixed]
        adapted_uses = [WeightUse(differentiated=True, read=into is not None) for _ in adapted]
        self._uses = [*adapted_uses, *(WeightUse(differentiated=False, read=False) for _ in chunk.fixed)]
        uses = {} if chunk.vectorised else dict(zip((*self._adapted, *self._fixed), self._uses, strict=True))
        with torch.enable_grad():
            with LeanLayers(uses):
                loss = chunk.loss(self._adapted, self._fixed)
            gradient = torch.autograd.grad(loss.sum(), self._adapted, create_graph=True, materialize_grads=True)
        self.loss = loss.detach()
        self._edges = [get_gradient_edge(g) if g.requires_grad else None for g in gradient]
        if into is not None:
            _add([g.detach() for g in gradient], into, factor)

    def add_product(self, direction: Tensors, into: Tensors, into_fixed: Tensors) -> None:
        """Add the product; the graph is freed."""
        edges = [edge for edge in self._edges if edge is not None]  # none: a loss that is linear in everything
        along = [u for u, edge in zip(direction, self._edges, strict=True) if edge is not None]
        self._edges = []
        for use, target in zip(self._uses, (*into, *into_fixed), strict=True):
            use.into = target
        if edges:
            _backward_into(edges, along, [*self._adapted, *self._fixed], [*into, *into_fixed])


def central_difference(chunk: Chunk, adapted: Tensors, direction: Tensors, into: Tensors, into_fixed: Tensors) -> None:
    r"""Add $\big(\nabla\ell(a + \delta u) - \nabla\ell(a - \delta u)\big) / 2\delta$. **Approximate**.

    $\delta = \sqrt[3]{\varepsilon}\,(1 + \|a\|) / \|u\|$ balances the error of truncation against that of rounding.
    The relative error is about $\varepsilon^{2/3}$ on smooth networks (4e-11 in float64, 2e-5 in float32, times how
    fast the curvature changes), and much larger where a ReLU switches between the two points.
    """
    size = torch.stack([u.norm() for u in direction]).norm()
    reach = 1 + torch.stack([a.norm() for a in adapted]).norm()
    delta = float(torch.finfo(size.dtype).eps ** (1 / 3) * reach / size) if 0 < size < torch.inf else 1.0
    for sign in (1.0, -1.0):
        moved = [a + sign * delta * u for a, u in zip(adapted, direction, strict=True)]
        add_gradient(chunk, moved, sign / (2 * delta), into, into_fixed)


def add_gradient(
    chunk: Chunk, adapted: Tensors, factor: float | Tensor, into: Tensors, into_fixed: Tensors | None = None
) -> Tensor:
    """Add factor times the gradient by the adapted tensors (and by the fixed ones) in place, and return the loss.

    The factor is one number, or one for each observation.
    """
    leaves = [tensor.detach().requires_grad_() for tensor in adapted]
    fixed = [tensor.detach().requires_grad_(into_fixed is not None) for tensor in chunk.fixed]
    with torch.enable_grad():
        losses = chunk.losses(leaves, fixed)
    along = [torch.full_like(losses, factor) if isinstance(factor, float) else factor]
    if into_fixed is None:
        _backward_into([losses], along, leaves, into)
    else:
        _backward_into([losses], along, [*leaves, *fixed], [*into, *into_fixed])
    return losses.detach().sum(-1)


def _backward_into(outputs: Tensors | Sequence[GradientEdge], along: Tensors, leaves: Tensors, into: Tensors) -> None:
    """Run reverse mode and add the result to ``into``, tensor by tensor where the layout allows."""
    if not all(tensor.is_contiguous() for tensor in (*leaves, *into)):  # a stack of tasks
        _add(torch.autograd.grad(outputs, leaves, along, materialize_grads=True), into)
        return
    for leaf, target in zip(leaves, into, strict=True):
        leaf.grad = target
    torch.autograd.backward(outputs, along, inputs=leaves)
    if any(leaf.grad is not target for leaf, target in zip(leaves, into, strict=True)):
        raise AssertionError("autograd replaced a gradient buffer in place of adding to it")


def _add(values: Tensors, into: Tensors, factor: float = 1.0) -> None:
    for value, target in zip(values, into, strict=True):
        target.add_(value, alpha=factor)
