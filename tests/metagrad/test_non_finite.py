"""A number that is not finite stops a task and says where; and what can be refused at the door is refused there."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metaprior.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from metaprior.metagrad import (
    AmortizedELBO,
    Descent,
    MetaGradient,
    NonFinite,
    Problem,
    adapt,
    keeping,
    truncated,
)
from metaprior.metagrad.finite import damage, first_non_finite
from metaprior.metagrad.problem import Engine
from metaprior.network import BayesianNetwork
from metaprior.tasks.task import Examples, Task
from tests.metagrad.problems import ENGINES, EVERY, Case, make_case

every_engine = pytest.mark.parametrize("engine", EVERY.values(), ids=EVERY)


def linear_case(**inner: Any) -> Case:
    torch.manual_seed(0)
    return make_case(nn.Linear(2, 2).double(), inner=Descent(**inner))


@every_engine
def test_an_inner_loop_that_explodes_names_the_step(engine: Engine) -> None:
    failure = engine(*linear_case(steps=5, lr=1e200))
    assert isinstance(failure, NonFinite)
    assert (failure.task, failure.step, failure.term) == ("a task", 1, "nll")
    assert not math.isfinite(failure.value)
    text = str(failure)
    for piece in ("a task", "nll", "inner step 1", "smaller inner lr", "nothing of this task was used"):
        assert piece in text, text


@every_engine
def test_an_infinite_kl_is_named_too(engine: Engine) -> None:
    """Inputs of zero: the data say nothing, but a prior without width has no KL."""
    case = linear_case(steps=3, lr=1e-3)
    theta = case.theta.replace(rho=case.theta.rho.clone())
    theta.rho[2] = -800.0
    failure = engine(*case.replace(theta=theta))
    assert isinstance(failure, NonFinite)
    assert (failure.step, failure.term) == (0, "kl")


@every_engine
def test_an_explosion_in_the_last_step_shows_outside(engine: Engine) -> None:
    failure = engine(*linear_case(steps=1, lr=1e200))
    assert isinstance(failure, NonFinite)
    assert (failure.step, failure.term) == ("outer", "nll_query")
    assert "(outer)" in str(failure)


@every_engine
def test_targets_past_the_door(engine: Engine) -> None:
    case = make_case("tanh", objective=AmortizedELBO(3))
    y = case.task.query.y.clone()
    y[1, 0] = math.inf
    bad = case.task._replace(query=case.task.query._replace(y=y))
    with pytest.raises(ValueError, match=r"a task: query: y has 1 infinite values out of 4.*index \(1, 0\)"):
        case.problem.check(bad)
    failure = engine(*case.replace(task=bad))
    assert isinstance(failure, NonFinite)
    assert (failure.step, failure.term) == ("outer", "nll_query")
    bad = case.task._replace(support=case.task.support._replace(y=torch.full_like(case.task.support.y, math.inf)))
    failure = engine(*case.replace(task=bad))
    assert isinstance(failure, NonFinite)
    assert (failure.step, failure.term) == (0, "nll")


class Root(nn.Module):
    """Has a value everywhere, and no derivative at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).abs().sqrt()


@every_engine
def test_a_gradient_that_does_not_exist_is_no_gradient_of_zero(engine: Engine) -> None:
    case = make_case(Root().double(), inner=Descent(steps=2, lr=1e-4))
    bad = case.task._replace(query=case.task.query._replace(x=torch.zeros_like(case.task.query.x)))
    failure = engine(*case.replace(task=bad))
    assert isinstance(failure, NonFinite)
    assert (failure.step, failure.term) == ("sweep", "gradient by mu")
    assert isinstance(engine(*case), MetaGradient), "and where it exists, there is nothing to report"


def test_adaptation_reports_it_as_well() -> None:
    problem, theta, task, noise = linear_case(steps=5, lr=1e200)
    failure = adapt(problem, theta, task.support, noise)
    assert isinstance(failure, NonFinite)
    assert (failure.step, failure.term) == (1, "nll")


