"""Meta-gradients of a network with two inputs equal those of the same network with their concatenation."""

from pathlib import Path

import pytest
import torch
from torch import nn

from metaprior.likelihoods import Gaussian
from metaprior.metagrad import (
    Descent,
    MetaGradient,
    Problem,
    adapt,
    adapt_stack,
    implicit,
    meta_gradient,
    mixed,
    on_disk,
    plan,
)
from metaprior.metagrad.problem import Engine
from metaprior.metagrad.task_checker import TaskChecker
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task, stacked_examples
from metaprior.weights import WeightDistribution
from tests.metagrad.problems import EVERY, assert_same
from tests.several_inputs import FORMS, Joined, StagedInputs, module_for, task

HEAD = r"head\..*"
"""Pattern of the weights behind the trunk."""


def problem_for(form: str | None, *, staged: bool = False, micro_batch: int | None = None) -> Problem:
    module = StagedInputs(Joined if form else nn.Linear) if staged else module_for(form)
    network = BayesianNetwork(module, HEAD if staged else ".*")
    inner = Descent(steps=3, lr=0.05, learn_lr="per_tensor", adapt="likelihood.rho")
    return Problem(network, Gaussian(), inner, micro_batch=micro_batch)


def solved(engine: Engine, form: str | None, own: Task | None = None, **settings: object) -> MetaGradient:
    problem = problem_for(form, **settings)  # type: ignore[arg-type]
    checked = problem.check(own or task(1, form))
    return engine(problem, problem.initial(checked.query.y), checked, Noise(3)).or_raise()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", [*EVERY.values(), implicit], ids=[*EVERY, "implicit"])
def test_every_engine(engine: Engine, form: str) -> None:
    assert_same(solved(engine, form), solved(engine, None), problem_for(None))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ["unrolled", "mixed", "twice_reverse", "keeping(all)"])
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_a_trunk_of_two_inputs_and_micro_batches(engine: str, form: str, micro_batch: int | None) -> None:
    found = solved(EVERY[engine], form, staged=True, micro_batch=micro_batch)
    assert problem_for(form, staged=True).trunk_stages == 2
    assert_same(found, solved(EVERY["unrolled"], None, staged=True), problem_for(None, staged=True))
    assert float(found.grads.plain["first.weight"].abs().min()) > 0


@pytest.mark.parametrize("form", FORMS)
def test_on_disk_and_planned(form: str, tmp_path: Path) -> None:
    problem, own = problem_for(form), task(1, form)
    theta = problem.initial(own.query.y)
    chosen = plan(problem, theta, own, "8GiB", scratch=tmp_path)
    for engine in (on_disk(tmp_path), chosen.engine):
        assert_same(solved(engine, form), solved(EVERY["unrolled"], None), problem_for(None))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("stacked", [False, True])
def test_a_meta_batch(form: str, staged: bool, stacked: bool) -> None:
    def batch(form: str | None, stacked: bool) -> tuple[torch.Tensor, WeightDistribution]:
        problem = problem_for(form, staged=staged)
        tasks = TaskChecker(problem).several([task(number, form) for number in range(3)])
        theta = problem.initial(tasks[0].query.y)
        found = meta_gradient(problem, theta, tasks, Noise(3), engine=mixed, stacked=stacked)
        return found.loss, found.grads  # type: ignore[return-value]

    (loss, grads), (expected_loss, expected) = batch(form, stacked), batch(None, False)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-12, atol=0)
    for name, value in expected.named().items():
        torch.testing.assert_close(grads.named()[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_support_sets_are_adapted_to_one_by_one_and_stacked(form: str) -> None:
    problem, single = problem_for(form), problem_for(None)
    theta = problem.initial(task(0).query.y)
    noises = [Noise(3).at(task=number) for number in range(2)]
    together = adapt_stack(problem, theta, stacked_examples([task(n, form).support for n in range(2)]), noises)
    for number, noise in enumerate(noises):
        alone = adapt(problem, theta, task(number, form).support, noise)
        expected = adapt(single, theta, task(number).support, noise)
        assert isinstance(alone, WeightDistribution)
        assert isinstance(expected, WeightDistribution)
        torch.testing.assert_close(alone.mu, expected.mu, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(together.mu[number], expected.mu, rtol=1e-12, atol=1e-14)


def test_an_empty_support_set() -> None:
    found, expected = (solved(mixed, form, task(1, form, support=0)) for form in ("dict", None))
    assert_same(found, expected, problem_for(None))


def test_the_damaged_part_of_a_task_is_named() -> None:
    problem, (support, query, name) = problem_for("dict"), task(1, "dict")
    damaged = Task(support, Examples({**query.x, "wind": query.x["wind"] / 0}, query.y), name)
    theta = problem.initial(query.y)
    checked = TaskChecker(problem)(damaged)
    (failure,) = meta_gradient(problem, theta, [checked], Noise(0)).failures
    assert 'its query x["wind"] holds' in str(failure)
    with pytest.raises(ValueError, match=r'task 1: query: x\["wind"\] has 10 NaN'):
        problem.check(damaged)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"sky": torch.zeros(5, 3)}, "missing 1 required positional argument: 'wind'.*keyword arguments"),
        ({"sky": torch.zeros(5, 3), "rain": torch.zeros(5, 2)}, "unexpected keyword argument 'rain'"),
        ((torch.zeros(5, 3), torch.zeros(4, 2)), r"x\[1\] has 4 observations and x\[0\] has 5"),
    ],
)
def test_inputs_that_the_network_does_not_take(x: object, message: str) -> None:
    problem, own = problem_for("dict"), task(1, "dict")
    with pytest.raises((TypeError, ValueError), match=f"task 1: query: .*{message}"):
        problem.check(own._replace(query=Examples(x, own.query.y)))
