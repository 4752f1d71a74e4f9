import math
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.errors import TrainingDiverged
from metaprior.hierarchy.hyper_posterior import HyperPosterior
from metaprior.likelihoods import NOISE_RHO
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.objectives import geometric_shares
from metaprior.stack_descent import (
    DescentPlan,
    FreeEnergy,
    SharedParameters,
    Stack,
    StackDescent,
    new_record,
    visit,
)
from metaprior.tasks.task import Examples

NOWHERE = 1e-300
"""A learning rate that changes no number."""


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def network() -> BayesianNetwork:
    torch.manual_seed(0)
    return BayesianNetwork(mp.MLP(2, [4], 1).double())


NETWORK = network()


ENERGY = FreeEnergy(NETWORK, mp.Gaussian())


def stack(tasks: int = 1, size: int = 7) -> Stack:
    records = torch.stack([new_record(NETWORK.initial(0.3)) for _ in range(tasks)])
    data = [Examples(numbers(size, 2, seed=i), numbers(size, 1, seed=50 + i)) for i in range(tasks)]
    return Stack([f"task {i}" for i in range(tasks)], range(tasks), records, 0, data)


def shared() -> SharedParameters:
    return SharedParameters({NOISE_RHO: torch.tensor(0.2, dtype=torch.float64)})


def psi() -> HyperPosterior:
    return HyperPosterior.around(NETWORK.initial(0.5))


def descent(where: Stack, plan: DescentPlan, noise: Noise | None = None, common: SharedParameters | None = None) -> Any:
    return StackDescent(ENERGY, where, psi(), common or shared(), plan, noise or Noise(3))


def visited(where: Stack, plan: DescentPlan, steps: range | None = None, noise: Noise | None = None) -> Any:
    records, terms = visit(descent(where, plan, noise), steps or range(plan.steps))
    return SimpleNamespace(records=records, nll=terms.nll, kl=terms.kl)


@dataclass(frozen=True)
class OneDraw(Noise):
    """The same weight noise in every step."""

    def at(self, *, task: int | None = None, step: int | None = None, sample: int | None = None) -> Noise:
        return super().at(task=task, sample=sample)


@pytest.mark.parametrize(("size", "batch_size"), [(7, 3), (8, 2), (5, 4), (6, 6), (6, 100)])
def test_minibatches_of_a_pass_average_to_all_data(size: int, batch_size: int) -> None:
    """Exactly, also with a small last one: same weight noise, and nothing moves."""
    plan = DescentPlan(math.ceil(size / batch_size), batch_size, NOWHERE, samples=3)
    one, noise = stack(size=size), OneDraw(3)
    found = visited(one, plan, noise=noise)
    q = one.weights
    phis = q.mu.unsqueeze(1) + q.sigma.unsqueeze(1) * noise.at(task=0).normals(q.mu[0], range(3))
    data = Examples(one.data[0].x.unsqueeze(0), one.data[0].y.unsqueeze(0))
    torch.testing.assert_close(found.nll, ENERGY.nll(phis, data, shared().detached()), rtol=1e-12, atol=0)
    torch.testing.assert_close(found.kl, psi().kl_from(q), rtol=1e-12, atol=0)


