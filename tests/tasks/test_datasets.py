"""Tasks from torch's data sets, and what of torch cannot be a source of tasks."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import metaprior as mp
from metaprior.tasks.task import as_tasks, length_of
from tests.methods.made_up import Rows
from tests.training.lines import line

SIZES = {"a": 8, "b": 3, "c": 6}


def datasets(sizes: dict[str, int] = SIZES) -> dict[str, Rows]:
    """Return data sets in which x says which group and y which row it is."""
    return {
        name: Rows(torch.full((size, 1), float(number)), torch.arange(float(size)).unsqueeze(1))
        for number, (name, size) in enumerate(sizes.items())
    }


def test_each_data_set_is_a_group_whose_rows_are_read_when_a_task_is() -> None:
    given = datasets()
    with pytest.warns(UserWarning, match="1 of 3 groups have fewer than the 5 examples"):
        tasks = mp.GroupedTasks.from_datasets(given, k_shot=2, k_query=3, draws=2)
    assert (len(tasks), tasks.groups, tasks.skipped) == (4, ["a", "c"], {"b": 3})
    assert [one.asked for one in given.values()] == [0, 0, 0]
    names = []
    for task in (tasks[i] for i in range(4)):
        names.append(task.name)
        x, y = (torch.cat([own, other]) for own, other in zip(task.support, task.query, strict=True))
        assert (task.support.size, task.query.size) == (2, 3)
        assert x.unique().tolist() == [[*SIZES].index(task.name)]
        assert len(y.unique()) == 5
    assert names == ["a", "c", "a", "c"]
    assert [one.asked for one in given.values()] == [10, 0, 10]


def test_tasks_are_those_of_the_same_examples_in_memory() -> None:
    given = {name: own for name, own in datasets().items() if name != "b"}
    pairs = {name: (own.x, own.y) for name, own in given.items()}
    for past in (False, True):
        settings: dict[str, Any] = {"k_shot": (0, 2), "k_query": 2, "past": past, "seed": 3, "draws": 4}
        expected = mp.GroupedTasks.from_examples(pairs, **settings)
        found = mp.GroupedTasks.from_datasets(given, **settings)
        assert found.past is past
        for one, other in ((expected[i], found[i]) for i in range(8)):
            assert torch.equal(one.query.y, other.query.y)
            assert torch.equal(one.support.y, other.support.y)
            assert not past or all(own.y.max() < one.query.y.min() for own in [one.support] if own.size)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[mp.Task]:
        return map(line, range(4))


class ByIndex(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> mp.Task:
        return line(index)


def test_data_sets_without_an_index_are_refused() -> None:
    x = torch.zeros(5, 1)
    whole = TensorDataset(x, x)
    for wrong in (Stream(), DataLoader(whole), 3):
        with pytest.raises(TypeError, match=f"by index, which {type(wrong).__name__} 'b' has not. Try a map-style"):
            mp.GroupedTasks.from_datasets({"a": whole, "b": wrong}, k_shot=1, k_query=1)  # type: ignore[dict-item]
    for nothing in ({}, [whole]):
        with pytest.raises(TypeError, match="datasets must be a mapping of at least one Dataset by name, got"):
            mp.GroupedTasks.from_datasets(nothing, k_shot=1, k_query=1)  # type: ignore[arg-type]


def learner() -> mp.MetaLearner:
    torch.manual_seed(0)
    return mp.MetaLearner(mp.MLP(1, [3], 1).double(), mp.Gaussian(), adaptation=mp.ClosedForm())


FAST: dict[str, Any] = {"epochs": 1, "tasks_per_epoch": 4, "meta_batch": 2, "progress": False}


def test_a_data_set_of_tasks_is_a_source_of_tasks() -> None:
    given = ByIndex()
    from_list = learner().fit([given[i] for i in range(6)], **FAST)
    from_dataset = learner().fit(given, **FAST)
    assert from_dataset.history_ == from_list.history_
    expected = from_list.evaluate([line(i) for i in range(4)], progress=False).rows
    assert from_dataset.evaluate(Stream(), progress=False).rows == expected  # type: ignore[arg-type]


def test_loaders_and_streams_are_no_sources_of_tasks() -> None:
    loader: DataLoader[Any] = DataLoader(ByIndex(), 2)
    for method in (learner().fit, learner().fit([line(i) for i in range(2)], **FAST).evaluate):
        with pytest.raises(
            TypeError, match=r"tasks must come one by one, got a DataLoader of batches. Try its data set"
        ):
            method(loader)  # type: ignore[arg-type]
    for wrong in (Stream(), DataLoader(ByIndex(), batch_size=None)):
        with pytest.raises(
            TypeError, match=r"indexed by integers, which a \w+ is not\. Try a Dataset whose __getitem__"
        ):
            learner().fit(wrong, **FAST)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="come one by one"):
        as_tasks(loader)
    assert length_of(ByIndex()) == 6
