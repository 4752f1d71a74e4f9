r"""Seconds of a meta-step as a function of ranks, network and links; and what it says about machines that are not here.

With $B$ tasks, $N$ ranks, $P$ numbers in the gradients (means, scales, plain ones):

$$T(N) = c\,\lceil B/N \rceil\,t_{task} + c\,t_{rest} + x\,(a + b\,(N-2)) + R(N, 4P\ \mathrm{bytes})$$

$t_{rest}$ is what every rank does alike (division, clipping, AdamW), $c$ how much slower a rank computes beside others
on its machine, $x$ the exchanges of notes in a step. An all-reduce $R$ of $V$ bytes among $g$ ranks that pass parts
around a ring is $2(g-1)\,l + 2\frac{g-1}{g}V/w$, with latency $l$ and bandwidth $w$; with several nodes it is done
within each node, and between the nodes, whose ranks share the network. With one rank only the first two terms are
there, and $c$ is 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchmarks.common.result import Row

FLOAT32 = 4


class Link(NamedTuple):
    """How numbers get from one to the next: seconds, and bytes a second in each direction."""

    latency: float
    bandwidth: float

    def all_reduce(self, ranks: int, size: float) -> float:
        """Seconds to add up ``size`` bytes of each of so many, in a ring."""
        return 2 * (ranks - 1) * self.latency + 2 * (ranks - 1) / ranks * size / self.bandwidth


class Network(NamedTuple):
    """What a step has to compute and to send."""

    task_seconds: float
    rest_seconds: float
    numbers: int


NOTHING_BETWEEN = Link(0.0, math.inf)
"""All ranks are on one node."""


@dataclass(frozen=True)
class Machines:
    """What it runs on. ``between`` is the network of a node, which its ranks share."""

    inside: Link
    exchange: float
    """Seconds of an exchange of notes between two, and"""
    exchange_more: float
    """what every further rank adds."""
    crowding: float = 1.0
    """How many times slower a rank computes while the others do."""
    per_node: int = 1_000_000
    between: Link = NOTHING_BETWEEN
    exchanges: int = 1
    """In a step. ``metaprior train`` has two: it also asks whether anybody pressed Ctrl-C, by as many hops."""
    bytes_per_number: int = FLOAT32

    def all_reduce(self, ranks: int, numbers: int) -> float:
        """Seconds: within nodes, and between them."""
        within, nodes = min(ranks, self.per_node), math.ceil(ranks / self.per_node)
        size = float(numbers * self.bytes_per_number)
        return self.inside.all_reduce(within, size) + self.between.all_reduce(nodes, size)

    def exchange_seconds(self, ranks: int) -> float:
        """Of all exchanges of notes in a step."""
        return self.exchanges * (self.exchange + self.exchange_more * (ranks - 2)) if ranks > 1 else 0.0


class Parts(NamedTuple):
    """Seconds of a step."""

    tasks: float
    rest: float
    exchange: float
    all_reduce: float

    @property
    def total(self) -> float:
        """Of the whole step."""
        return sum(self)


def step_parts(ranks: int, meta_batch: int, network: Network, machines: Machines) -> Parts:
    """The model above."""
    crowding = machines.crowding if ranks > 1 else 1.0
    return Parts(
        crowding * math.ceil(meta_batch / ranks) * network.task_seconds,
        crowding * network.rest_seconds,
        machines.exchange_seconds(ranks),
        machines.all_reduce(ranks, network.numbers),
    )


def efficiency(ranks: int, meta_batch: int, network: Network, machines: Machines) -> float:
    """T(1) / (N T(N)): the share of what so many could do at best."""
    one, many = (step_parts(count, meta_batch, network, machines).total for count in (1, ranks))
    return one / (ranks * many)


def fitted_link(sums: Sequence[tuple[int, float]], numbers: int) -> Link:
    """The link between two by the seconds of sums by their numbers: latency by the fastest, bandwidth by the one whose
    size is next to ``numbers``, which is what has to be sent."""
    fastest = min(seconds for _, seconds in sums)
    slower = [(size, seconds) for size, seconds in sums if seconds > fastest]
    size, seconds = min(slower, key=lambda pair: abs(math.log(pair[0] / numbers)))
    return Link(fastest / 2, FLOAT32 * size / (seconds - fastest))


# --- On paper: nothing below was measured but the operations of a task. ---

GPU_FLOPS = 10e12
"""Assumed: float32 operations a second of one GPU in convolutions (half of what an A100 has without TF32)."""
GPU_START = 10e-6
"""Assumed: seconds to start an operation from Python; a GPU that is waiting for work does nothing else."""
GPU_MEMORY = 1.5e12
"""Assumed: bytes a second of a GPU's memory."""
REST_BYTES, REST_OPERATIONS = 60, 100
"""Bytes moved for every number outside tasks (sum, division, clipping, AdamW), and operations started for all."""
NVLINK = Link(5e-6, 200e9)
"""Assumed, between the GPUs of a node."""
SLOW, FAST = Link(10e-6, 10e9), Link(10e-6, 40e9)
"""Assumed: a node's network of 100 and of 400 Gbit/s, four fifths of which arrive."""
EXCHANGE, EXCHANGE_MORE = 1e-3, 1e-4
"""Assumed: seconds of an exchange of notes between two, by gloo over TCP, and of every further rank (two hops)."""
PER_NODE = 8
RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
META_BATCHES = (8, 128, 1024)

