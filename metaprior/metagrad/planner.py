r"""The fastest exact way to compute a meta-gradient inside a memory budget: engine, micro-batch, kept graphs.

All choices are exact; they differ in memory and time alone. The predicted peak is

    what the process holds now  +  vectors of D numbers (counted below)  +  what the network needs for a micro-batch

where the last is measured: the network's gradient and Hessian product are run on fake tensors, which have shapes and no
numbers, for micro-batches of one and two; memory is linear in the size of a micro-batch.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metaprior.inputs import Inputs
from metaprior.metagrad import reference
from metaprior.metagrad.data_loss import (
    Chunk,
    DataLoss,
    HessianProduct,
    KeptGradient,
    Tensors,
    add_gradient,
    forward_over_reverse,
    reverse_over_reverse,
)
from metaprior.metagrad.engines import keeping, mixed, on_disk
from metaprior.metagrad.memory import Memory, bytes_of, footprint, give_back_free_memory, in_use, memory_of, text
from metaprior.metagrad.problem import Engine, Problem
from metaprior.metagrad.reference import checkpointed, unrolled
from metaprior.metagrad.scratch import Folder, free_disk, is_in_memory, scratch_folder
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

ALLOCATOR = 1.25
"""Factor for what the allocator cannot use again of blocks that the network's operations have freed."""
MARGIN = 1.04
"""Factor by which measured peaks of sweeps were above the sum of their parts at most (a prediction must not be low)."""
GRAPHS = 1.18
"""The same for graphs of whole steps, of which large vectors are the most; they are given back at once."""
LAYER = 2
"""Copies of the largest weight that an operation makes (in the order that a convolution needs, and its gradient)."""
FIRST_USE = 80 * 2**20
"""Bytes that torch's operations take when they first run (code, threads), with the buffers for parts of vectors."""
SMALL = 2**21
"""Weights and activations of an example, together, up to which real tensors are quicker than fakes."""
UNFUSED = 1.3
"""Factor of time that elementwise work on whole vectors with a graph costs (a U-Net; it only orders choices)."""
FILE = 1.05
"""Factor of time that a path on disk costs; to read and write is about as fast as to compute iterates again."""
GRADIENT, PRODUCT, KEPT = 3.0, 8.0, 1.5
"""Time in forward passes: of a gradient, of a Hessian product, and what a kept graph saves of both."""
MOMENTS = 4
"""Tensors like theta that a training holds: Adam's two moments, the sum of a meta-batch's gradients, an average."""
SMALL_BATCH = 0.5
"""Share of time that a micro-batch of one costs more than a large one."""


class DoesNotFit(ValueError):
    """Raised if no choice stays inside the budget."""


class LinearBytes(NamedTuple):
    """Bytes as a function of a micro-batch's size: constant + slope * size."""

    constant: float
    slope: float

    def at(self, size: int) -> float:
        """Return the bytes for a micro-batch."""
        return self.constant + self.slope * size


NONE = LinearBytes(0.0, 0.0)


@dataclass(frozen=True)
class NetworkNeeds:
    """Memory of the network's operations beyond the vectors that the sweep holds, by size of micro-batch."""

    features: LinearBytes
    """The trunk's outputs, held for all examples."""
    gradient: LinearBytes
    forward_over_reverse: LinearBytes
    reverse_over_reverse: LinearBytes
    graph: LinearBytes
    """The graph of a micro-batch, where it is kept."""
    trunk: LinearBytes
    """The trunk's backward pass, where it is learned."""


class Way(NamedTuple):
    """A choice as it can be written to a file."""

    engine: str
    micro_batch: int | None


@dataclass(frozen=True)
class Choice:
    """One way to compute the meta-gradient, with its predicted peak and its cost in forward passes for each task."""

    engine: Engine
    micro_batch: int | None
    peak: float
    cost: float
    file: float = 0.0
    """Bytes of the scratch file."""

    @property
    def way(self) -> Way:
        """The choice as it can be written to a file."""
        return Way(self.engine.name, self.micro_batch)


@dataclass(frozen=True)
class Plan:
    """The choice that was made, and all that were considered."""

    choice: Choice
    choices: tuple[Choice, ...]
    budget: float
    problem: Problem
    """The problem with the chosen micro-batch."""

    @property
    def engine(self) -> Engine:
        """The chosen engine."""
        return self.choice.engine


