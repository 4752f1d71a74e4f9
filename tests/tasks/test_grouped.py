import warnings
from typing import Any

import numpy as np
import pytest
import torch

from metaprior.tasks import Examples, GroupedTasks, VariedSupport

GROUPS = ["lima", "oslo", "lima", "kyiv", "oslo", "lima", "oslo", "lima", "oslo", "lima"]
PAIRS = [(torch.tensor([float(i), 0.0]), float(i)) for i in range(10)]


def quiet(groups: Any = GROUPS, pairs: Any = PAIRS, **options: Any) -> GroupedTasks:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GroupedTasks(pairs, groups, **{"k_shot": 2, "k_query": 2, **options})


def rows(tasks: GroupedTasks, index: int) -> list[int]:
    task = tasks[index]
    return torch.cat([task.support.x, task.query.x])[:, 0].int().tolist()


def test_a_task_draws_different_examples_of_its_group() -> None:
    tasks = quiet(draws=30)
    assert tasks.groups == ["lima", "oslo"]
    assert len(tasks) == 60
    for index in range(60):
        name = ["lima", "oslo"][index % 2]
        assert tasks[index].name == name
        assert len(set(rows(tasks, index))) == 4
        assert all(GROUPS[row] == name for row in rows(tasks, index))
        assert torch.equal(tasks[index].support.x[:, :1], tasks[index].support.y), "pairs stay pairs"
    assert len({tuple(rows(tasks, index)) for index in range(0, 60, 2)}) > 10, "draws of a group differ"


def test_groups_that_are_too_small_are_counted_and_kept_visible() -> None:
    with pytest.warns(UserWarning, match="1 of 3 groups have fewer than the 4 examples that a task needs") as caught:
        tasks = GroupedTasks(PAIRS, GROUPS, k_shot=2, k_query=2)
    assert caught[0].filename == __file__
    assert tasks.skipped == {"kyiv": 1}
    assert len(tasks) == 2


def test_no_warning_when_nothing_is_skipped() -> None:
    assert GroupedTasks(PAIRS, [0] * 10, k_shot=5, k_query=5).skipped == {}


def test_no_group_left_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no group has the 6 examples .* of 3 groups the largest has 5"):
        GroupedTasks(PAIRS, GROUPS, k_shot=3, k_query=3)
    with pytest.raises(ValueError, match="of 0 groups the largest has 0"):
        GroupedTasks([], [], k_shot=1, k_query=1)


@pytest.mark.parametrize("kind", [torch.tensor, np.array, lambda labels: [torch.tensor(i) for i in labels]])
def test_equal_labels_of_arrays_are_one_group(kind: Any) -> None:
    tasks = quiet(kind([3, 3, 1, 1, 3, 3, 1, 1, 1, 1]))
    assert tasks.groups == [3, 1]
    assert tasks[1].name == "1"


@pytest.mark.parametrize(
    ("value", "shape", "dtype"),
    [
        (1.5, (2, 1), torch.float32),
        (np.float64(1.5), (2, 1), torch.float32),
        (3, (2,), torch.int64),
        (np.uint8(3), (2,), torch.int64),
        (np.zeros((4, 3)), (2, 4, 3), torch.float32),
        (torch.zeros(3, dtype=torch.float16), (2, 3), torch.float32),
        (torch.zeros(3, requires_grad=True), (2, 3), torch.float32),
        ([1.0, 2.0], (2, 2), torch.float32),
    ],
)
def test_what_examples_may_be(value: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    task = quiet([0] * 4, [(value, value)] * 4)[0]
    for tensor in (*task.support, *task.query):
        assert (tuple(tensor.shape), tensor.dtype, tensor.requires_grad) == (shape, dtype, False)


def test_arrays_that_may_not_be_written_are_read() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    assert quiet([0] * 4, [(array, array)] * 4)[0].query.x.tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (torch.zeros(2), "must be a pair \\(x, y\\), got Tensor"),
        ((1.0, 2.0, 3.0), "must be a pair \\(x, y\\), got tuple"),
        (("sun", 1.0), "x of example 0 must be a tensor, an array or a number, got str"),
        ((1.0, True), "y of example 0 must hold real numbers or integers, got torch.bool. Convert it in the data set"),
    ],
)
def test_examples_of_another_kind_are_refused(example: Any, message: str) -> None:
    tasks = GroupedTasks([example] * 2, ["a"] * 2, k_shot=1, k_query=1, seed=seed_that_reads_example_zero_first())
    with pytest.raises(TypeError, match=message):
        tasks[0]


def seed_that_reads_example_zero_first() -> int:
    pairs = [(float(i), float(i)) for i in range(2)]
    return next(s for s in range(50) if GroupedTasks(pairs, ["a"] * 2, 1, 1, seed=s)[0].support.x.item() == 0)


