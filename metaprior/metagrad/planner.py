r"""Which engine, how large a micro-batch, how many graphs: the fastest choice that fits a memory budget.

All choices are exact; they differ in memory and time alone. The predicted peak is

    what the process holds now  +  vectors of D numbers (counted below)  +  what the network needs for a micro-batch

where the last comes from the network itself: its gradient and Hessian product are run on fake tensors, which have
shapes and no numbers, for micro-batches of one and two; memory is linear in between and beyond.
"""

import ctypes
import os
import re
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metaprior.metagrad import reference
from metaprior.metagrad.checkpointed import checkpointed
from metaprior.metagrad.data_loss import DataLoss
from metaprior.metagrad.live_bytes import footprint
from metaprior.metagrad.mixed import mixed
from metaprior.metagrad.problem import Engine, Problem
from metaprior.metagrad.products import (
    HessianProduct,
    KeptGradient,
    add_gradient,
    forward_over_reverse,
    reverse_over_reverse,
)
from metaprior.metagrad.twice_reverse import keeping
from metaprior.metagrad.unrolled import unrolled
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
ALLOCATOR = 1.25
"""Freed blocks that the allocator cannot hand out again, and scratch space inside operations."""

FIRST_USE = 64 * 2**20
"""What torch loads into a process when its operations first run (a small U-Net peaked 70 MiB above the count)."""
SMALL = 2**21
"""Weights and activations of an example, together, up to which the network is run on real tensors."""
UNFUSED = 1.3
"""What elementwise work in whole vectors, with a graph, adds to the time (on a U-Net; it only orders choices)."""

Memory = str | int | float
"""A budget for the whole process ("4GiB", or bytes), or a fraction of what is free (0.5)."""


class DoesNotFit(ValueError):
    """No choice stays inside the budget."""


class Line(NamedTuple):
    """Bytes as a function of a micro-batch's size: constant + slope * size."""

    constant: float
    slope: float

    def at(self, size: int) -> float:
        """Bytes for a micro-batch."""
        return self.constant + self.slope * size


NONE = Line(0.0, 0.0)


@dataclass(frozen=True)
class NetworkNeeds:
    """What the network's operations need beyond the vectors that the sweep holds itself, by size of micro-batch."""

    features: Line
    """Outputs of the trunk, held for all examples; none without a trunk."""
    gradient: Line
    forward_over_reverse: Line
    reverse_over_reverse: Line
    graph: Line
    """Held for a micro-batch whose graph is kept."""
    trunk: Line
    """To run the trunk backward, where it is learned."""


class Way(NamedTuple):
    """A choice by its names, as it can be written down."""

    engine: str
    micro_batch: int | None


@dataclass(frozen=True)
class Choice:
    """One way to compute the meta-gradient, with its predicted peak and its cost in forward passes for each task."""

    engine: Engine
    micro_batch: int | None
    peak: float
    cost: float

    @property
    def way(self) -> Way:
        """Its names."""
        return Way(self.engine.name, self.micro_batch)


@dataclass(frozen=True)
class Plan:
    """The chosen way, and all that were considered."""

    choice: Choice
    choices: tuple[Choice, ...]
    budget: float
    problem: Problem
    """With the chosen micro-batch."""

    @property
    def engine(self) -> Engine:
        """The chosen engine."""
        return self.choice.engine


def rows(choices: Sequence[Choice], budget: float, chosen: Choice | None) -> list[dict[str, Any]]:
    """A table for people: every choice, its predicted peak and time, and whether it fits."""
    slowest = max(choice.cost for choice in choices) or 1.0
    return [
        {
            "engine": choice.engine.name,
            "micro_batch": choice.micro_batch or "all",
            "predicted_peak": text(choice.peak),
            "relative_time": choice.cost / slowest,
            "": "<- chosen" if choice is chosen else "" if choice.peak <= budget else "does not fit",
        }
        for choice in choices
    ]


def plan(problem: Problem, theta: WeightDistribution, task: Task, memory: Memory, *, before: Way | None = None) -> Plan:
    """The fastest exact choice whose predicted peak stays inside the budget, for tasks of this one's shapes.

    ``before``: an earlier choice, which is taken again if it still fits. All are exact, but not the same to the last
    bit, and what is free changes from start to start.
    """
    budget = bytes_of(memory)
    give_back_free_memory()
    choices = tuple(predict(problem, theta, task))
    best = choose(choices, budget, before)
    return Plan(best, choices, budget, replace(problem, micro_batch=best.micro_batch))


def choose(choices: Sequence[Choice], budget: float, before: Way | None = None) -> Choice:
    """The one of ``before`` if it fits; else the fastest that fits, and of these the smallest."""
    fitting = [choice for choice in choices if choice.peak <= budget]
    if not fitting:
        least = min(choices, key=lambda choice: choice.peak)
        raise DoesNotFit(
            f"nothing fits in {text(budget)}: the smallest possible is {text(least.peak)} ({describe(least)}); "
            f"the process holds {text(in_use())} already. Fewer inner steps, smaller frames, fewer random weights help"
        )
    return min(fitting, key=lambda choice: (choice.way != before, choice.cost, choice.peak))


