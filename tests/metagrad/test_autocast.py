"""Autocast around an inner loop is refused; inside a module it is the user's own approximation."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metaprior.likelihoods import Gaussian
from metaprior.metagrad import Descent, MetaGradient, Problem, adapt, implicit, unrolled
from metaprior.metagrad.problem import Engine
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from tests.metagrad.problems import EVERY, make_case, solved

NETWORK = (nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize("engine", [*EVERY.values(), implicit], ids=[*EVERY, "implicit"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_engines_refuse_autocast(engine: Engine, dtype: torch.dtype) -> None:
    case = make_case("tanh")
    with (
        torch.autocast("cpu", dtype),
        pytest.raises(
            ValueError, match=r"autocast must be off around an inner loop, got torch\.autocast\('cpu', dtype="
        ),
    ):
        engine(*case)
    with torch.autocast("cpu", dtype), torch.autocast("cpu", enabled=False):
        solved(engine, case)


def test_adapting_refuses_it_too() -> None:
    problem, theta, task, noise = make_case("tanh")
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="Try `with"):
        adapt(problem, theta, task.support, noise)


def test_another_devices_autocast_is_no_concern_of_the_cpu() -> None:
    case = make_case("tanh")
    with torch.autocast("mps", torch.bfloat16):
        solved(EVERY["mixed"], case)


def test_a_module_may_turn_it_on_for_itself() -> None:
    class Rounded(nn.Sequential):
        def forward(self, x: Tensor) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x).float()

    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(8, 2, generator=draw), torch.randn(8, 2, generator=draw)

    def gradient(module: nn.Module) -> Tensor:
        problem = Problem(BayesianNetwork(module), Gaussian(noise=0.7), Descent(steps=3, lr=5e-3))
        task = problem.check(Task(Examples(x[:4], y[:4]), Examples(x[4:], y[4:])))
        value = unrolled(problem, problem.initial(y), task, Noise())
        assert isinstance(value, MetaGradient)
        return value.grads.mu

    found, expected = gradient(Rounded(*NETWORK)), gradient(nn.Sequential(*NETWORK))
    off = float((found - expected).norm() / expected.norm())
    assert 1e-4 < off < 0.2