def rows(choices: Sequence[Choice], budget: float, chosen: Choice | None) -> list[dict[str, Any]]:
    """Return a table of every choice, its predicted peak and time, and whether it fits."""
    slowest = max(choice.cost for choice in choices) or 1.0
    return [
        {
            "engine": choice.engine.name,
            "micro_batch": choice.micro_batch or "all",
            "predicted_peak": text(choice.peak),
            "on_disk": text(choice.file) if choice.file else "-",
            "relative_time": choice.cost / slowest,
            "": "<- chosen" if choice is chosen else "" if choice.peak <= budget else "does not fit",
        }
        for choice in choices
    ]


def plan(
    problem: Problem,
    theta: WeightDistribution,
    task: Task,
    memory: Memory,
    *,
    scratch: Folder = None,
    training: bool = False,
    before: Way | None = None,
) -> Plan:
    """Return the fastest choice whose predicted peak stays inside the budget, for tasks of this one's shapes.

    Args:
        problem: What is differentiated; its micro-batch is chosen anew.
        theta: Where.
        task: A task of the largest shapes.
        memory: The budget for the process ("4GiB", or bytes), or a fraction of what is free.
        scratch: The folder of scratch files, for choices that keep their path on disk.
        training: Whether to leave room for what a training of theta holds besides (``MOMENTS``).
        before: An earlier choice, which is made again if it still fits: all choices are exact but not bitwise
            identical, and what is free changes from start to start.

    Raises:
        DoesNotFit: If no choice stays inside the budget.
    """
    budget = bytes_of(memory, device=theta.mu.device)
    give_back_free_memory()
    choices = tuple(predict(problem, theta, task, scratch=scratch, training=training))
    best = choose(choices, budget, before)
    folder = scratch_folder(scratch)
    if best.file and is_in_memory(folder):
        warnings.warn(
            f"the scratch folder {folder} lies in memory (tmpfs): {text(best.file)} of files there are not counted in "
            "the budget. Another folder (scratch=, --scratch) keeps them on a disk",
            stacklevel=2,
        )
    return Plan(best, choices, budget, replace(problem, micro_batch=best.micro_batch))


def choose(choices: Sequence[Choice], budget: float, before: Way | None = None) -> Choice:
    """Return the choice of ``before`` if it fits, or else the fastest that fits, and of these the smallest."""
    fitting = [choice for choice in choices if choice.peak <= budget]
    if not fitting:
        least = min(choices, key=lambda choice: choice.peak)
        raise DoesNotFit(
            f"nothing fits in {text(budget)}: the smallest possible is {text(least.peak)} ({describe(least)}), with "
            "what the process holds already. Smaller frames or fewer random weights help"
            + ("" if least.file else ", and more room for a scratch file, or fewer inner steps")
        )
    return min(fitting, key=lambda choice: (choice.way != before, choice.cost, choice.peak))


def predict(
    problem: Problem, theta: WeightDistribution, task: Task, *, scratch: Folder = None, training: bool = False
) -> list[Choice]:
    """Return every choice with its predicted peak, for one task at a time; arguments are those of ``plan``.

    Choices whose scratch file has no room on the disk are left out.
    """
    problem.check_theta(theta)
    folder = scratch_folder(scratch)
    if scratch is not None and not folder.is_dir():
        raise ValueError(f"scratch must be a folder that exists, got {str(folder)!r}")
    device = theta.mu.device
    before, first_use = _held(device), FIRST_USE if device.type == "cpu" else 0
    needs, by_graph = measure(problem, theta, task), _choices_by_graph(problem, theta, task)
    # Fakes leave loaded modules behind in the process; real runs leave blocks that the next run will use again.
    held = first_use + (_held(device) if is_large(problem, theta, task) else before)
    held += MOMENTS * sum(tensor.nbytes for tensor in theta.tensors()) if training else 0
    steps, by_sweep = problem.inner.steps, []
    count = task.support.size
    kept = sorted({0, steps, *(2**power for power in range(steps.bit_length()) if 2**power < steps)})  # 0, 1, 2, 4, ...
    in_file = on_disk(scratch)
    file = in_file.scratch_bytes(problem, theta)
    has_room = file <= free_disk(scratch)
    for size in sorted({min(2**power, count) for power in range(count.bit_length() + 1)}):  # 1, 2, 4, ... and all
        job = _SweepNeeds(problem, theta, task, needs, size)
        by_sweep.append(Choice(mixed, size, job.peak(needs.forward_over_reverse), job.cost() + steps))
        for keep in kept:
            by_sweep.append(Choice(keeping(keep), size, job.peak(needs.reverse_over_reverse, keep), job.cost(keep)))
        if has_room:
            peak = job.peak_on_disk(needs.reverse_over_reverse)
            by_sweep.append(Choice(in_file, size, peak, FILE * job.cost(), file))
    return [replace(choice, peak=held + choice.peak) for choice in (*by_graph, *by_sweep)]


