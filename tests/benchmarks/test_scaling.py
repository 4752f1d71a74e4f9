from collections.abc import Callable, Sequence

import pytest
import torch

from benchmarks.scaling import BENCHMARK
from benchmarks.scaling import comparison as scaling
from benchmarks.scaling.comparison import by_torchrun
from benchmarks.scaling.model import (
    FAST_GPUS,
    GPUS,
    RANKS,
    Link,
    Machines,
    Network,
    efficiency,
    fitted_link,
    gpu_network,
    limit_rows,
    paper_rows,
    step_parts,
)
from benchmarks.scaling.worker import (
    ALONE,
    CONSTANTS,
    COUNT,
    PARTS,
    SIZES,
    TEAM,
    WATCHED,
    Job,
    Watched,
    constants,
    count,
    held_bytes,
    steps_of_a_team,
)
from metaprior.team import Team
from tests.benchmarks.pretended import CROWDING, EXCHANGE, LINK, NUMBERS, REST, TASK, Machine

TINY = Job(TEAM, width=2, frame=16, k_shot=1, k_query=1, inner_steps=1, meta_batch=2, steps=1)


def test_a_ring_passes_every_number_nearly_twice() -> None:
    link = Link(latency=1.0, bandwidth=100.0)
    assert link.all_reduce(1, 800.0) == 0
    assert link.all_reduce(2, 800.0) == 2 * 1 * 1.0 + 8
    assert link.all_reduce(4, 800.0) == 2 * 3 * 1.0 + 12


def test_nodes_add_up_within_and_then_between() -> None:
    machines = Machines(Link(0.0, 100.0), 0.0, 0.0, per_node=8, between=Link(0.0, 10.0))
    within, between = 2 * 7 / 8 * 4 * 200 / 100, 2 * 1 / 2 * 4 * 200 / 10
    assert machines.all_reduce(8, 200) == pytest.approx(within)
    assert machines.all_reduce(16, 200) == pytest.approx(within + between)
    assert machines.all_reduce(9, 200) == pytest.approx(within + between)  # the second node has one rank


def test_a_step_by_hand() -> None:
    machines = Machines(Link(0.0, 100.0), exchange=0.5, exchange_more=0.1, crowding=2.0, exchanges=3)
    network = Network(task_seconds=1.0, rest_seconds=0.25, numbers=50)
    assert step_parts(1, 8, network, machines) == (8.0, 0.25, 0.0, 0.0)  # nobody beside it, nothing to send
    parts = step_parts(3, 8, network, machines)
    assert parts == pytest.approx((2 * 3 * 1.0, 2 * 0.25, 3 * (0.5 + 0.1), 2 * 2 / 3 * 200 / 100))
    assert parts.total == pytest.approx(sum(parts))
    assert efficiency(3, 8, network, machines) == pytest.approx(8.25 / (3 * parts.total))


def test_a_link_is_found_from_its_own_sums() -> None:
    sums = [(1, LINK.all_reduce(2, 0)), *((size, LINK.all_reduce(2, 4 * size)) for size in SIZES)]
    assert fitted_link(sums, 2_000_000) == pytest.approx(LINK)


def test_the_bandwidth_is_that_of_sums_as_large_as_what_is_sent() -> None:
    slow_when_large = [(2**10, 0.0), (2**18, 4 * 2**18 / 8e9), (2**24, 4 * 2**24 / 1e9)]
    assert fitted_link(slow_when_large, 2**17).bandwidth == pytest.approx(8e9)
    assert fitted_link(slow_when_large, 2**23).bandwidth == pytest.approx(1e9)


def test_a_small_sum_that_took_long_does_no_harm() -> None:
    """A processor that sleeps takes a while to wake up."""
    assert fitted_link([(2**10, 5.0), (2**18, 1.0), (2**20, 3.0)], 2**19) == (0.5, pytest.approx(4 * 2**20 / 2))