def problem_for(likelihood: Likelihood, outputs: int = 2) -> Problem:
    return Problem(BayesianNetwork(nn.Linear(3, outputs).double()), likelihood)


def examples(y: Tensor, x: Tensor | None = None) -> Examples:
    return Examples(torch.ones(4, 3, dtype=torch.float64) if x is None else x, y)


GOOD = torch.zeros(4, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("likelihood", "bad", "error", "message"),
    [
        (Gaussian(noise=1.0), examples(torch.zeros(4, 3)), ValueError, r"shape \(N, 2\).*\(4, 3\)"),
        (Gaussian(noise=1.0), examples(torch.zeros(5, 2)), ValueError, "x has 4 observations and y has 5"),
        (Gaussian(noise=1.0), examples(GOOD, torch.ones(4, 7).double()), ValueError, r"observation of shape \(7,\)"),
        (Gaussian(noise=1.0), examples(GOOD, torch.full((4, 3), math.nan)), ValueError, "x has 12 NaN"),
        (Gaussian(noise=1.0), examples(GOOD, torch.ones(4, 3).long()), TypeError, "x holds integers"),
        (Categorical(), examples(torch.zeros(4)), TypeError, "class labels must be integers"),
        (
            Categorical(),
            examples(torch.tensor([0, 1, 2, 1])),
            ValueError,
            "labels must be 0..1, one for each logit, got 0 to 2",
        ),
        (Bernoulli(), examples(GOOD + 0.5), ValueError, "labels must be 0 or 1"),
        (
            Gaussian(noise=1.0),
            Examples([[1.0]], GOOD),
            TypeError,
            "torch tensor, a NumPy array or a data frame, got list",
        ),
    ],
)
@pytest.mark.parametrize("part", ["support", "query"])
def test_the_door_names_task_and_set(
    likelihood: Likelihood, bad: Examples, error: type[Exception], message: str, part: str
) -> None:
    labels = isinstance(likelihood, Categorical)
    good = examples(torch.zeros(4, dtype=torch.long) if labels else GOOD)
    task = Task(good, good, "wine 7")._replace(**{part: bad})
    with pytest.raises(error, match=f"wine 7: {part}: .*{message}"):
        problem_for(likelihood).check(task)


def test_the_door_converts_to_the_networks_type() -> None:
    single = examples(torch.zeros(4, 2), torch.ones(4, 3))
    checked = problem_for(Gaussian(noise=1.0)).check(Task(single, single, "t"))
    assert {tensor.dtype for part in checked[:2] for tensor in part} == {torch.float64}
    assert checked.name == "t"
    column = examples(torch.zeros(4))
    assert problem_for(Gaussian(noise=1.0), 1).check(Task(column, column)).query.y.shape == (4, 1)
    labels = examples(torch.zeros(4, dtype=torch.int32))
    assert problem_for(Categorical()).check(Task(labels, labels)).support.y.dtype == torch.int64


def test_noise_of_a_layers_own_is_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).double()
    with pytest.raises(ValueError, match=r"layer '1' \(Dropout\) draws noise of its own"):
        Problem(BayesianNetwork(module), Gaussian())
    with pytest.raises(ValueError, match=r"RReLU"):
        Problem(BayesianNetwork(nn.Sequential(nn.Linear(2, 2), nn.RReLU())), Gaussian())
    Problem(BayesianNetwork(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))), Gaussian())
    case = make_case(module.eval(), Gaussian())
    assert isinstance(ENGINES["mixed"](*case), MetaGradient)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": -1}, "steps must be an integer of at least 0, got -1"),
        ({"steps": 1.5}, "steps must be an integer"),
        ({"samples": 0}, "samples must be an integer of at least 1"),
        ({"lr": 0.0}, "lr must be a positive number, got 0.0"),
        ({"lr": math.nan}, "lr must be"),
        ({"lr": math.inf}, "lr must be"),
        ({"momentum": 1.0}, "momentum must be at least 0 and less than 1"),
        ({"momentum": -0.1}, "momentum"),
        ({"momentum": math.nan}, "momentum"),
        ({"kl_weight": -1.0}, "kl_weight must be a number of at least 0"),
        ({"kl_weight": math.inf}, "kl_weight"),
        ({"learn_lr": "each"}, "learn_lr must be 'no', 'one' or 'per_tensor'"),
        ({"adapt": "("}, "is not a regular expression"),
    ],
)
def test_inner_loops_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Descent(**arguments)


