"""Inner loops whose result can be written down: quadratic data losses of a single weight, f(x) = phi x."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from metaprior.likelihoods import NOISE_RHO, Gaussian, HeteroscedasticGaussian
from metaprior.metagrad import AmortizedELBO, Descent, Problem, QueryLoss, adapt, first_order, truncated, unrolled
from metaprior.metagrad.problem import Engine
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution, inverse_softplus, kl_divergence
from tests.metagrad.problems import ENGINES, Case, make_case, solved

ALL_EXACT: dict[str, Engine] = {"unrolled": unrolled, **ENGINES}
exact = pytest.mark.parametrize("engine", ALL_EXACT.values(), ids=ALL_EXACT)
LR, SCALE, START = 0.05, 0.8, 1.7
NO_SPREAD = -60.0
"""A rho whose sigma is 1e-26: the weight is its mean."""


@dataclass(frozen=True)
class ConstantNoise(Noise):
    """The same number for every step, sample and weight."""

    value: float = 0.0

    def normal(self, like: Tensor) -> Tensor:
        return torch.full_like(like, self.value)

    def in_parts(self, like: Tensor, parts: Iterable[slice]) -> Iterator[Tensor]:
        return (self.normal(like)[part] for part in parts)


@dataclass(frozen=True)
class Quadratic:
    """Mean loss of a set: (a phi**2 / 2 - b phi) + constant."""

    a: float
    b: float

    @classmethod
    def of(cls, examples: Examples) -> "Quadratic":
        x, y = examples
        return cls(float((x * x).mean()) / SCALE**2, float((x * y).mean()) / SCALE**2)

    def slope(self, phi: float) -> float:
        return self.a * phi - self.b


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


SUPPORT = Examples(column(0.5, -1.0, 2.0), column(0.3, 0.9, -1.4))
QUERY = Examples(column(1.5, 0.7), column(-0.6, 2.0))
INSIDE, OUTSIDE = Quadratic.of(SUPPORT), Quadratic.of(QUERY)


def quadratic_case(inner: Descent, rho: float, noise: Noise, log_lr: Tensor | None = None) -> Case:
    network = BayesianNetwork(nn.Linear(1, 1, bias=False).double())
    problem = Problem(network, Gaussian(noise=SCALE), inner, QueryLoss())
    theta = WeightDistribution(column(START)[0], column(rho)[0], {}, log_lr)
    return Case(problem, theta, Task(SUPPORT, QUERY, "quadratic"), noise)


def scalar(value: Tensor) -> float:
    return float(value.squeeze())


def same(value: Tensor | float, expected: float) -> None:
    assert float(value) == pytest.approx(expected, rel=1e-11, abs=1e-18)


@exact
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 9, 17])
def test_factor_is_one_minus_lr_times_curvature_to_the_k(engine: Engine, steps: int) -> None:
    inner = Descent(steps=steps, lr=LR, learn_lr="one", kl_weight=0)
    case = quadratic_case(inner, NO_SPREAD, Noise(), torch.tensor(math.log(LR), dtype=torch.float64))
    ratio, best = 1 - LR * INSIDE.a, INSIDE.b / INSIDE.a
    assert 0.3 < ratio < 0.95
    last = best + ratio**steps * (START - best)
    result = solved(engine, case)
    same(scalar(result.grads.mu), OUTSIDE.slope(last) * ratio**steps)
    by_log_lr = OUTSIDE.slope(last) * steps * ratio ** (steps - 1) * (-LR * INSIDE.a) * (START - best)
    same(result.grads.log_lr, by_log_lr)
    residual = QUERY.y - last * QUERY.x
    constant = math.log(SCALE) + 0.5 * math.log(2 * math.pi)
    same(result.loss, float((0.5 * residual**2 / SCALE**2).mean()) + constant)
    for step, nll in enumerate(result.inner.nll):
        residual = SUPPORT.y - (best + ratio**step * (START - best)) * SUPPORT.x
        same(nll, float((0.5 * residual**2 / SCALE**2).mean()) + constant)


@pytest.mark.parametrize("through", [0, 1, 2, 4, 6, 7, 50])
def test_what_the_approximations_leave_out(through: int) -> None:
    steps = 7
    inner = Descent(steps=steps, lr=LR, learn_lr="one", kl_weight=0)
    case = quadratic_case(inner, NO_SPREAD, Noise(), torch.tensor(math.log(LR), dtype=torch.float64))
    ratio, best = 1 - LR * INSIDE.a, INSIDE.b / INSIDE.a
    through_last = min(through, steps)
    first = best + ratio ** (steps - through_last) * (START - best)
    last = best + ratio**steps * (START - best)
    by_log_lr = through_last * ratio ** (through_last - 1) * (-LR * INSIDE.a) * (first - best)
    by_log_lr += ratio**through_last * (first - START)
    for engine in [truncated(through), *([first_order] if through == 0 else [])]:
        result = solved(engine, case)
        assert not engine.exact
        same(scalar(result.grads.mu), OUTSIDE.slope(last) * ratio**through_last)
        same(result.grads.log_lr, OUTSIDE.slope(last) * by_log_lr)


@exact
@pytest.mark.parametrize("steps", [1, 3, 9, 12])
def test_momentum_is_a_power_of_a_matrix(engine: Engine, steps: int) -> None:
    beta = 0.7
    inner = Descent(steps=steps, lr=LR, learn_lr="one", momentum=beta, kl_weight=0)
    case = quadratic_case(inner, NO_SPREAD, Noise(), torch.tensor(math.log(LR), dtype=torch.float64))
    best = INSIDE.b / INSIDE.a

    def power(lr: float) -> np.ndarray:  # of the step (lambda - best, m) -> (lambda - best, m)
        return np.linalg.matrix_power(np.array([[1 - lr * INSIDE.a, -lr * beta], [INSIDE.a, beta]]), steps)

    factor = power(LR)[0, 0]
    last = best + factor * (START - best)
    result = solved(engine, case)
    same(scalar(result.grads.mu), OUTSIDE.slope(last) * factor)
    by_lr = (power(LR + 1e-6)[0, 0] - power(LR - 1e-6)[0, 0]) / 2e-6
    expected = OUTSIDE.slope(last) * by_lr * (START - best) * LR
    assert float(result.grads.log_lr) == pytest.approx(expected, rel=1e-7)


@exact
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_prior_pulls_the_mean_back(engine: Engine, steps: int) -> None:
    """Without noise sigma never moves, and the mean runs to a weighted average of the data's and the prior's."""
    sigma, kl_weight = 0.6, 0.9
    rho = scalar(inverse_softplus(torch.tensor(sigma, dtype=torch.float64)))
    w, p = kl_weight / len(SUPPORT.x), sigma**-2
    case = quadratic_case(Descent(steps=steps, lr=LR, kl_weight=kl_weight, damped=False), rho, ConstantNoise())
    stiff = INSIDE.a + w * p
    ratio, share, best = 1 - LR * stiff, w * p / stiff, (INSIDE.b + w * p * START) / stiff
    last = best + ratio**steps * (START - best)
    result = solved(engine, case)
    same(scalar(result.grads.mu), OUTSIDE.slope(last) * (share + ratio**steps * (1 - share)))
    best_by_p = w * (INSIDE.a * START - INSIDE.b) / stiff**2
    last_by_p = best_by_p * (1 - ratio**steps) - steps * ratio ** (steps - 1) * LR * w * (START - best)
    slope = 1 / (1 + math.exp(-rho))
    expected = OUTSIDE.slope(last) * last_by_p * (-2 * sigma**-3) * slope
    assert scalar(result.grads.rho) == pytest.approx(expected, rel=1e-10, abs=1e-14)
    away = torch.tensor([ratio**step for step in range(steps)], dtype=torch.float64) * (START - best) + best - START
    torch.testing.assert_close(result.inner.kl, w * p * away**2 / 2, rtol=1e-9, atol=1e-14)


@exact
@pytest.mark.parametrize("sigma", [0.6, 1e-3])
def test_damped_steps_do_not_overshoot_a_steep_prior(engine: Engine, sigma: float) -> None:
    """The same recursion with alpha / (1 + alpha w p); alpha w p is 2.7e5 for the small sigma, where plain steps
    explode."""
    steps, kl_weight = 6, 0.9
    rho = scalar(inverse_softplus(torch.tensor(sigma, dtype=torch.float64)))
    w = kl_weight / len(SUPPORT.x)
    inner = Descent(steps=steps, lr=LR, kl_weight=kl_weight, learn_lr="one")
    log_lr = math.log(LR)

    def last(start: float, sigma: float, log_lr: float) -> float:
        p, alpha = sigma**-2, math.exp(log_lr)
        stiff = INSIDE.a + w * p
        best = (INSIDE.b + w * p * START) / stiff
        return best + (1 - alpha / (1 + alpha * w * p) * stiff) ** steps * (start - best)

    case = quadratic_case(inner, rho, ConstantNoise(), torch.tensor(log_lr, dtype=torch.float64))
    result, end = solved(engine, case), last(START, sigma, log_lr)
    assert abs(end - START) < abs(INSIDE.b / INSIDE.a - START)
    stiff = INSIDE.a + w * sigma**-2
    ratio, share = 1 - LR / (1 + LR * w * sigma**-2) * stiff, w * sigma**-2 / stiff
    assert scalar(result.grads.mu) == pytest.approx(OUTSIDE.slope(end) * (share + ratio**steps * (1 - share)), rel=1e-9)
    slope, h = 1 / (1 + math.exp(-rho)), 1e-6
    by_sigma = (last(START, sigma * (1 + h), log_lr) - last(START, sigma * (1 - h), log_lr)) / (2 * h * sigma)
    by_log_lr = (last(START, sigma, log_lr + h) - last(START, sigma, log_lr - h)) / (2 * h)
    assert scalar(result.grads.rho) == pytest.approx(OUTSIDE.slope(end) * by_sigma * slope, rel=1e-4, abs=1e-12)
    expected = OUTSIDE.slope(end) * by_log_lr
    assert float(result.grads.log_lr) == pytest.approx(expected, rel=1e-4, abs=1e-12)


@exact
@pytest.mark.parametrize("steps", [1, 5, 9])
def test_noise_moves_the_mean_and_the_scale_together(engine: Engine, steps: int) -> None:
    """Where softplus is the identity, phi = mu + rho * noise, and both are moved along (1, noise)."""
    noise, rho = 0.4, 50.0
    inner = Descent(steps=steps, lr=LR / 3, learn_lr="one", kl_weight=0)
    log_lr = torch.tensor(math.log(LR / 3), dtype=torch.float64)
    case = quadratic_case(inner, rho, ConstantNoise(value=noise), log_lr)
    pace = INSIDE.a * (1 + noise**2)
    ratio, best, start = 1 - LR / 3 * pace, INSIDE.b / INSIDE.a, START + rho * noise
    last = best + ratio**steps * (start - best)
    result = solved(engine, case)
    same(scalar(result.grads.mu), OUTSIDE.slope(last) * ratio**steps)
    same(scalar(result.grads.rho), OUTSIDE.slope(last) * noise * ratio**steps)
    by_log_lr = OUTSIDE.slope(last) * steps * ratio ** (steps - 1) * (-LR / 3 * pace) * (start - best)
    same(result.grads.log_lr, by_log_lr)


@exact
@pytest.mark.parametrize("kl_weight", [0.0, 1.0])
def test_one_step_with_noise(engine: Engine, kl_weight: float) -> None:
    """Bent by softplus; the KL has no say in the first step, because lambda is still theta."""
    noise, rho = -0.9, -0.5
    inner = Descent(steps=1, lr=LR, kl_weight=kl_weight, damped=False)
    case = quadratic_case(inner, rho, ConstantNoise(value=noise))

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    bend = sigmoid(rho) * (1 - sigmoid(rho))
    pull = INSIDE.slope(START + math.log1p(math.exp(rho)) * noise)
    mu, new_rho = START - LR * pull, rho - LR * sigmoid(rho) * noise * pull
    outer = OUTSIDE.slope(mu + math.log1p(math.exp(new_rho)) * noise)
    reach = sigmoid(new_rho) * noise
    a = INSIDE.a
    by_mu = (1 - LR * a) + reach * (-LR * sigmoid(rho) * noise * a)
    by_rho = -LR * a * sigmoid(rho) * noise
    by_rho += reach * (1 - LR * noise * (bend * pull + sigmoid(rho) ** 2 * a * noise))
    result = solved(engine, case)
    same(scalar(result.grads.mu), outer * by_mu)
    same(scalar(result.grads.rho), outer * by_rho)


@exact
def test_without_steps_the_elbo_is_the_prior_itself(engine: Engine) -> None:
    case = make_case("tanh", Gaussian(), Descent(steps=0), AmortizedELBO(num_tasks=3))
    problem, theta, task, noise = case
    result = solved(engine, case)
    phi = theta.sample(noise.fork("outer").normal(theta.mu))
    for part in ("support", "query"):
        x, y = getattr(task, part)
        nll = problem.likelihood.nll(problem.network(phi, theta.plain, x), y, theta.plain).sum() / 5
        torch.testing.assert_close(getattr(result.terms, f"nll_{part}"), nll, rtol=1e-12, atol=0)
    same(result.terms.kl, 0)
    hyperprior = -problem.objective.hyperprior.log_prob(theta) / (3 * 5)
    torch.testing.assert_close(result.terms.hyperprior, hyperprior, rtol=1e-12, atol=0)
    torch.testing.assert_close(result.loss, sum(result.terms), rtol=1e-12, atol=0)


@exact
def test_outer_terms_are_those_of_the_adapted_weights(engine: Engine) -> None:
    case = make_case("tanh", Gaussian(), Descent(steps=6, lr=5e-3, momentum=0.7), AmortizedELBO(4, 2))
    problem, theta, task, noise = case
    q, result = adapt(problem, theta, task.support, noise), solved(engine, case)
    torch.testing.assert_close(result.terms.kl, kl_divergence(q, theta) / 5, rtol=1e-10, atol=0)
    phis = [q.sample(noise.fork("outer").at(sample=number).normal(q.mu)) for number in (0, 1)]
    for part in ("support", "query"):
        x, y = getattr(task, part)
        nll = [problem.likelihood.nll(problem.network(phi, q.plain, x), y, q.plain).sum() / 5 for phi in phis]
        torch.testing.assert_close(getattr(result.terms, f"nll_{part}"), sum(nll) / 2, rtol=1e-10, atol=0)
    assert not torch.equal(q.plain[NOISE_RHO], theta.plain[NOISE_RHO]), "the noise scale is adapted"


@exact
@pytest.mark.parametrize(
    "case",
    [
        make_case("tanh", Gaussian(), Descent(steps=4, lr=5e-3, learn_lr="per_tensor", momentum=0.7), AmortizedELBO(3)),
        make_case("conv", HeteroscedasticGaussian(), Descent(steps=3, lr=5e-3, samples=2), stochastic="[03].*"),
        make_case(
            "tanh", Gaussian(), Descent(steps=3, lr=5e-3, learn_lr="one", adapt=None), stochastic="2.*", micro_batch=2
        ),
    ],
    ids=["everything adapted", "convolutions", "a trunk"],
)
def test_numerical_differences_of_the_loss(engine: Engine, case: Case) -> None:
    theta, grads = case.theta, solved(engine, case).grads
    reach = 1e-5
    generator = torch.Generator().manual_seed(3)

    def loss_at(moved: WeightDistribution) -> float:
        return float(solved(engine, case.replace(theta=moved)).loss)

    def along(value: Tensor) -> Tensor:
        return torch.randn(value.shape, dtype=value.dtype, generator=generator)

    def check(name: str, grad: Tensor, direction: Tensor, ends: list[WeightDistribution]) -> None:
        slope = (loss_at(ends[0]) - loss_at(ends[1])) / (2 * reach)
        assert float((grad * direction).sum()) == pytest.approx(slope, rel=2e-6, abs=1e-7), name

    for name, value in theta.named().items():
        for _ in range(2 if name in ("mu", "rho") else 1):
            u = along(value)
            ends = [theta.from_named({**theta.named(), name: value + s * reach * u}) for s in (1, -1)]
            check(name, grads.named()[name], u, ends)