def test_the_tables_on_paper_are_the_model() -> None:
    assert gpu_network(flops=5e12, operations=1000, numbers=1).task_seconds == 0.5  # arithmetic
    assert gpu_network(flops=1.0, operations=1000, numbers=1).task_seconds == pytest.approx(0.01)  # starting operations
    network = gpu_network(1e12, 10_000, 2_000_000)
    rows = paper_rows("net", network)
    assert len(rows) == 6
    found = {(row["meta_batch"], row["between nodes"]): row for row in rows}
    assert found[128, "100 Gbit/s"]["N=32"] == efficiency(32, 128, network, GPUS)
    assert found[1024, "400 Gbit/s"]["N=128"] == efficiency(128, 1024, network, FAST_GPUS)
    assert all(row["N=1"] == 1 for row in rows)
    limits = {row["change"]: row for row in limit_rows("net", network)}
    parts = step_parts(RANKS[-1], RANKS[-1], network, GPUS)
    assert limits["as it is"]["all_reduce_ms"] == pytest.approx(1e3 * parts.all_reduce)
    assert limits["as it is"]["exchange_ms"] == pytest.approx(2 * (1 + 126 * 0.1))
    assert limits["one exchange a step, by a tree"]["exchange_ms"] == pytest.approx(1 + 6 * 0.1)
    assert limits["notes ten times slower"]["exchange_ms"] == pytest.approx(10 * limits["as it is"]["exchange_ms"])
    assert limits["both"]["efficiency"] > limits["as it is"]["efficiency"]