GPUS = Machines(NVLINK, EXCHANGE, EXCHANGE_MORE, per_node=PER_NODE, between=SLOW, exchanges=2)
FAST_GPUS = replace(GPUS, between=FAST)


def gpu_network(flops: float, operations: int, numbers: int) -> Network:
    """A task takes what its arithmetic takes, or what starting its operations takes, whichever is longer."""
    rest = REST_OPERATIONS * GPU_START + REST_BYTES * numbers / GPU_MEMORY
    return Network(max(flops / GPU_FLOPS, operations * GPU_START), rest, numbers)


def paper_rows(name: str, network: Network) -> list[Row]:
    """Efficiency by ranks for several meta-batches and networks of nodes."""
    return [
        {
            "network": name,
            "meta_batch": meta_batch,
            "between nodes": text,
            **{f"N={ranks}": efficiency(ranks, meta_batch, network, machines) for ranks in RANKS},
        }
        for meta_batch in META_BATCHES
        for text, machines in (("100 Gbit/s", GPUS), ("400 Gbit/s", FAST_GPUS))
    ]


def changes(machines: Machines) -> dict[str, Machines]:
    """What helps where it stops scaling; and, because it is the least certain assumption, notes that are slower."""
    hops = math.log2(RANKS[-1])
    one_exchange = machines.exchange + machines.exchange_more * (hops - 1)
    tree = replace(machines, exchange=one_exchange, exchange_more=0.0, exchanges=1)
    return {
        "as it is": machines,
        "gradients sent in bfloat16": replace(machines, bytes_per_number=2),
        "one exchange a step, by a tree": tree,
        "both": replace(tree, bytes_per_number=2),
        "notes ten times slower": replace(machines, exchange=10 * EXCHANGE, exchange_more=10 * EXCHANGE_MORE),
    }


def limit_rows(name: str, network: Network) -> list[Row]:
    """Where the time of a step goes on all ranks with one task each, and with which changes."""
    ranks = RANKS[-1]
    return [
        {
            "network": name,
            "meta_batch": ranks,
            "change": change,
            **{f"{part}_ms": 1e3 * seconds for part, seconds in step_parts(ranks, ranks, network, m)._asdict().items()},
            "efficiency": efficiency(ranks, ranks, network, m),
        }
        for change, m in changes(GPUS).items()
    ]