def test_other_arguments_that_cannot_be() -> None:
    for arguments in ({"num_tasks": 0}, {"num_tasks": 3, "samples": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            AmortizedELBO(**arguments)
    with pytest.raises(ValueError, match="micro_batch must be an integer of at least 1, got 0"):
        Problem(BayesianNetwork(nn.Linear(1, 1)), Gaussian(), micro_batch=0)
    for engine in (keeping, truncated):
        with pytest.raises(ValueError, match="steps must be an integer of at least 0, got -1"):
            engine(-1)


def test_true_and_false_for_learned_step_sizes() -> None:
    assert Descent(learn_lr=True).learn_lr == "per_tensor"
    assert Descent(learn_lr=False).learn_lr == "no"


# --- the quick look at everything together ----------------------------------------------------------------------------


def whole_task() -> Task:
    generator = torch.Generator().manual_seed(0)
    numbers = [torch.randn(4, 3, generator=generator) for _ in range(4)]
    return Task(Examples(*numbers[:2]), Examples(*numbers[2:]), "whole")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("place", "term"), [*enumerate(["support x", "support y", "query x", "query y"])])
def test_damage_is_found_wherever_it_is_and_missing_targets_are_none(place: int, term: str, value: float) -> None:
    task = whole_task()
    assert damage(task) is None
    [*task.support, *task.query][place][2, 1] = value
    found = damage(task)
    if math.isnan(value) and term.endswith("y"):
        assert found is None, "a missing target"
        return
    assert found is not None
    assert (found.task, found.step, found.term) == ("whole", "data", term)
    assert found.value == value or math.isnan(value)


def test_infinite_values_that_cancel_in_a_sum_are_found_behind_missing_targets() -> None:
    task = whole_task()
    task.support.y[0] = math.nan
    task.query.x[0, 0], task.query.x[3, 2] = math.inf, -math.inf
    found = damage(task)
    assert found is not None
    assert (found.term, found.value) == ("query x", math.inf)


def test_large_numbers_whose_sum_overflows_are_finite() -> None:
    largest = torch.full((5,), torch.finfo(torch.float32).max)
    assert first_non_finite({"a": largest, "b": -largest}, "task", 0) is None
    found = first_non_finite({"a": largest, "b": torch.tensor([1.0, math.nan])}, "task", 3)
    assert found is not None
    assert (found.step, found.term) == (3, "b")


def test_integers_and_empty_sets_are_finite() -> None:
    labels, empty = torch.tensor([1, -100, 3]), torch.zeros(0, 3)
    assert first_non_finite({"labels": labels, "none": empty, "flags": labels > 0}, "task", 0) is None
    assert damage(Task(Examples(empty, empty[:, 0]), Examples(torch.ones(3, 2), labels))) is None


def test_only_where_something_is_wrong_are_tensors_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Tensor] = []
    look = Tensor.isfinite
    monkeypatch.setattr(Tensor, "isfinite", lambda value: looked_at.append(value) or look(value))
    task = whole_task()
    gradients = {str(number): torch.ones(3, requires_grad=True) for number in range(40)}
    assert damage(task) is None
    assert first_non_finite(gradients, "task", 0) is None
    assert looked_at == []
    task.query.y[0, 0] = math.inf
    assert damage(task) is not None
    assert looked_at