def test_gradients_of_minibatches_average_to_that_of_all_data() -> None:
    """By the noise scale, whose steps are watched."""
    full, parts = watched(DescentPlan(1, 7, NOWHERE, samples=2)), watched(DescentPlan(3, 3, NOWHERE, samples=2))
    assert len(full) == 1
    assert len(parts) == 3
    torch.testing.assert_close(torch.stack(parts).mean(), full[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("kl_warmup", [0.0, 1.0])
def test_a_step_is_along_the_gradient_of_the_free_energy(kl_warmup: float) -> None:
    """Per observation, with the KL at its present warmth; seen in Adam's first moment after one step."""
    plan = DescentPlan(10, 7, NOWHERE, samples=2, kl_warmup=kl_warmup)
    found = visited(stack(), plan, range(1))
    expected = gradient_by_hand(1e-4**0.9 if kl_warmup else 1.0)
    torch.testing.assert_close(found.records[0, 2:4] / 0.1, expected, rtol=1e-9, atol=1e-12)


def watched(plan: DescentPlan) -> list[Tensor]:
    """Gradients by the noise scale at each step."""
    common, seen = shared(), list[Tensor]()

    def step(lr: float) -> None:
        gradient = common.values[NOISE_RHO].grad
        assert gradient is not None
        seen.append(gradient.clone())
        common.values[NOISE_RHO].grad = None

    common.step = step  # type: ignore[method-assign]
    visit(descent(stack(), plan, OneDraw(3), common), range(plan.steps), shared_lr=True)
    return seen


def gradient_by_hand(warmth: float) -> Tensor:
    """Of (nll + warmth KL)/N by mu and rho, (2, D)."""
    one = stack()
    q = mp.WeightDistribution(*(one.records[0, row].clone().requires_grad_() for row in (0, 1)), {})  # type: ignore[call-arg]
    x, y = one.data[0]
    nll = torch.zeros((), dtype=torch.float64)
    for epsilon in Noise(3).normals(q.mu, range(2)):
        plain = shared().detached()
        nll = nll + mp.Gaussian().nll(NETWORK(q.sample(epsilon), plain, x), y, plain).sum() / 2
    return torch.stack(torch.autograd.grad((nll + warmth * psi().kl_from(q)) / 7, (q.mu, q.rho)))


def test_a_stack_is_worked_on_like_each_task_alone() -> None:
    plan, together = DescentPlan(5, 3, 0.05, samples=2), stack(tasks=3)
    found = visited(together, plan)
    for i in range(3):
        alone = Stack([together.names[i]], [i], together.records[i : i + 1], 0, [together.data[i]])
        own = visited(alone, plan)
        torch.testing.assert_close(own.records[0], found.records[i], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(own.nll[0], found.nll[i], rtol=1e-10, atol=0)
        torch.testing.assert_close(own.kl[0], found.kl[i], rtol=1e-10, atol=0)


def test_every_task_has_weight_noise_and_an_order_of_its_own() -> None:
    """The same data twice: not the same steps, with all data in a step (noise) or with few (order, one noise)."""
    alike = stack(tasks=2)
    alike = alike._replace(data=[alike.data[0]] * 2)
    assert not torch.equal(*visited(alike, DescentPlan(1, 100, 0.05)).records)
    assert not torch.equal(*visited(alike, DescentPlan(1, 3, 0.05), noise=NoNoise(3)).records)


@dataclass(frozen=True)
class NoNoise(Noise):
    """Weights are their means."""

    def normal(self, like: Tensor) -> Tensor:
        return torch.zeros_like(like)


@pytest.mark.parametrize("batch_size", [3, 100])
def test_steps_in_two_visits_are_those_of_one(batch_size: int) -> None:
    """Bit for bit, wherever in a pass over the data the first one ends."""
    plan, start = DescentPlan(7, batch_size, 0.05, kl_warmup=0.8), stack(tasks=2)
    whole = visited(start, plan)
    first = visited(start, plan, range(4))
    second = visited(start._replace(records=first.records, steps_taken=4), plan, range(4, 7))
    assert torch.equal(second.records, whole.records)


def test_what_is_shared_stays_unless_it_is_to_be_learned() -> None:
    plan, common = DescentPlan(3, lr=0.05), shared()
    visit(descent(stack(), plan, common=common), range(3))
    assert float(common.detached()[NOISE_RHO]) == 0.2
    assert common.values[NOISE_RHO].grad is None
    assert common.steps == 0
    visit(descent(stack(), plan, common=common), range(3), shared_lr=True)
    assert float(common.detached()[NOISE_RHO]) != 0.2
    assert common.steps == 3


def test_shared_parameters_go_on_from_their_moments() -> None:
    def pushed(common: SharedParameters, gradients: list[float]) -> SharedParameters:
        for gradient in gradients:
            for value in common.values.values():
                value.grad = torch.full_like(value, gradient)
            common.step(0.1)
        return common

    start = {"bias": numbers(3), NOISE_RHO: numbers(1)}
    whole = pushed(SharedParameters(start), [1.0, -0.5, 2.0])
    half = pushed(SharedParameters(start), [1.0, -0.5])
    again = pushed(SharedParameters(half.detached(), half.moments, half.steps), [2.0])
    assert again.steps == whole.steps == 3
    for name in start:
        assert torch.equal(again.values[name], whole.values[name])
    first = pushed(SharedParameters(start), [1.0])
    torch.testing.assert_close(first.values["bias"], start["bias"] - 0.1)
    torch.testing.assert_close(first.values[NOISE_RHO], start[NOISE_RHO] - 0.5)  # five times the step


def test_the_rate_falls_along_a_cosine_and_the_kl_warms_up() -> None:
    plan = DescentPlan(10, lr=0.2, kl_warmup=0.5)
    assert plan.lr_at(0) == 0.2
    assert plan.lr_at(5) == pytest.approx(0.1)
    assert plan.lr_at(10) == pytest.approx(0.0, abs=1e-15)
    warmth = [plan.kl_weight_at(step) for step in range(10)]
    ratios = [after / before for before, after in pairwise(warmth[:5])]
    assert ratios == pytest.approx([1e4 ** (1 / 5)] * 4)
    assert warmth[4:] == [1.0] * 6
    assert {DescentPlan(10, kl_warmup=0.0).kl_weight_at(step) for step in range(10)} == {1.0}
    linear = DescentPlan(6, kl_warmup=4 / 6, linear_warmup=True)
    assert [linear.kl_weight_at(step) for step in range(6)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"samples": 0}, "samples must be an integer"),
        ({"lr": 0.0}, "lr must be a positive number"),
        ({"lr": math.nan}, "lr must be a positive number"),
        ({"kl_warmup": 1.5}, "kl_warmup must lie between 0 and 1"),
        ({"weighting": "harmonic"}, "weighting must be one of uniform, geometric, got 'harmonic'"),
    ],
)
def test_plans_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DescentPlan(**{"steps": 3, **settings})