def predict(problem: Problem, theta: WeightDistribution, task: Task) -> list[Choice]:
    """Every choice with its predicted peak, for one task at a time."""
    problem.check_theta(theta)
    if theta.mu.device.type != "cpu":
        raise ValueError(
            f"the planner predicts the memory of a process, and theta is on {theta.mu.device}; choose the engine"
        )
    before = in_use()
    needs, by_graph = measure(problem, theta, task), _choices_by_graph(problem, theta, task)
    # Fakes leave their machinery behind in the process; real runs leave blocks that the next run will use again.
    held = in_use() if is_large(problem, theta, task) else before + FIRST_USE
    steps, by_sweep = problem.inner.steps, []
    for size in _micro_batches(task.support.size):
        job = _Job(problem, theta, task, needs, size)
        by_sweep.append(Choice(mixed, size, job.peak(needs.forward_over_reverse), job.cost() + steps))
        for keep in _kept(steps):
            by_sweep.append(Choice(keeping(keep), size, job.peak(needs.reverse_over_reverse, keep), job.cost(keep)))
    return [replace(choice, peak=held + choice.peak) for choice in (*by_graph, *by_sweep)]


def _micro_batches(count: int) -> list[int]:
    """1, 2, 4, ... and all."""
    return sorted({min(2**power, count) for power in range(count.bit_length() + 1)})


def _kept(steps: int) -> list[int]:
    """0, 1, 2, 4, ... and all."""
    return sorted({0, steps, *(2**power for power in range(steps.bit_length()) if 2**power < steps)})


class _Job(NamedTuple):
    """A sweep with a given micro-batch."""

    problem: Problem
    theta: WeightDistribution
    task: Task
    needs: NetworkNeeds
    size: int

    def cost(self, keep: int = 0) -> float:
        """Time in forward passes of the support set: gradient 3, product of a kept graph 6, of one made again 9.

        (A layer's backward pass costs two forward ones, and differentiating both twice that.) Small micro-batches fill
        a processor less well.
        """
        return self.problem.inner.samples * (self.problem.inner.steps * 12 - keep * 3) * (1 + 0.2 / self.size)

    def peak(self, product: Line, keep: int = 0) -> float:
        """The most of: the outer loss; the first product by a kept graph; the first of one made again; the trunk."""
        steps, size, needs = self.problem.inner.steps, self.size, self.needs
        keep = min(keep, steps)
        phases = [
            self._path(steps, keep) + self._outer_vectors() + needs.gradient.at(size),
            4 * self._vector() + needs.trunk.at(size),
        ]
        if keep:
            again = product.at(size) - needs.graph.at(size)
            phases.append(self._path(steps, keep) + self._product_vectors() - self._vector() + again)
        if keep < steps:
            phases.append(self._path(steps - keep, 0) + self._product_vectors() + product.at(size))
        trunk = needs.trunk.slope * (self.task.support.size + self.task.query.size) if keep else 0.0
        return ALLOCATOR * (self._features() + trunk + max(phases))

    def _vector(self) -> float:
        """Bytes of D numbers, and of the adapted plain ones."""
        plain = sum(self.theta.plain[name].numel() for name in self.problem.adapted_names)
        return float((self.theta.mu.numel() + plain) * self.theta.mu.element_size())

    def _features(self) -> float:
        examples = self.task.support.size + self.task.query.size
        return self.needs.features.slope * examples

    def _path(self, steps: int, keep: int) -> float:
        """One gradient for each step (two with several samples), and more where a graph is kept."""
        inner, support = self.problem.inner, self.task.support.size
        gradients = steps * (1 if inner.samples == 1 else 2)
        kept = keep * (2 + 2 * inner.samples + (2 if inner.momentum else 0))  # state, velocity; phi and noise
        chunks, rest = divmod(support, self.size)
        graphs = chunks * self.needs.graph.at(self.size) + (self.needs.graph.at(rest) if rest else 0)
        return (gradients + kept) * self._vector() + keep * inner.samples * graphs

    def _outer_vectors(self) -> float:
        """lambda, its cotangent, velocity; theta's cotangent if there is a KL; phi, g, noise."""
        factors = self.problem.objective.weights(self.task.support.size, self.task.query.size)
        count = 4 + 3 + (2 if self.problem.inner.momentum else 0) + (2 if factors.kl or factors.hyperprior else 0)
        return count * self._vector()

    def _product_vectors(self) -> float:
        """lambda, its cotangent, velocities; theta's cotangent less the path's last gradient; phi, u, h, e."""
        inner = self.problem.inner
        count = 4 + 1 + 3 + (4 if inner.momentum else 0) + (2 if inner.samples > 1 else 0)
        return count * self._vector()


def _choices_by_graph(problem: Problem, theta: WeightDistribution, task: Task) -> list[Choice]:
    """The engines that hold graphs of whole steps; ``unrolled`` grows by the same amount from each step to the next."""
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
        Choice(unrolled, None, ALLOCATOR * (one + (steps - 1) * (two - one)), 9 * passes),
        Choice(checkpointed, None, ALLOCATOR * single, 12 * passes),
    ]