def _held(device: torch.device) -> float:
    """Return the bytes that are in use before: of the whole process, on a GPU of its tensors alone."""
    return in_use() if device.type == "cpu" else memory_of(device).in_use


class _SweepNeeds(NamedTuple):
    """Time and memory of a sweep with a given micro-batch."""

    problem: Problem
    theta: WeightDistribution
    task: Task
    needs: NetworkNeeds
    size: int

    def cost(self, keep: int = 0) -> float:
        """Return the time in forward passes of the support set; small micro-batches use a processor less well.

        (A layer's backward pass costs two forward ones, and differentiating both about twice that.)
        """
        steps = self.problem.inner.steps
        passes = steps * (GRADIENT + PRODUCT) - min(keep, steps) * KEPT
        return self.problem.inner.samples * passes * (1 + SMALL_BATCH / self.size)

    def peak(self, product: LinearBytes, keep: int = 0) -> float:
        """Return the largest need: of the outer loss, the first product with and without a kept graph, the trunk."""
        needs, vector, inner = self.needs, self._vector(), self.problem.inner
        steps, keep = inner.steps, min(keep, inner.steps)
        velocity = 2 if inner.momentum else 0
        factors = self.problem.objective.weights(max(1, self.task.support.size), self.task.query.size)
        pulled = 2 if factors.kl or factors.hyperprior else 0
        # Lambda, its cotangent, velocity, theta's cotangent; phi and g.
        outer = (4 + velocity + pulled + 2) * vector
        pulled = 2 if inner.kl_weight and steps > 1 else pulled  # from the second step back on
        # Lambda, cotangents, velocities; phi, u and h; with several samples the sums over them.
        inside = (4 + 2 * velocity + pulled + 3 + (2 if inner.samples > 1 else 0)) * vector
        phases = [self._path(steps, keep) + outer + self._network(needs.gradient), 4 * vector + self._trunk()]
        if keep:
            again = self._network(product) - ALLOCATOR * needs.graph.at(self.size)
            phases.append(self._path(steps, keep) + inside - vector + again)
        if keep < steps:
            phases.append(self._path(steps - keep, 0) + inside + self._network(product))
        kept_trunk = ALLOCATOR * needs.trunk.slope * self._examples() if keep else 0.0
        return MARGIN * (self._features() + kept_trunk + max(phases))

    def peak_on_disk(self, product: LinearBytes) -> float:
        """Return the largest need where path and cotangents are in a file, and so are the module's own weights."""
        vector, needs = self._vector(), self.needs
        module = sum(parameter.nbytes for parameter in self.problem.network.module.parameters())
        outer, inside = 2 * vector + self._network(needs.gradient), 3 * vector + self._network(product)
        result = 2 * vector + self._trunk()
        return MARGIN * (self._features() + max(max(outer, inside, result) - module, 2 * vector))

    def _network(self, needs: LinearBytes) -> float:
        """Return the bytes of an operation of the network on a micro-batch."""
        layout = self.problem.network.layout
        return ALLOCATOR * needs.at(self.size) + LAYER * max(layout.sizes) * self.theta.mu.element_size()

    def _trunk(self) -> float:
        return ALLOCATOR * self.needs.trunk.at(self.size)

    def _examples(self) -> int:
        return self.task.support.size + self.task.query.size

    def _features(self) -> float:
        """Return the bytes of the trunk's outputs, and of the derivatives by what does not move."""
        return ALLOCATOR * self.needs.features.slope * self._examples() + self.needs.features.constant

    def _vector(self) -> float:
        """Return the bytes of D numbers and of the adapted plain ones."""
        plain = sum(self.theta.plain[name].numel() for name in self.problem.adapted_names)
        return float((self.theta.mu.numel() + plain) * self.theta.mu.element_size())

    def _path(self, steps: int, keep: int) -> float:
        """Return the bytes of one gradient for each step (two with several samples), and of what is kept."""
        inner, support = self.problem.inner, self.task.support.size
        gradients = steps * (1 if inner.samples == 1 else 2)
        kept = keep * (2 + inner.samples + (2 if inner.momentum else 0))  # state, phi, velocity
        chunks, rest = divmod(support, self.size)
        graphs = chunks * self.needs.graph.at(self.size) + (self.needs.graph.at(rest) if rest else 0)
        return (gradients + kept) * self._vector() + ALLOCATOR * keep * inner.samples * graphs


