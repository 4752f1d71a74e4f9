"""No graph and no tensor outlives a call, and what a call holds grows by one vector of D numbers for each step."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from metaprior.likelihoods import Gaussian
from metaprior.metagrad import (
    AmortizedELBO,
    Descent,
    NonFinite,
    QueryLoss,
    adapt,
    first_order,
    truncated,
    unrolled,
)
from metaprior.metagrad.problem import Engine
from metaprior.weights import WeightDistribution
from tests.metagrad.problems import ENGINES, EVERY, Case, make_case, solved

every_engine = pytest.mark.parametrize("engine", EVERY.values(), ids=EVERY)
SWEEPS = {name: engine for name, engine in EVERY.items() if name in ("mixed", "twice_reverse", "finite_difference")}


def rich_case() -> Case:
    """Something of everything: a trunk, fixed and adapted plain parameters, momentum, step sizes, samples."""
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    inner = Descent(steps=4, lr=5e-3, momentum=0.5, learn_lr="per_tensor", samples=2, adapt=r"4\.bias|likelihood\.rho")
    return make_case(module, Gaussian(), inner, AmortizedELBO(3, 2), stochastic=r"(2|4)\.weight", micro_batch=2)


def tensors(distribution: WeightDistribution) -> dict[str, Tensor]:
    return distribution.named()


@contextmanager
def only_reference_counts() -> Iterator[None]:
    """Nothing is freed but by its last reference going away."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def living_tensors() -> int:
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


@every_engine
def test_no_tensor_outlives_a_call(engine: Engine) -> None:
    case = rich_case()
    engine(*case)  # what is made once, and kept
    with only_reference_counts():
        before = living_tensors()
        for _ in range(3):
            engine(*case)
        assert living_tensors() == before


@every_engine
def test_no_tensor_outlives_a_call_that_fails(engine: Engine) -> None:
    case = make_case(nn.Linear(2, 2).double(), inner=Descent(steps=4, lr=1e200))
    assert isinstance(engine(*case), NonFinite)
    with only_reference_counts():
        before = living_tensors()
        for _ in range(3):
            engine(*case)
        assert living_tensors() == before


@every_engine
def test_activations_die_with_the_call(engine: Engine) -> None:
    alive: list[weakref.ref[Tensor]] = []

    class Spy(nn.Tanh):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            alive.append(weakref.ref(out))
            return out

    case = make_case(nn.Sequential(nn.Linear(2, 3), Spy(), nn.Linear(3, 2)).double())
    engine(*case)
    alive.clear()
    with only_reference_counts():
        result = engine(*case)
        assert len(alive) > 5
        assert not [ref for ref in alive if ref() is not None]
    assert not isinstance(result, NonFinite)


@every_engine
@pytest.mark.parametrize("leaves", [False, True], ids=["plain tensors", "leaves of a graph"])
def test_results_have_no_graph_and_arguments_are_left_alone(engine: Engine, leaves: bool) -> None:
    """Whatever the caller's theta is, and whether or not he records gradients."""
    case = rich_case()
    if leaves:
        case = case.replace(theta=case.theta.map(lambda value: value.clone().requires_grad_()))
    parameters = {name: p.detach().clone() for name, p in case.problem.network.module.named_parameters()}
    before = {name: value.detach().clone() for name, value in tensors(case.theta).items()}
    data = [tensor.clone() for part in case.task[:2] for tensor in part]
    result = solved(engine, case)
    found = {**tensors(result.grads), "loss": result.loss, **result.terms._asdict(), **result.inner._asdict()}
    for name, value in found.items():
        assert value.grad_fn is None, f"{name} carries a graph"
        assert not value.requires_grad, name
    for name, value in tensors(case.theta).items():
        assert torch.equal(value, before[name]), f"theta's {name} was changed"
        assert value.requires_grad == leaves
        assert value.grad is None
        assert value.data_ptr() != tensors(result.grads)[name].data_ptr()
    for name, parameter in case.problem.network.module.named_parameters():
        assert torch.equal(parameter, parameters[name])
        assert parameter.grad is None
    for tensor, old in zip([tensor for part in case.task[:2] for tensor in part], data, strict=True):
        assert torch.equal(tensor, old)


@every_engine
def test_answer_does_not_depend_on_the_callers_grad_mode(engine: Engine) -> None:
    case = rich_case()
    expected = solved(engine, case)
    with torch.no_grad():
        result = solved(engine, case)
    for name, value in tensors(expected.grads).items():
        assert torch.equal(tensors(result.grads)[name], value), name


@pytest.mark.parametrize("steps", [None, 0, 2])
def test_adapted_weights_have_no_graph_and_are_nobody_elses(steps: int | None) -> None:
    problem, theta, task, noise = rich_case()
    theta = theta.map(lambda value: value.clone().requires_grad_())
    adapted = adapt(problem, theta, task.support, noise, steps=steps)
    assert tensors(adapted).keys() == tensors(theta).keys()
    moves = {"mu", "rho", "plain.4.bias", "plain.likelihood.rho"}
    for name, value in tensors(adapted).items():
        assert value.grad_fn is None
        assert not value.requires_grad
        assert value.data_ptr() != tensors(theta)[name].data_ptr(), f"{name} is theta's own"
        assert torch.equal(value, tensors(theta)[name]) == (name not in moves or steps == 0), name


class LiveBytes(TorchDispatchMode):
    """Bytes of the storages that operations have made and that are still there."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in self._known:
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        self._known.add(storage._cdata)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


STEPS = (4, 9)


def growth(engine: Engine, **inner: Any) -> float:
    """By how many vectors of D numbers the peak grows with each inner step."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 1)).double()
    peaks = []
    for steps in STEPS:
        case = make_case(
            module, inner=Descent(steps=steps, lr=1e-6, **inner), objective=QueryLoss(), inputs=(100,), support=1
        )
        with only_reference_counts(), LiveBytes() as live:
            solved(engine, case)
        peaks.append(live.peak)
    return (peaks[1] - peaks[0]) / (STEPS[1] - STEPS[0]) / (8 * len(case.theta.mu))


@pytest.mark.parametrize("engine", SWEEPS.values(), ids=SWEEPS)
def test_a_step_more_costs_one_vector(engine: Engine) -> None:
    assert growth(engine) == pytest.approx(1, abs=0.1)
    assert growth(engine, samples=3) == pytest.approx(2, abs=0.1), "g, and the mean of noise * g"


@pytest.mark.parametrize("engine", SWEEPS.values(), ids=SWEEPS)
def test_a_step_more_costs_one_vector_with_momentum_too(engine: Engine) -> None:
    assert growth(engine, momentum=0.7) == pytest.approx(1, abs=0.1)


def test_full_unrolling_costs_many() -> None:
    assert growth(unrolled) > 8


@pytest.mark.parametrize("engine", [first_order, truncated(2)], ids=["first_order", "truncated(2)"])
def test_steps_that_are_not_differentiated_cost_nothing(engine: Engine) -> None:
    assert growth(engine) == pytest.approx(0, abs=0.05)


def test_checkpoints_cost_mean_and_scale() -> None:
    assert 1.5 < growth(ENGINES["checkpointed"]) < 6


@every_engine
def test_nothing_is_alive_but_the_result(engine: Engine) -> None:
    case = rich_case()
    with only_reference_counts(), LiveBytes() as live:
        engine(*case)
        arguments = live.now  # operations hand out their storages too
        result = engine(*case)
        assert live.now > arguments
        del result
        assert live.now == arguments
