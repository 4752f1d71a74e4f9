from dataclasses import replace
from typing import Any

import pytest

from metaprior.errors import CheckpointError
from metaprior.hierarchy.model import FitPlan, HierarchyTerms


def plan(**other: Any) -> FitPlan:
    return replace(FitPlan(3, 4, 2, 8, lr=0.01, samples=2, kl_warmup=0.5), **other)


def test_a_posteriors_steps_are_those_of_all_its_visits() -> None:
    local = plan().local()
    assert (local.steps, local.batch_size, local.lr, local.samples, local.kl_warmup) == (12, 8, 0.01, 2, 0.5)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1"),
        ({"local_steps": 1.5}, "local_steps must be an integer"),
        ({"task_batch": 0}, "task_batch must be an integer"),
        ({"lr": -1.0}, "lr must be a positive number"),
    ],
)
def test_plans_that_cannot_be_are_refused(other: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**other)


def test_another_plan_is_refused_with_what_differs() -> None:
    plan().refuse_other(plan())
    with pytest.raises(CheckpointError, match=r"but lr \(was 0.01, now 0.02\); samples \(was 2, now 3\)$"):
        plan().refuse_other(plan(lr=0.02, samples=3))


def test_terms_add_up() -> None:
    terms = HierarchyTerms(nll=1.0, kl=2.0, hyper_kl=4.0)
    assert terms.total == 7.0
    assert terms.elbo == -7.0