def _choices_by_graph(problem: Problem, theta: WeightDistribution, task: Task) -> list[Choice]:
    """Return the choices that hold graphs of whole steps; ``unrolled`` grows by the same amount with every step."""
    steps, vector = problem.inner.steps, theta.mu.numel() * theta.mu.element_size()

    def unroll(named: dict[str, Tensor], task: Task, count: int, outer: bool) -> Any:
        leaves = reference.leaves_of(WeightDistribution.from_named(named))
        iterate = reference.start(problem, leaves)
        for _ in range(count):
            iterate, _terms = reference.step(problem, iterate, leaves, task.support, Noise())
        if not outer:
            return iterate
        adapted = reference.distribution(iterate.lambda_, leaves)
        return reference.gradient_of(reference.outer_loss(problem, adapted, leaves, task, Noise()).total, leaves)

    with torch.enable_grad():
        fake = is_large(problem, theta, task)
        none, one, two = (footprint(unroll, theta.named(), task, count, True, fake=fake).peak for count in range(3))
        step = footprint(unroll, theta.named(), task, 1, False, fake=fake)
    passes = steps * problem.inner.samples * UNFUSED
    single = (2 * steps + 6) * vector + max(2 * step.peak - step.kept, none)
    return [
        Choice(unrolled, None, GRAPHS * (one + (steps - 1) * (two - one)), 9 * passes),
        Choice(checkpointed, None, GRAPHS * single, 12 * passes),
    ]


def measure(problem: Problem, theta: WeightDistribution, task: Task) -> NetworkNeeds:
    """Return the network's needs, from micro-batches of one and of two examples."""
    whole, fake = replace(problem, micro_batch=None), is_large(problem, theta, task)
    vector, first = theta.mu.numel() * theta.mu.element_size(), torch.zeros(1, dtype=torch.long)

    def linear(
        work: Callable[[DataLoss, list[Tensor]], Any], part: str = "peak", less: LinearBytes = NONE
    ) -> LinearBytes:
        def run(named: dict[str, Tensor], x: Inputs, y: Tensor) -> Any:
            theta = WeightDistribution.from_named(named)
            examples = Examples(x, y)
            data = DataLoss(whole, theta, Task(examples, examples.first(0)))
            return work(data, data.point(theta.mu, theta.plain))

        one, two = (
            float(getattr(footprint(run, theta.named(), *task.support.rows(first.repeat(count)), fake=fake), part))
            for count in (1, 2)  # the first row once and twice: only shapes matter
        )
        return LinearBytes(2 * one - two - less.constant, two - one - less.slope)

    def product(kind: HessianProduct) -> Callable[[DataLoss, list[Tensor]], None]:
        def work(data: DataLoss, point: list[Tensor]) -> None:
            chunk = next(data.chunks("support"))
            fixed = data.fixed_views(data.fixed_cotangent(), "support", chunk)
            kind(chunk, point, point, [torch.zeros_like(tensor) for tensor in point], fixed)

        return work

    def gradient(chunk: Chunk, adapted: Tensors, direction: Tensors, into: Tensors, into_fixed: Tensors) -> None:
        add_gradient(chunk, adapted, 1.0, into, into_fixed)

    features = trunk = NONE
    if problem.trunk_stages:
        features = linear(lambda data, point: (data, data.fixed_cotangent()), "kept")
        trunk = linear(lambda data, point: data.pull_back_trunk(data.fixed_cotangent()), less=features)
    held = LinearBytes(features.constant + vector, features.slope)  # what the sweep counts itself
    return NetworkNeeds(
        features=features,
        gradient=linear(product(gradient), less=held),
        forward_over_reverse=linear(product(forward_over_reverse), less=held),
        reverse_over_reverse=linear(product(reverse_over_reverse), less=held),
        graph=linear(lambda data, point: KeptGradient(next(data.chunks("support")), point), "kept"),
        trunk=trunk,
    )


def is_large(problem: Problem, theta: WeightDistribution, task: Task) -> bool:
    """Return whether running a few examples takes longer than running fakes of them."""
    return len(theta.mu) + problem.network.numbers_per_observation(theta, task.support.x) > SMALL


def describe(choice: Choice) -> str:
    """Return a choice in words."""
    rows = "all examples" if choice.micro_batch is None else f"micro-batches of {choice.micro_batch}"
    return f"{choice.engine.name}, {rows}"
