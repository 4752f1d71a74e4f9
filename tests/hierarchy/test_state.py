from typing import Any

import pytest
import torch
from torch import Tensor

from metaprior.errors import CheckpointError
from metaprior.hierarchy.hyper_posterior import HyperPosterior, PosteriorSums
from metaprior.hierarchy.local_descent import SharedParameters
from metaprior.hierarchy.state import FitPlan, HierarchyTerms, State, refuse_other_plan, restored

PLAN = {
    "epochs": 3,
    "local_steps": 4,
    "task_batch": 2,
    "batch_size": 8,
    "lr": 0.01,
    "samples": 2,
    "kl_warmup": 0.5,
}


def plan(**other: Any) -> FitPlan:
    return FitPlan(**{**PLAN, **other})


def vector(seed: int) -> Tensor:
    return torch.rand(5, generator=torch.Generator().manual_seed(seed))


def test_a_posteriors_steps_are_those_of_all_its_visits() -> None:
    local = plan().local()
    assert (local.steps, local.batch_size, local.lr, local.samples, local.kl_warmup) == (12, 8, 0.01, 2, 0.5)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"epochs": 0}, "epochs has to be a whole number, at least 1"),
        ({"local_steps": 1.5}, "local_steps has to be a whole number"),
        ({"task_batch": 0}, "task_batch has to be a whole number"),
        ({"batch_size": 0}, "batch_size has to be a whole number"),
        ({"lr": -1.0}, "lr has to be a positive number"),
        ({"samples": True}, "samples has to be a whole number"),
        ({"kl_warmup": -0.1}, "kl_warmup is a fraction"),
    ],
)
def test_plans_that_cannot_be_are_refused(other: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**other)


def test_another_plan_is_refused_with_what_differs() -> None:
    refuse_other_plan(plan(), plan())
    with pytest.raises(CheckpointError, match=r"but lr \(was 0.01, now 0.02\); samples \(was 2, now 3\)$"):
        refuse_other_plan(plan(), plan(lr=0.02, samples=3))


def test_a_state_comes_back_from_what_it_says_of_itself() -> None:
    shared = SharedParameters({"likelihood.rho": vector(1), "bias": vector(2)})
    for value in shared.values.values():
        value.grad = torch.ones_like(value)
    shared.step(0.1)
    sums = PosteriorSums(3, vector(7).double(), vector(8).double())
    history = [HierarchyTerms(1.0, 2.0, 3.0), HierarchyTerms(0.5, 1.5, 2.5)]
    psi = HyperPosterior(*map(vector, range(3, 7)))
    state = State(psi, sums, shared, plan(), 5, False, True, history)
    again = restored(state.tensors(), state.description(), shared.detached(), True)
    for one, other in zip((*again.psi, *again.sums[1:]), (*psi, *sums[1:]), strict=True):
        assert torch.equal(one, other)
    assert again.sums.tasks == 3
    assert (again.plan, again.rounds, again.finished, again.scalar_targets) == (plan(), 5, False, True)
    assert again.history == history
    assert again.shared.steps == 1
    assert {name: value.tolist() for name, value in again.shared.moments.items()} == {
        name: value.tolist() for name, value in shared.moments.items()
    }


def test_terms_add_up() -> None:
    terms = HierarchyTerms(nll=1.0, kl=2.0, hyper_kl=4.0)
    assert terms.total == 7.0
    assert terms.elbo == -7.0


def test_nothing_is_known_before_the_first_fit() -> None:
    state = State(HyperPosterior(*map(vector, range(4))), PosteriorSums.nothing(vector(0)), SharedParameters({}))
    with pytest.raises(ValueError, match="call fit"):
        _ = state.fit_plan
