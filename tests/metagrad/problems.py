"""Tiny meta-learning problems in float64, and how two meta-gradients are compared."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metaprior.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from metaprior.metagrad import (
    Descent,
    MetaGradient,
    NonFinite,
    Problem,
    QueryLoss,
    checkpointed,
    finite_difference,
    first_order,
    keeping,
    mixed,
    truncated,
    twice_reverse,
    unrolled,
)
from metaprior.metagrad.problem import Engine, Objective
from metaprior.models.unet import UNet
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

ENGINES: dict[str, Engine] = {
    "checkpointed": checkpointed,
    "mixed": mixed,
    "twice_reverse": twice_reverse,
    "keeping(1)": keeping(1),
    "keeping(all)": keeping(10**6),
}
"""Every exact engine but ``unrolled``, which they are held against."""

EVERY: dict[str, Engine] = {
    "unrolled": unrolled,
    **ENGINES,
    "finite_difference": finite_difference,
    "first_order": first_order,
    "truncated(2)": truncated(2),
}

TOLERANCE = 1e-10
ROUNDING = 1e-14
"""Of the whole gradient, or of 1: what may be left in a tensor whose true gradient is zero."""


class Case(NamedTuple):
    """The four arguments of an engine."""

    problem: Problem
    theta: WeightDistribution
    task: Task
    noise: Noise

    def replace(self, **changes: Any) -> "Case":
        return self._replace(**changes)


def mlp(activation: type[nn.Module], outputs: int = 2, width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(2, width), activation(), nn.Linear(width, outputs))


def conv_net(outputs: int = 2) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, outputs, 1)
    )


def transposed_net(outputs: int = 2) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.Tanh(), nn.ConvTranspose2d(3, outputs, 2, stride=2)
    )


INPUTS = {"tanh": (2,), "relu": (2,), "conv": (1, 4, 4), "transposed": (1, 4, 4), "unet": (2, 8, 8)}


def build_module(kind: str) -> nn.Module:
    makers = {
        "tanh": lambda: mlp(nn.Tanh),
        "relu": lambda: mlp(nn.ReLU),
        "conv": conv_net,
        "transposed": transposed_net,
        "unet": lambda: UNet(2, 2, width=4, levels=2),
    }
    torch.manual_seed(0)
    return makers[kind]().double()


def targets_like(outputs: Tensor, likelihood: Likelihood, generator: torch.Generator) -> Tensor:
    """Targets that a likelihood can take for outputs of this shape."""
    if isinstance(likelihood, Categorical):
        shape = (len(outputs), *outputs.shape[2:])
        return torch.randint(outputs.shape[1], shape, generator=generator)
    if isinstance(likelihood, Bernoulli):
        return torch.randint(2, outputs.shape, generator=generator).double()
    if isinstance(likelihood, HeteroscedasticGaussian):
        outputs = outputs.chunk(2, 1)[0]
    return torch.randn(outputs.shape, dtype=torch.float64, generator=generator)


def make_case(
    module: nn.Module | str = "tanh",
    likelihood: Likelihood | None = None,
    inner: Descent | None = None,
    objective: Objective | None = None,
    *,
    stochastic: str = ".*",
    micro_batch: int | None = None,
    support: int = 3,
    query: int = 2,
    inputs: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Case:
    """A problem in which no two numbers of theta are alike, and a task for it."""
    shape = inputs or INPUTS[module if isinstance(module, str) else "tanh"]
    module = build_module(module) if isinstance(module, str) else module
    likelihood = likelihood or Gaussian(noise=0.7)
    inner = inner or Descent(steps=5, lr=5e-3)
    problem = Problem(BayesianNetwork(module, stochastic), likelihood, inner, objective or QueryLoss(), micro_batch)
    generator = torch.Generator().manual_seed(seed)

    def examples(count: int) -> Examples:
        x = torch.randn(count, *shape, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            outputs = module(x.clone())
        return Examples(x, targets_like(outputs, likelihood, generator))

    task = Task(examples(support), examples(query), "a task")
    theta = problem.initial(task.support.y, relative_sigma=0.3)
    return Case(problem, scattered(theta, generator), task, Noise(seed=seed))


def scattered(theta: WeightDistribution, generator: torch.Generator) -> WeightDistribution:
    """theta moved a little in every number, so that a tensor taken for another shows."""

    def move(value: Tensor, size: float) -> Tensor:
        return value + size * torch.randn(value.shape, dtype=value.dtype, generator=generator)

    sizes = {"mu": 0.05, "rho": 0.2, "log_lr": 0.4}
    return theta.from_named({name: move(value, sizes.get(name, 0.1)) for name, value in theta.named().items()})


def solved(engine: Engine, case: Case) -> MetaGradient:
    """The meta-gradient of a case in which every number is finite."""
    result = engine(*case)
    assert not isinstance(result, NonFinite), str(result)
    return result


def tensors_of(theta: WeightDistribution, problem: Problem) -> dict[str, Tensor]:
    """Every tensor by itself: the random ones' means and scales, the plain ones, the step sizes."""
    split = problem.network.layout.split
    means = {f"mu of {name}": value for name, value in split(theta.mu).items()}
    rest = {name: value for name, value in theta.named().items() if name not in ("mu", "rho")}
    return {**means, **{f"rho of {name}": value for name, value in split(theta.rho).items()}, **rest}


def assert_same(result: MetaGradient, expected: MetaGradient, problem: Problem, tolerance: float = TOLERANCE) -> None:
    """Losses and terms agree, and each gradient tensor by itself."""
    close = {"rtol": tolerance, "atol": ROUNDING}
    torch.testing.assert_close(result.loss, expected.loss, **close)
    for name, value in expected.terms._asdict().items():
        torch.testing.assert_close(getattr(result.terms, name), value, **close, msg=name)
    for name, value in expected.inner._asdict().items():
        torch.testing.assert_close(getattr(result.inner, name), value, rtol=tolerance, atol=1e-13, msg=name)
    assert_same_tensors(result.grads, expected.grads, problem, tolerance)


def assert_same_tensors(
    grads: WeightDistribution, expected: WeightDistribution, problem: Problem, tolerance: float = TOLERANCE
) -> None:
    """Relative difference of each tensor by itself."""
    assert list(grads.named()) == list(expected.named())
    found, wanted = tensors_of(grads, problem), tensors_of(expected, problem)
    whole = torch.stack([value.norm() for value in wanted.values()]).norm()
    assert whole > 0, "a gradient of zeros would show nothing"
    for name, value in wanted.items():
        assert found[name].shape == value.shape, name
        assert found[name].dtype == value.dtype, name
        allowed = tolerance * value.norm() + ROUNDING * max(1.0, float(whole))
        difference = (found[name] - value).norm()
        assert difference <= allowed, f"{name}: off by {difference:.2e}, where {allowed:.2e} is allowed"
