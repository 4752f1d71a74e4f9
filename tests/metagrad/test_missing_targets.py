"""Missing targets in meta-gradients: every engine, every likelihood, against weights of zero written by hand."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metaprior.adaptation.descent import DescentModel
from metaprior.likelihoods import Categorical, Gaussian, Likelihood
from metaprior.metagrad import AmortizedELBO, Descent, NonFinite, Problem, QueryLoss, adapt, meta_gradient, mixed
from metaprior.metagrad.problem import Engine
from metaprior.metagrad.task_checker import TaskChecker
from metaprior.missing import TargetCount
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution
from tests.masked_by_hand import LIKELIHOODS, ByHand, twins, with_holes, with_weights
from tests.metagrad.problems import EVERY, Case, assert_same, make_case, solved


def pair_of_cases(likelihood: Likelihood, **changes: object) -> tuple[Case, Case]:
    """Return a case with missing targets, and the same with the mask in the targets."""
    case = make_case("conv", likelihood, Descent(steps=3, lr=1e-3), **changes)  # type: ignore[arg-type]
    holes, by_hand = twins(case.task)
    other = replace(case.problem, likelihood=ByHand(likelihood))
    return case.replace(task=case.problem.check(holes)), case.replace(problem=other, task=by_hand)


@pytest.mark.parametrize("engine", EVERY.values(), ids=EVERY)
def test_every_engine_leaves_missing_targets_out(engine: Engine) -> None:
    for objective in (AmortizedELBO(3), QueryLoss(2, predictive=True)):
        found, expected = pair_of_cases(Gaussian(), objective=objective, micro_batch=2)
        assert found.problem.likelihood.masking(found.task.support.y) is not found.problem.likelihood
        assert_same(solved(engine, found), solved(engine, expected), found.problem)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_every_likelihood_leaves_missing_targets_out(kind: str) -> None:
    found, expected = pair_of_cases(LIKELIHOODS[kind], objective=AmortizedELBO(3))
    assert_same(solved(mixed, found), solved(mixed, expected), found.problem)
    pooled = [DescentModel(case.problem).pooled_sums(case.theta, [case.task]) for case in (found, expected)]
    for one, other in zip(*(sums.grads.tensors() for sums in pooled), strict=True):  # type: ignore[union-attr]
        torch.testing.assert_close(one, other)


def test_tasks_with_missing_targets_are_stacked() -> None:
    """A stack of tasks with and without missing targets has the gradient of each of them alone."""
    first, _ = pair_of_cases(Gaussian())
    whole = make_case("conv", Gaussian(), seed=3).task
    tasks = [first.task, whole]
    stacked, alone = (
        meta_gradient(first.problem, first.theta, tasks, first.noise, engine=mixed, stacked=how)
        for how in (True, False)
    )
    assert stacked.count == alone.count == 2
    for one, other in zip(stacked.grads.tensors(), alone.grads.tensors(), strict=True):
        torch.testing.assert_close(one, other)


def adapted(problem: Problem, theta: WeightDistribution, support: Examples, case: Case) -> torch.Tensor:
    found = adapt(problem, theta, support, case.noise)
    assert not isinstance(found, NonFinite)
    return found.mu


masks = st.lists(st.lists(st.booleans(), min_size=2, max_size=2), min_size=5, max_size=5)


@settings(max_examples=25)
@given(masks)
def test_adaptation_to_any_mask(mask: list[list[bool]]) -> None:
    """Observations without a target are dropped exactly; single targets have weight zero."""
    case = make_case("tanh", Gaussian(), Descent(steps=2, lr=1e-3), support=5)
    gone, (x, y) = torch.tensor(mask), case.task.support
    kept = ~gone.all(1)
    if not kept.any():
        return
    found = case.problem.check_examples(Examples(x, with_holes(y, gone)), "support")
    dropped = Examples(x[kept], with_holes(y, gone)[kept])
    mu = adapted(case.problem, case.theta, found, case)
    assert torch.equal(mu, adapted(case.problem, case.theta, dropped, case))
    by_hand = replace(case.problem, likelihood=ByHand(Gaussian()))
    expected = adapted(by_hand, case.theta, Examples(x[kept], with_weights(y, gone)[kept]), case)
    torch.testing.assert_close(mu, expected)


def test_the_gate_drops_observations_without_a_target_and_counts() -> None:
    case = make_case("tanh", Gaussian(), support=4, query=3)
    check, (support, query, name) = TaskChecker(case.problem), case.task
    support.y[1], query.y[0, 1] = math.nan, math.nan
    task = check(case.task)
    assert (task.support.size, task.query.size, task.name) == (3, 3, name)
    assert torch.equal(task.support.x, support.x[[0, 2, 3]])
    assert (check.taken(), check.taken()) == (TargetCount(3, 14), TargetCount(0, 0))


def test_labels_that_are_missing() -> None:
    case = make_case("tanh", Categorical(), support=4, query=3)
    case.task.support.y[2] = -100
    assert torch.equal(TaskChecker(case.problem)(case.task).support.x, case.task.support.x[[0, 1, 3]])


def test_a_task_without_any_query_target_is_bad() -> None:
    case = make_case("tanh", Gaussian())
    good, empty = case.task, case.task._replace(query=Examples(case.task.query.x, case.task.query.y * math.nan))
    check = TaskChecker(case.problem)
    batch = meta_gradient(case.problem, case.theta, [check(good), check(empty)], case.noise)
    assert batch.count == 1
    assert list(map(str, batch.failures)) == ["a task: all targets of its query set are missing; it was not used"]