def test_numbers_that_leave_the_finite_are_refused_with_the_tasks_name() -> None:
    far = stack(tasks=2)
    far.records[1, 0] = 1e200
    with pytest.raises(TrainingDiverged, match=r"the nll of 'task 1' became (inf|nan) at step 0"):
        visited(far, DescentPlan(2))
    with pytest.raises(TrainingDiverged, match="'task 0'"):
        visited(stack(), DescentPlan(50, lr=1e300))


def test_a_record_that_is_no_longer_finite_is_refused_also_after_the_last_step() -> None:
    """The loss of 1e300 is finite, the square of its gradient is not."""
    far = stack()
    far = far._replace(data=[Examples(far.data[0].x * 1e10, far.data[0].y * 1e150)])
    with pytest.raises(TrainingDiverged, match="the posterior of 'task 0' is no longer finite"):
        visited(far, DescentPlan(1))


def test_mini_batches_have_their_shares_of_the_kl() -> None:
    """The KL of each step is its share of M times the whole, and the mean over a pass the whole."""
    plan, one = DescentPlan(3, 3, NOWHERE, weighting="geometric"), stack()
    running = descent(one, plan, OneDraw(3))
    kls = torch.cat([running.step(step).kl for step in range(3)])
    whole = psi().kl_from(one.weights) / one.size
    torch.testing.assert_close(
        kls, 3 * torch.tensor(geometric_shares(3), dtype=torch.float64) * whole, rtol=1e-12, atol=0
    )


def test_large_networks_are_taken_one_at_a_time() -> None:
    def at_once(numbers: int, samples: int = 1) -> int:
        return FreeEnergy(NETWORK, mp.Gaussian(), 1.0, numbers).tasks_at_once(DescentPlan(1, samples=samples))

    assert at_once(10) > 1000
    assert at_once(10, samples=10) < at_once(10)
    assert at_once(2**30) == 1


def test_memory_does_not_grow_with_samples_times_images() -> None:
    """153 weights but large activations: groups of samples are chosen by the activations."""
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
    network = BayesianNetwork(net)
    numbers = network.numbers_per_observation(network.initial(), torch.zeros(4, 1, 64, 64))
    assert numbers > 16 * 64 * 64
    energy = FreeEnergy(network, mp.Gaussian(), 1.0, numbers)
    assert [len(group) for group in energy.sample_groups(4, 153, 64)] == [1, 1, 1, 1]
