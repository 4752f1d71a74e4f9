"""Tasks without support examples: no step is taken, and the meta-gradient is that of the outer loss at theta."""

from dataclasses import replace

import pytest
import torch

from metaprior.likelihoods import Categorical, Gaussian
from metaprior.metagrad import AmortizedELBO, Descent, QueryLoss, adapt, implicit, keeping, meta_gradient, mixed
from metaprior.metagrad.gradient_choice import choose_gradient
from metaprior.metagrad.memory import Budget
from metaprior.metagrad.step_size_search import searched_step_sizes
from metaprior.metagrad.task_checker import TaskChecker
from metaprior.tasks.task import Examples, Task
from tests.metagrad.problems import EVERY, Case, assert_same, make_case, solved

LEARNED = Descent(steps=3, lr=5e-3, learn_lr="per_tensor", momentum=0.5, samples=2)
CASES = {
    "query": lambda: make_case("tanh", Gaussian(), LEARNED),
    "ELBO": lambda: make_case("tanh", Gaussian(), LEARNED, AmortizedELBO(4, samples=2)),
    "predictive": lambda: make_case("tanh", Gaussian(), LEARNED, QueryLoss(3, predictive=True)),
    "trunk": lambda: make_case("tanh", Gaussian(), replace(LEARNED, adapt=None), stochastic="2.*"),
    "labels": lambda: make_case("tanh", Categorical(), LEARNED),
    "images": lambda: make_case("conv", Gaussian(), LEARNED, AmortizedELBO(3), micro_batch=1),
}


def empty(task: Task) -> Task:
    return task._replace(support=task.support.first(0))


def without_support(case: Case) -> Case:
    return case._replace(task=empty(case.task))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", [*EVERY, "implicit"])
def test_the_gradient_is_that_of_no_steps(engine: str, name: str) -> None:
    case = without_support(CASES[name]())
    still = replace(case.problem, inner=replace(case.problem.inner, steps=0))
    expected = solved(EVERY["unrolled"], case._replace(problem=still))
    found = solved(implicit if engine == "implicit" else EVERY[engine], case)
    assert_same(found, expected, case.problem)
    assert not found.grads.log_lr.any()
    assert found.inner.nll.shape == (0,)


@pytest.mark.parametrize("name", CASES)
def test_stacks_of_empty_and_of_other_tasks_agree_with_one_by_one(name: str) -> None:
    case = CASES[name]()
    tasks = [case.task, case.task._replace(query=case.task.support.first(2))]
    tasks = [case.problem.check(task) for task in tasks]
    for group in (tasks, [empty(task) for task in tasks]):
        one, other = (
            meta_gradient(case.problem, case.theta, group, case.noise, engine=keeping(10), stacked=stacked)
            for stacked in (False, True and case.problem.micro_batch is None)
        )
        for key, value in one.grads.named().items():
            torch.testing.assert_close(other.grads.named()[key], value, rtol=1e-10, atol=1e-13, msg=key)


@pytest.mark.parametrize("steps", [None, 0, 7])
def test_lambda_is_theta(steps: int | None) -> None:
    case = make_case("tanh", Gaussian(), LEARNED)
    lambda_ = adapt(case.problem, case.theta, case.task.support.first(0), case.noise, steps=steps)
    for name, value in case.theta.named().items():
        assert torch.equal(lambda_.named()[name], value), name


def test_checks_let_an_empty_support_pass_and_no_empty_query() -> None:
    case = make_case("tanh", Gaussian(), LEARNED)
    for check in (case.problem.check, TaskChecker(case.problem)):
        found = check(empty(case.task))
        assert (found.support.x.shape, found.support.y.shape) == ((0, 2), (0, 2))
        with pytest.raises(ValueError, match="query: x is empty"):
            check(case.task._replace(query=case.task.query.first(0)))
        with pytest.raises(ValueError, match="support: x has 0 observations and y has 1"):
            check(case.task._replace(support=Examples(case.task.support.x[:0], case.task.support.y[:1])))
    with pytest.raises(ValueError, match="support: the network cannot take an observation of shape"):
        case.problem.check(case.task._replace(support=Examples(torch.zeros(0, 9).double(), torch.zeros(0, 2).double())))


def test_the_search_for_a_step_size_leaves_them_out() -> None:
    case = make_case("tanh", Gaussian(), LEARNED)
    whole, none = case.problem.check(case.task), case.problem.check(empty(case.task))
    args = {"share": 0.5, "balanced": True}
    found = searched_step_sizes(case.problem, case.theta, [none, whole], case.noise, **args)
    expected = searched_step_sizes(case.problem, case.theta, [whole], case.noise.at(task=1), **args)
    assert torch.equal(found.log_lr, expected.log_lr)
    assert torch.equal(
        searched_step_sizes(case.problem, case.theta, [none], case.noise, **args).log_lr, case.theta.log_lr
    )


@pytest.mark.parametrize("engine", [None, mixed])
def test_gradients_are_chosen_for_the_largest_support(engine: object) -> None:
    case = make_case("tanh", Gaussian(), LEARNED)
    tasks = [empty(case.task), case.task]
    assert not choose_gradient(case.problem, case.theta, tasks, Budget(0.5), engine).stacked
    assert choose_gradient(case.problem, case.theta, [empty(case.task)] * 2, Budget(0.5), engine).stacked