def measure(problem: Problem, theta: WeightDistribution, task: Task) -> NetworkNeeds:
    """Run the network's part on fake tensors, for micro-batches of one and of two examples."""
    whole, fake = replace(problem, micro_batch=None), is_large(problem, theta, task)
    vector = theta.mu.numel() * theta.mu.element_size()

    def line(work: Callable[[DataLoss, list[Tensor]], Any], part: str = "peak", less: Line = NONE) -> Line:
        def run(named: dict[str, Tensor], x: Tensor, y: Tensor) -> Any:
            theta = WeightDistribution.from_named(named)
            data = DataLoss(whole, theta, Task(Examples(x, y), Examples(x[:0], y[:0])))
            return work(data, data.point(theta.mu, theta.plain))

        one, two = (
            float(getattr(footprint(run, theta.named(), *(_rows(t, count) for t in task.support), fake=fake), part))
            for count in (1, 2)
        )
        return Line(2 * one - two - less.constant, two - one - less.slope)

    def product(kind: HessianProduct) -> Callable[[DataLoss, list[Tensor]], None]:
        def work(data: DataLoss, point: list[Tensor]) -> None:
            chunk = next(iter(data.chunks("support")))
            fixed = data.fixed_views(data.fixed_cotangent(), "support", chunk)
            kind(chunk, point, point, [torch.zeros_like(tensor) for tensor in point], fixed)

        return work

    def gradient(data: DataLoss, point: list[Tensor]) -> None:
        chunk = next(iter(data.chunks("support")))
        fixed = data.fixed_views(data.fixed_cotangent(), "support", chunk)
        add_gradient(chunk, point, 1.0, [torch.zeros_like(tensor) for tensor in point], fixed)

    def graph(data: DataLoss, point: list[Tensor]) -> KeptGradient:
        return KeptGradient(next(iter(data.chunks("support"))), point)

    features = trunk = NONE
    if problem.trunk_stages:
        features = line(lambda data, point: (data, data.fixed_cotangent()), "kept")
        trunk = line(lambda data, point: data.pull_back_trunk(data.fixed_cotangent()), less=features)
    held = Line(features.constant + vector, features.slope)  # what the sweep counts itself
    return NetworkNeeds(
        features=features,
        gradient=line(gradient, less=held),
        forward_over_reverse=line(product(forward_over_reverse), less=held),
        reverse_over_reverse=line(product(reverse_over_reverse), less=held),
        graph=line(graph, "kept"),
        trunk=trunk,
    )


def is_large(problem: Problem, theta: WeightDistribution, task: Task) -> bool:
    """Whether running a few examples takes longer than running fakes of them."""
    return len(theta.mu) + problem.network.numbers_per_observation(theta, task.support.x) > SMALL


def _rows(tensor: Tensor, count: int) -> Tensor:
    """The first row, as often as asked for: only shapes matter."""
    return tensor[:1].expand(count, *tensor.shape[1:]).contiguous()


def bytes_of(memory: Memory, *, processes: int = 1) -> float:
    """A budget in bytes; ``processes`` on one machine share what is free."""
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", memory)
        if match and not match[2] and 0 < float(match[1]) <= 1:
            return bytes_of(float(match[1]), processes=processes)
        if not match or match[2].upper() not in UNITS:
            raise ValueError(
                f"memory={memory!r} is not an amount; write it like '4GiB' or '500MB' ({', '.join(UNITS)})"
            )
        return float(match[1]) * UNITS[match[2].upper()]
    if isinstance(memory, float) and 0 < memory <= 1:
        return in_use() + memory * available() / processes
    if memory <= 1:
        raise ValueError(
            f"memory has to be an amount ('4GiB', bytes) or a fraction of what is free (0.5), got {memory}"
        )
    return float(memory)


def give_back_free_memory() -> None:
    """What the process has freed and the C library keeps: a look at large tasks would leave a gigabyte of it."""
    with suppress(OSError, AttributeError):  # other systems than Linux with glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def in_use() -> float:
    """Bytes that the process holds now (the most that it ever held, where the system does not tell)."""
    statm = FilePath("/proc/self/statm")
    if statm.exists():
        return float(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def available() -> float:
    """Bytes that the process could still take: of the machine, and of its container if there is one."""
    meminfo = FilePath("/proc/meminfo")
    if meminfo.exists():
        found = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())
        free = float(found[1]) * 1024 if found else float("inf")
    else:
        free = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) - in_use()
    limit = FilePath("/sys/fs/cgroup/memory.max")
    if limit.exists() and limit.read_text().strip().isdigit():
        used = FilePath("/sys/fs/cgroup/memory.current")
        free = min(free, float(limit.read_text()) - (float(used.read_text()) if used.exists() else in_use()))
    return free


def text(amount: float) -> str:
    """Bytes for people."""
    return f"{amount / 2**30:.2f} GiB" if amount >= 2**30 else f"{amount / 2**20:.0f} MiB"


def describe(choice: Choice) -> str:
    """A choice in words."""
    rows = "all examples" if choice.micro_batch is None else f"micro-batches of {choice.micro_batch}"
    return f"{choice.engine.name}, {rows}"
