from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from metaprior.metagrad import (
    Problem,
    checkpointed,
    finite_difference,
    gradient_choice,
    meta_batch,
    mixed,
    planner,
    twice_reverse,
)
from metaprior.metagrad.gradient_choice import choose_gradient
from metaprior.metagrad.memory import Budget, Memory
from metaprior.metagrad.sweep import Sweep
from metaprior.tasks.task import Task
from metaprior.weights import WeightDistribution
from tests.training.lines import line, lines, make_problem

PROBLEM = make_problem()
THETA = PROBLEM.initial(torch.ones(2, 1, dtype=torch.float64))


def test_small_networks_keep_their_graphs_and_are_stacked() -> None:
    choice = choose_gradient(PROBLEM, THETA, lines(4), Budget(0.5), None)
    assert choice.stacked
    assert isinstance(choice.engine, Sweep)
    assert choice.engine.keep >= PROBLEM.inner.steps
    assert choice.engine.exact
    assert choice.problem.micro_batch is None


def test_other_shapes_are_not_stacked() -> None:
    for last in (line(3, support=6), line(3, query=2)):
        assert not choose_gradient(PROBLEM, THETA, [*lines(3), last], Budget(0.5), None).stacked
    assert not choose_gradient(PROBLEM, THETA, lines(1), Budget(0.5), None).stacked, "nothing to stack"


def test_a_given_engine_is_used() -> None:
    assert choose_gradient(PROBLEM, THETA, lines(4), Budget(0.5), mixed) == (mixed, PROBLEM, True)
    for single in (checkpointed, finite_difference):
        choice = choose_gradient(PROBLEM, THETA, lines(4), Budget(0.5), single)
        assert choice.engine is single
        assert not choice.stacked


def test_a_stack_has_to_be_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta_batch, "STACKED_NUMBERS", 100)
    assert not choose_gradient(PROBLEM, THETA, lines(4), Budget(0.5), None).stacked


def test_the_trunk_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    deep = nn.Sequential(*(nn.Linear(1 if i == 0 else 50, 50) for i in range(9)), nn.Linear(50, 1)).double()
    problem = make_problem(replace(PROBLEM.inner, adapt="likelihood.*"), module=deep, stochastic="9.*")
    assert problem.trunk_stages == 9
    behind = problem.network.numbers_behind(9, lines(1)[0].support.x)
    monkeypatch.setattr(meta_batch, "STACKED_NUMBERS", 4 * 9 * (10 * behind + 200))
    theta = problem.initial(torch.ones(2, 1, dtype=torch.float64))
    assert not choose_gradient(problem, theta, lines(4), Budget(0.5), None).stacked


def test_kept_graphs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for steps, stacked in ((2, True), (200, False)):
        problem = make_problem(replace(PROBLEM.inner, steps=steps))
        monkeypatch.setattr(meta_batch, "STACKED_NUMBERS", 20_000)
        assert choose_gradient(problem, THETA, lines(4), Budget(0.5), None).stacked == stacked
        assert choose_gradient(problem, THETA, lines(4), Budget(0.5), mixed).stacked, "nothing is kept"


def test_a_network_that_cannot_be_vectorised_is_not_stacked() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1).double()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x)
            return y if float(y.detach().sum()) > 0 else -y

    problem = make_problem(module=Branching(), stochastic=".*")
    theta = problem.initial(torch.ones(2, 1, dtype=torch.float64))
    assert not choose_gradient(problem, theta, lines(4), Budget(0.5), None).stacked


def test_large_networks_are_planned_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner itself has tests of its own; here its plan is asked for, with the budget, and followed."""
    asked: list[tuple[str, Memory, str | None, planner.Way | None]] = []
    in_parts = replace(PROBLEM, micro_batch=2)

    def plan(
        problem: Problem,
        theta: WeightDistribution,
        task: Task,
        memory: Memory,
        *,
        scratch: str | None,
        training: bool,
        before: planner.Way | None,
    ) -> planner.Plan:
        assert training, "there is room for the optimiser"
        asked.append((task.name, memory, scratch, before))
        choice = planner.Choice(twice_reverse, 2, peak=1.0, cost=1.0)
        return planner.Plan(choice, (choice,), 1.0, in_parts)

    monkeypatch.setattr(gradient_choice, "plan", plan)
    assert choose_gradient(PROBLEM, THETA, lines(2), Budget("3GiB"), None).stacked
    assert asked == [], "this network is small"
    monkeypatch.setattr(planner, "SMALL", 10)
    assert choose_gradient(PROBLEM, THETA, lines(2), Budget("3GiB", "files"), None) == (twice_reverse, in_parts, False)
    assert asked == [("line 0", "3GiB", "files", None)]
    assert choose_gradient(PROBLEM, THETA, lines(2), Budget("3GiB"), mixed).engine is mixed
    assert len(asked) == 1, "a given engine is not planned"
    way = planner.Way("mixed", 1)
    choose_gradient(PROBLEM, THETA, lines(2), Budget("3GiB"), None, before=way)
    assert asked[1:] == [("line 0", "3GiB", None, way)]


def test_where_memory_is_not_known_large_networks_are_differentiated_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gradient_choice, "is_measured", lambda device: False)
    assert choose_gradient(PROBLEM, THETA, lines(2), Budget(0.5), None).stacked, "this network is small"
    monkeypatch.setattr(planner, "SMALL", 10)
    assert choose_gradient(PROBLEM, THETA, lines(2), Budget(0.5), None) == (twice_reverse, PROBLEM, False)
