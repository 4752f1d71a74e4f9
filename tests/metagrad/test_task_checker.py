from typing import Any

import pytest
import torch
from torch import nn

from metaprior.likelihoods import Bernoulli, Categorical
from metaprior.metagrad import Descent, Problem
from metaprior.metagrad.task_checker import TaskChecker
from metaprior.network import BayesianNetwork
from metaprior.tasks.task import Examples, Task
from tests.training.lines import damaged, line, make_problem


def labelled(labels: torch.Tensor, query: torch.Tensor | None = None) -> Task:
    query = labels if query is None else query
    return Task(Examples(torch.randn(len(labels), 2), labels), Examples(torch.randn(len(query), 2), query), "a task")


def classifier(likelihood: Any = None) -> Problem:
    return Problem(BayesianNetwork(nn.Linear(2, 3)), likelihood or Categorical(), Descent(1))


@pytest.mark.parametrize("known", [False, True], ids=["the first task", "a later one"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: Examples(e.x, e.y.expand(-1, 2)), r"line 1.*predicts targets of shape \(N, 1\).*\(5, 2\)"),
        (lambda e: Examples(e.x, e.y[:-1]), r"line 1.*5.*4.*must be pairs"),
        (lambda e: Examples(e.x[:0], e.y[:0]), r"line 1.*(empty|0 inputs)"),
    ],
)
def test_examples_that_do_not_fit_are_refused_by_name(known: bool, change: Any, message: str) -> None:
    door, task = TaskChecker(make_problem()), line(1)
    if known:
        door(line(0))
    with pytest.raises(ValueError, match=message):
        door(task._replace(query=change(task.query)))


def test_inputs_of_another_shape_are_run_through_the_network() -> None:
    door, task = TaskChecker(make_problem()), line(1)
    door(line(0))
    with pytest.raises((ValueError, RuntimeError), match=r"shape|features|inputs"):
        door(task._replace(query=Examples(task.query.x.expand(-1, 2), task.query.y)))


@pytest.mark.parametrize("known", [False, True], ids=["the first task", "a later one"])
def test_labels_have_to_be_within_the_logits(known: bool) -> None:
    door = TaskChecker(classifier())
    if known:
        door(labelled(torch.tensor([0, 1, 2])))
    with pytest.raises(ValueError, match=r"a task.*labels must be 0..2, one for each logit, got 0 to 3"):
        door(labelled(torch.tensor([0, 1, 2]), torch.tensor([0, 3])))
    with pytest.raises(TypeError, match=r"a task.*labels must be integers"):
        door(labelled(torch.tensor([0.0, 1.0])))


@pytest.mark.parametrize("known", [False, True], ids=["the first task", "a later one"])
def test_types_become_the_networks(known: bool) -> None:
    door, task = TaskChecker(make_problem()), line(1)
    if known:
        door(line(0))
    single = Task(
        Examples(task.support.x.float(), task.support.y.float()),
        Examples(task.query.x.numpy(), task.query.y.numpy()[:, 0]),
        "mixed",
    )
    through = door(single)
    assert [t.dtype for part in through[:2] for t in part] == [torch.float64] * 4
    assert torch.equal(through.query.y, task.query.y), "targets without their axis of length one get it back"
    assert torch.equal(through.query.x, task.query.x)
    assert through.name == "mixed"


def test_labels_become_whole_or_floating_numbers() -> None:
    small = torch.tensor([0, 2], dtype=torch.uint8)
    assert TaskChecker(classifier())(labelled(small)).support.y.dtype == torch.int64
    ones = TaskChecker(classifier(Bernoulli()))(labelled(torch.tensor([[0, 1, 1], [1, 0, 0]]))).support.y
    assert ones.dtype == torch.float32


@pytest.mark.parametrize("part", ["support", "query"])
def test_numbers_that_are_not_finite_pass_where_the_shape_is_known(part: str) -> None:
    door = TaskChecker(make_problem())
    door(line(0))
    assert getattr(door(damaged(line(1), part)), part).y.isinf().sum() == 1


def test_the_network_is_looked_at_once_for_a_shape() -> None:
    class Counting(nn.Linear):
        calls = 0

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            Counting.calls += 1
            return super().forward(input)

    door = TaskChecker(make_problem(module=Counting(1, 1).double(), stochastic=".*"))
    door(line(0))
    first = Counting.calls
    door(line(1, support=7))
    assert Counting.calls == first > 0