def test_examples_of_different_shapes_are_refused() -> None:
    tasks = GroupedTasks([(torch.zeros(n), 0.0) for n in (2, 3)], ["a", "a"], k_shot=1, k_query=1)
    with pytest.raises(ValueError, match=r"group 'a': examples have different shapes, \[\(2,\), \(3,\)\]"):
        tasks[0]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="the data set has 10 examples and there are 9 group labels"):
        GroupedTasks(PAIRS, GROUPS[1:], k_shot=1, k_query=1)
    with pytest.raises(ValueError, match="draws must be an integer of at least 1, got 0"):
        GroupedTasks(PAIRS, GROUPS, k_shot=1, k_query=1, draws=0)
    with pytest.raises(ValueError, match="the group of example 2 is NaN"):
        GroupedTasks(PAIRS, np.array([0, 0, np.nan, *[0] * 7]), k_shot=1, k_query=1)


def test_numbers_of_support_examples_are_drawn_and_may_be_zero() -> None:
    tasks = quiet([0] * 10, k_shot=range(4), draws=60)
    sizes = [task.support.size for task in tasks]
    assert set(sizes) == {0, 1, 2, 3}
    empty = tasks[sizes.index(0)]
    assert (empty.support.x.shape, empty.support.y.shape, empty.query.size) == ((0, 2), (0, 1), 2)


def test_a_split_keeps_groups_apart_and_their_tasks_as_they_are() -> None:
    labels = [f"group {i}" for i in range(10) for _ in range(4)]
    whole = quiet(labels, PAIRS * 4, draws=2)
    train, apart = whole.split(0.2, seed=3)
    assert (len(train), len(apart)) == (16, 4)
    assert sorted([*train.groups, *apart.groups]) == sorted(whole.groups)
    assert whole.split(0.2, seed=3)[1].groups == apart.groups
    assert len({tuple(whole.split(0.2, seed=seed)[1].groups) for seed in range(9)}) > 3
    own = {(task.name, tuple(rows(whole, i))) for i, task in enumerate(whole)}
    assert {(task.name, tuple(rows(part, i))) for part in (train, apart) for i, task in enumerate(part)} == own
    assert len(train.split(0.01)[1].groups) == 1
    for share, source in ((0.0, whole), (1.0, whole), (0.5, quiet([0] * 10))):
        with pytest.raises(ValueError, match="share must lie between 0 and 1 with at least 2 groups"):
            source.split(share)


def test_all_examples_may_be_given_at_once() -> None:
    whole = Examples(torch.stack([x for x, _ in PAIRS]), torch.tensor([y for _, y in PAIRS]))
    for data in (PAIRS, whole, Examples(whole.x.numpy(), whole.y.numpy())):  # type: ignore[arg-type]
        with pytest.warns(UserWarning, match="1 of 3 groups") as caught:
            tasks = GroupedTasks(data, GROUPS, k_shot=2, k_query=2)
        assert caught[0].filename == __file__
        assert [rows(tasks, i) for i in range(2)] == [rows(quiet(), i) for i in range(2)]
        assert tasks[0].query.y.shape == ((2, 1) if data is PAIRS else (2,))
        assert tasks.thread_safe == (data is not PAIRS)


def test_a_data_set_with_times() -> None:
    tasks = GroupedTasks(PAIRS, [0] * 10, k_shot=3, k_query=3, time=range(10, 0, -1), draws=9)
    assert all(rows(tasks, i) == sorted(rows(tasks, i), reverse=True) for i in range(9))
    for time in (range(9), [float("nan")] * 10):
        with pytest.raises(ValueError, match="time must be 10 finite numbers, one for each example"):
            GroupedTasks(PAIRS, [0] * 10, k_shot=3, k_query=3, time=time)


def test_new_splits_of_tasks_with_a_time_keep_support_before_query() -> None:
    tasks = GroupedTasks(PAIRS, [0] * 10, k_shot=4, k_query=3, time=range(10), draws=5)
    varied = VariedSupport(tasks, sizes=(0, 2, 4))
    for i in range(20):
        support, query, _ = varied[i]
        assert support.size == 0 or float(support.y.max()) < float(query.y.min())
    assert not GroupedTasks(PAIRS, [0] * 10, k_shot=4, k_query=3).past


def test_examples_by_name() -> None:
    data = {name: (np.arange(6.0)[:, None] + place, np.arange(6.0)) for place, name in enumerate("ab")}
    tasks = GroupedTasks.from_examples(data, k_shot=2, k_query=3, past=True)
    assert [task.name for task in tasks] == ["a", "b"]
    assert torch.equal(tasks[1].query.x[:, 0], tasks[1].query.y + 1)
    assert bool((torch.cat([tasks[0].support.x, tasks[0].query.x])[:, 0].diff() > 0).all())
    wrong: list[tuple[Any, str]] = [
        ({}, "must have at least one group, got none"),
        ({**data, "c": (np.zeros((3, 1)), np.zeros(2))}, "must have the same length, got other ones in 'c'"),
        ({**data, "c": (np.zeros((3, 2)), np.zeros(3))}, r"examples have different shapes, \[\(1,\), \(2,\)\]"),
    ]
    for examples, message in wrong:
        with pytest.raises(ValueError, match=message):
            GroupedTasks.from_examples(examples, k_shot=1, k_query=1)
