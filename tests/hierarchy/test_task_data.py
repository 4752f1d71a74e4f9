from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.hierarchy.store import Entry
from metaprior.hierarchy.task_data import CheckedTasks, TaskData, fingerprint, new_tasks
from metaprior.network import BayesianNetwork
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, Task


def checked(data: TaskData, likelihood: mp.Likelihood | None = None, outputs: int = 1) -> CheckedTasks:
    network = BayesianNetwork(nn.Linear(2, outputs, dtype=torch.float64))
    return CheckedTasks(data, network, likelihood or mp.Gaussian())


def data_of(tasks: CheckedTasks) -> Examples:
    """Return the first task's data."""
    return tasks.data_of(tasks.entries[0], TargetScale.identity(torch.zeros(1, dtype=torch.float64)))


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def pair(count: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    return numbers(count, 2, seed=seed), numbers(count, seed=seed + 1)


def test_support_and_query_set_are_taken_together() -> None:
    (x, y), (more_x, more_y) = pair(4), pair(3, seed=5)
    task = Task(Examples(x, y), Examples(more_x, more_y), "both")
    given = checked([task])
    (entry,) = given.entries
    data = data_of(given)
    assert entry.name == "both"
    assert torch.equal(data.x, torch.cat([x, more_x]))
    assert torch.equal(data.y, torch.cat([y, more_y]).unsqueeze(-1))
    assert given.entries[0].observations == 7
    assert given.scalar_targets
    assert given.entries == checked({"both": (torch.cat([x, more_x]), torch.cat([y, more_y]))}).entries


def test_tasks_and_examples_come_by_index_or_by_name() -> None:
    one = Task(Examples(*pair()), Examples(*pair(3, seed=5)), "one")
    for data in ([one, pair()], {"one": one._replace(name="other"), "task 1": pair()}):
        assert [(entry.name, entry.observations) for entry in checked(data).entries] == [("one", 7), ("task 1", 4)]


def test_numbers_come_in_the_networks_type() -> None:
    x, y = (part.float().numpy() for part in pair())
    data = data_of(checked({"a": (x, y)}))  # type: ignore[dict-item]
    assert data.x.dtype == data.y.dtype == torch.float64
    assert np.array_equal(data.x.numpy(), x.astype(np.float64))


def test_targets_with_a_channel_axis_keep_it() -> None:
    x, y = pair()
    assert not checked({"a": (x, y.unsqueeze(-1))}).scalar_targets
    assert not checked({"a": (x, torch.tensor([0, 1, 2, 0]))}, mp.Categorical(), outputs=3).scalar_targets


def test_a_fingerprint_is_that_of_numbers_types_and_shapes() -> None:
    x, y = pair()
    same = fingerprint(Examples(x, y))
    assert fingerprint(Examples(x.clone(), y.clone())) == same
    assert fingerprint(Examples(x.T.contiguous().T, y)) == same
    almost = y.clone()
    almost[-1] = torch.nextafter(almost[-1], almost[-1] + 1)
    for other in ((x, almost), (x, y.unsqueeze(-1)), (x.reshape(2, 4), y), (x.flip(0), y), (x[:-1], y[:-1])):
        assert fingerprint(Examples(*other)) != same
    zeros = torch.zeros(4, 2)
    assert fingerprint(Examples(zeros, zeros)) != fingerprint(Examples(zeros.int(), zeros))


class Endless:
    def __getitem__(self, index: int) -> Task:
        raise AssertionError("nobody may ask")


def with_infinity() -> tuple[Tensor, Tensor]:
    x, y = pair()
    y[2] = torch.inf
    return x, y


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"bad": with_infinity()}, ValueError, r"the first: bad: y has 1 infinite values .* index \(2,\)"),
        ({"bad": (pair()[0], pair()[1] * torch.nan)}, ValueError, "the first: bad: all of its 4 targets are missing"),
        ({"bad": (pair()[0], pair(5)[1])}, ValueError, "^bad: x has 4 observations and y has 5"),
        ({"bad": (numbers(4, 3), pair()[1])}, ValueError, r"^bad: the network cannot take .* shape \(3,\)"),
        ({"bad": (pair()[0], numbers(4, 2))}, ValueError, "^bad: the network predicts targets of shape"),
        ({"bad": (numbers(0, 2), numbers(0))}, ValueError, "^bad: x is empty"),
        ({"a": ([[1.0]], [1.0])}, TypeError, "a: x must be a torch tensor, a NumPy array or a data frame, got list"),
        ({"a": (*pair(), pair()[1])}, TypeError, r"a must be a pair \(x, y\).*got tuple of 3"),
        ([(pair(), pair())], TypeError, "task 0: a task must be a metaprior.Task"),
        ([Task(Examples(*pair()), Examples(numbers(4, 3), pair()[1]), "t")], ValueError, "t: x of support and query"),
        ({}, ValueError, "there are no tasks"),
        ([], ValueError, "there are no tasks"),
        (Task(Examples(*pair()), Examples(*pair())), TypeError, r"got a Task. Try \[task\]"),
        (Endless(), TypeError, "must have an end"),
        (iter([]), TypeError, "indexed by integers"),
        (
            [Task(Examples(*pair(4, seed)), Examples(*pair(2)), "same") for seed in (0, 5)],
            ValueError,
            "must differ.*'same' twice",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_named(data: TaskData, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        checked(data)


def test_labels_that_the_likelihood_refuses_are_named() -> None:
    with pytest.raises(TypeError, match=r"^bad: class labels must be integers"):
        checked({"bad": pair()}, mp.Categorical(), outputs=3)


def test_a_task_that_changes_between_visits_is_noticed() -> None:
    x, y = pair()
    given = checked({"fickle": (x, y)})
    y[0] += 1.0
    with pytest.raises(ValueError, match="the data of 'fickle' changed during the training"):
        data_of(given)


def entry(name: str, print_: str = "same", *, forgotten: bool = False) -> Entry:
    return Entry(name, 4, "shapes", print_, forgotten=forgotten)


def test_tasks_that_are_new() -> None:
    stored = [entry("a"), entry("gone", forgotten=True), entry("b")]
    given = [entry("b"), entry("c"), entry("gone"), entry("a")]
    found = new_tasks(stored, given, growing=True, folder=Path("store"))
    assert [task.name for task in found] == ["c", "gone"]


def test_tasks_that_may_not_be_missing_or_other_ones() -> None:
    stored = [entry("a"), entry("b")]
    with pytest.raises(ValueError, match="1 of the 2 tasks in store are not among the given ones, first 'b'"):
        new_tasks(stored, [entry("a")], growing=True, folder=Path("store"))
    with pytest.raises(ValueError, match="1 tasks have other data than when they were learned, first 'b'"):
        new_tasks(stored, [entry("a"), entry("b", "other")], growing=True, folder=Path("store"))
    with pytest.raises(ValueError, match="1 tasks are new, first 'c': a stopped fit must first be finished"):
        new_tasks(stored, [*stored, entry("c")], growing=False, folder=Path("store"))