def test_a_machine_that_is_like_the_model_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute was half as fast in the median round as while exchanges and sums were measured."""
    settings = scaling.Settings(rounds=3, other_widths=(8,), other_rounds=3)
    monkeypatch.setattr(scaling, "by_torchrun", Machine(settings.meta_batch))
    result = BENCHMARK.run(settings=settings)
    headline = result.headline
    one = 8 * TASK + REST
    two = CROWDING * (4 * TASK + REST) + EXCHANGE + LINK.all_reduce(2, 4 * NUMBERS)
    assert headline["efficiency_2"] == pytest.approx(one / (2 * two))
    assert headline["speedup_2"] == pytest.approx(one / two)
    assert headline["machine_2"] == pytest.approx(1 / CROWDING)
    assert headline["efficiency_over_machine_2"] == pytest.approx(one / (2 * two) * CROWDING)
    assert headline["sharded_2"] == pytest.approx(1.0)
    assert headline["two_threads_over_two_processes"] == pytest.approx(one / two)
    assert headline["exchange_ms"] == pytest.approx(1e3 * EXCHANGE)
    assert headline["bandwidth_gb_per_s"] == pytest.approx(LINK.bandwidth / 1e9)
    assert headline["waiting_share"] == pytest.approx(0.1 / two)
    assert headline["sending_share"] == pytest.approx(0.05 / two)
    rows = [row for row in result.rows if row["part"].startswith("the model")]
    assert [row["width"] for row in rows] == [16, 8]
    for row in rows:
        assert row["task_ms"] == pytest.approx(2 * 1e3 * TASK)
        assert row["rest_ms"] == pytest.approx(2 * 1e3 * REST)
        assert row["crowding"] == pytest.approx(CROWDING)
        assert row["exchange_ms"] == pytest.approx(1e3 * EXCHANGE)
        assert row["all_reduce_ms"] == pytest.approx(1e3 * LINK.all_reduce(2, 4 * NUMBERS))
        sent = row["exchange_ms"] + row["all_reduce_ms"]
        assert row["predicted_ms"] == pytest.approx(row["measured_ms"] - sent)
        assert row["error"] == pytest.approx(-sent / row["measured_ms"])


def test_parts_add_up_within_a_round() -> None:
    """Of rounds whose slow parts differ, too: what is left of medians may be less than nothing."""
    rounds = [(10.0, 1.0), (20.0, 3.0), (12.0, 9.0)]  # work and rest
    rows = [
        {"seconds": [[work + rest] * 2], "parts": [{**dict.fromkeys(PARTS, 0.0), "work": 2 * work}]}
        for work, rest in rounds
    ]
    parts = scaling.Measured(16, {scaling.ONE: rows}).parts(scaling.ONE)
    assert (parts["work"], parts["rest"], parts["step"]) == (12.0, 3.0, 21.0)


def test_every_kind_has_its_rounds_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = scaling.Settings(rounds=2, other_widths=(8,), other_rounds=1)
    machine = Machine(settings.meta_batch)
    monkeypatch.setattr(scaling, "by_torchrun", machine)
    result = BENCHMARK.run(settings=settings)
    steps = [
        (n, j.what, j.shard, j.width) for n, j in machine.asked if j.frame == 32 and j.what not in (COUNT, CONSTANTS)
    ]
    turn = [(1, WATCHED, 0), (1, TEAM, 0), (2, TEAM, 0), (2, ALONE, 0), (2, TEAM, 1), (2, WATCHED, 0)]
    assert steps == [(*kind, 16) for _ in range(2) for kind in turn] + [(*turn[kind], 8) for kind in (0, 2, 3)]
    memory = [(row["processes"], row["sharded"], row["moments_mib"]) for row in result.rows if "moments_mib" in row]
    assert memory == [(1, "no", 2.0), (2, "no", 2.0), (2, "yes", 1.0)]


class Slow(Team):
    """Two ranks, on a clock that goes on by one second at every sum and exchange."""

    size = 2

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def attempt(self, work: Callable[[], object], note: Callable[[object], object]) -> tuple[object, list[object]]:  # type: ignore[override]
        found = super().attempt(work, note)
        self.clock[0] += 1
        return found

    def sum_(self, tensors: Sequence[torch.Tensor]) -> None:
        self.clock[0] += 10 if tensors[0].numel() > 1 else 100  # of one number: all wait for each other

    def exchange_(self, parts: Sequence[torch.Tensor]) -> None:
        self.clock[0] += 5


def test_clocks_tell_work_waiting_and_sending_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("benchmarks.scaling.worker.time.perf_counter", lambda: clock[0])
    watched = Watched(Slow(clock))

    def work() -> str:
        clock[0] += 1000
        return "done"

    assert watched.attempt(work, len) == ("done", [4])
    assert watched.seconds == {"work": 1000, "waiting": 100, "exchange": 1, "sum": 0}
    watched.sum_([torch.ones(3)])
    assert watched.seconds == {"work": 1000, "waiting": 200, "exchange": 1, "sum": 10}
    watched.exchange_([torch.ones(3)])  # of shards
    assert watched.seconds == {"work": 1000, "waiting": 300, "exchange": 1, "sum": 15}
    with pytest.raises(ZeroDivisionError):  # a rank that fails does not let the others wait
        watched.attempt(lambda: 1 // 0, lambda value: value)
    assert watched.seconds["waiting"] == 400
    watched.reset()
    assert set(watched.seconds.values()) == {0.0}


def test_a_convolutions_arithmetic_is_by_the_pixel() -> None:
    """What the tables on paper rest on: counted on small frames, carried to larger ones."""
    small, large = (count(Job(COUNT, 2, frame, 1, 1, 1), Team()) for frame in (16, 32))
    assert large["flops"] == 4 * small["flops"] > 0
    assert large["operations"] == pytest.approx(small["operations"], rel=0.01)
    assert small["operations"] > 100


def test_constants_of_a_single_process_are_nothing_but_calls() -> None:
    found = constants(Job(CONSTANTS, largest=SIZES[1]), Team())
    assert list(found["sums"]) == list(SIZES[:2])
    assert 0 < found["exchange"] < 0.1


def test_two_real_processes() -> None:
    found = by_torchrun(2, Job(WATCHED, 4, 16, 1, 1, 1, 2, 1, shard=1))
    assert [len(seconds) for seconds in found["seconds"]] == [1, 1]
    for (step,), parts in zip(found["seconds"], found["parts"], strict=True):
        assert set(parts) == set(PARTS)
        assert all(value > 0 for value in parts.values())
        assert sum(parts.values()) < step
    alone = Job(TEAM, 4, 16, 1, 1, 1, 2, 1).trainer()
    alone.step()
    assert found["numbers"] > 2 * found["weights"] > 2 * 60_000
    assert found["moments_bytes"] == pytest.approx(held_bytes(alone) / 2, rel=0.01)


def test_a_bad_task_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.scaling.worker.LR", 1e6)
    with pytest.raises(ValueError, match="drifting blobs"):
        steps_of_a_team(Job(TEAM, 2, 16, 1, 1, 3, 2, 1), Team())
