"""What every source promises: the same task for the same index, different ones for different indices."""

import dataclasses

import pytest
import torch

from benchmarks.wheel.tasks import WheelTasks
from metaprior.tasks import DriftingBlobs, FewShotClasses, GroupedTasks, SineOrLine, Sinusoids, Task, Tasks

IMAGES = torch.rand(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 4
PAIRS = [(IMAGES[i], float(i)) for i in range(40)]

GENERATED = [Sinusoids, SineOrLine, WheelTasks, DriftingBlobs]
ENDLESS = [Sinusoids, SineOrLine, DriftingBlobs]


def few_shot(seed: int = 0, k_shot: int = 3, k_query: int = 2) -> FewShotClasses:
    return FewShotClasses(IMAGES, LABELS, ways=2, k_shot=k_shot, k_query=k_query, seed=seed)


def grouped(seed: int = 0, k_shot: int = 3, k_query: int = 2) -> GroupedTasks:
    return GroupedTasks(PAIRS, LABELS, k_shot=k_shot, k_query=k_query, seed=seed, draws=2)


SOURCES = [*GENERATED, few_shot, grouped]


def numbers(task: Task) -> torch.Tensor:
    return torch.cat([part.flatten().double() for part in (*task.support, *task.query)])


@pytest.mark.parametrize("make", SOURCES)
def test_a_task_is_a_function_of_seed_and_index(make: type) -> None:
    source, again, other = make(seed=7), make(seed=7), make(seed=8)
    backwards = {i: again[i] for i in (5, 2, 0)}
    for index in (0, 2, 5):
        assert torch.equal(numbers(source[index]), numbers(backwards[index]))
        assert source[index].name == backwards[index].name
        assert not torch.equal(numbers(source[index]), numbers(other[index]))
    assert not torch.equal(numbers(source[0]), numbers(source[5]))


@pytest.mark.parametrize("make", SOURCES)
def test_the_global_generator_is_neither_read_nor_moved(make: type) -> None:
    torch.manual_seed(1)
    first = numbers(make()[1])
    after = torch.rand(1)
    torch.manual_seed(2)
    assert torch.equal(numbers(make()[1]), first)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)


@pytest.mark.parametrize("make", SOURCES)
def test_types_and_sizes(make: type) -> None:
    source: Tasks = make(k_shot=3, k_query=2)
    ways = 2 if make is few_shot else 1
    for task in (source[0], source[4]):
        assert (len(task.support.x), len(task.support.y)) == (3 * ways, 3 * ways)
        assert (len(task.query.x), len(task.query.y)) == (2 * ways, 2 * ways)
        for part in (task.support, task.query):
            assert part.x.dtype == torch.float32
            assert part.y.dtype == (torch.int64 if make is few_shot else torch.float32)
            assert part.x.is_contiguous()
            assert part.y.is_contiguous()


@pytest.mark.parametrize("make", SOURCES)
def test_there_is_no_task_below_zero(make: type) -> None:
    with pytest.raises(IndexError, match="there is no task -1; indices are 0"):
        make()[-1]


@pytest.mark.parametrize("make", ENDLESS)
def test_endless_sources_go_on(make: type) -> None:
    assert not hasattr(make(), "__len__")
    assert numbers(make()[10**9]).isfinite().all()


def test_finite_sources_end() -> None:
    assert len(list(WheelTasks(num_tasks=3, k_shot=2, k_query=1))) == len(WheelTasks(num_tasks=3)) == 3
    assert len(list(grouped())) == len(grouped()) == 4 * 2
    with pytest.raises(IndexError, match="there is no task 8; indices are 0 to 7"):
        grouped()[8]


@pytest.mark.parametrize("make", GENERATED)
def test_sources_are_values(make: type) -> None:
    source = make(seed=3)
    assert make(**dataclasses.asdict(source)) == source
    with pytest.raises(dataclasses.FrozenInstanceError):
        source.seed = 4


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("name", ["k_shot", "k_query"])
def test_a_task_needs_examples(make: type, name: str) -> None:
    least = 0 if (make, name) == (grouped, "k_shot") else 1
    for count in (least - 1, 2.5):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least {least}, got {count}"):
            make(**{name: count})


@pytest.mark.parametrize("make", [Sinusoids, SineOrLine])
@pytest.mark.parametrize("noise", [-0.1, float("nan"), float("inf")])
def test_noise_is_a_standard_deviation(make: type, noise: float) -> None:
    with pytest.raises(ValueError, match="noise must be a number of at least 0"):
        make(noise=noise)
