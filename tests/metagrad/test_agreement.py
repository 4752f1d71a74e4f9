"""Every exact engine gives the meta-gradient that torch gives by unrolling everything."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from metaprior.likelihoods import NOISE_RHO, Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian
from metaprior.metagrad import AmortizedELBO, Descent, MetaGradient, QueryLoss, finite_difference, unrolled
from metaprior.metagrad.implicit import Implicit
from metaprior.metagrad.problem import Problem
from metaprior.network import stages_of
from metaprior.priors import NormalGammaHyperprior
from tests.metagrad.problems import ENGINES, Case, assert_same, make_case, solved

LR = 5e-3
NOT_ADAPTED = None


def loop(steps: int = 4, lr: float = LR, **changes: Any) -> Descent:
    return Descent(steps=steps, lr=lr, **changes)


CASES: dict[str, Callable[[], Case]] = {
    "MLP tanh": lambda: make_case("tanh"),
    "MLP relu": lambda: make_case("relu"),
    "conv and GroupNorm": lambda: make_case("conv"),
    "ConvTranspose2d": lambda: make_case("transposed"),
    "U-Net, all random": lambda: make_case("unet", inner=loop(2, 2e-4)),
    "U-Net, random output": lambda: make_case("unet", inner=loop(2, 1e-3, adapt=NOT_ADAPTED), stochastic="output.*"),
    "U-Net, random decoder": lambda: make_case(
        "unet",
        Gaussian(per_channel=True),
        loop(2, 2e-4, adapt="(decoder2|output|likelihood).*", learn_lr="per_tensor", momentum=0.7, samples=3),
        AmortizedELBO(10, samples=3),
        stochastic=r"decoder2\.block\.[03].*",
        micro_batch=2,
    ),
    "learned noise, adapted": lambda: make_case("tanh", Gaussian()),
    "learned noise, not adapted": lambda: make_case("tanh", Gaussian(), loop(adapt=NOT_ADAPTED)),
    "noise per channel, adapted": lambda: make_case("conv", Gaussian(per_channel=True)),
    "noise per channel, not adapted": lambda: make_case("conv", Gaussian(per_channel=True), loop(adapt=NOT_ADAPTED)),
    "fixed noise of each channel": lambda: make_case("conv", Gaussian(noise=(0.5, 0.9))),
    "network gives the noise": lambda: make_case("tanh", HeteroscedasticGaussian()),
    "classes": lambda: make_case("tanh", Categorical()),
    "classes of pixels": lambda: make_case("conv", Categorical()),
    "zeros and ones": lambda: make_case("relu", Bernoulli()),
    "samples inside": lambda: make_case("tanh", inner=loop(samples=3)),
    "samples outside": lambda: make_case("tanh", objective=QueryLoss(samples=3)),
    "samples everywhere, classes": lambda: make_case("conv", Categorical(), loop(samples=3), QueryLoss(samples=3)),
    "undamped": lambda: make_case("tanh", Gaussian(), loop(damped=False, learn_lr="per_tensor", momentum=0.7)),
    "predictive": lambda: make_case("tanh", Gaussian(), objective=QueryLoss(4, predictive=True)),
    "predictive, classes": lambda: make_case("conv", Categorical(), loop(samples=2), QueryLoss(3, predictive=True)),
    "predictive, micro-batches": lambda: make_case(
        "conv", Gaussian(), loop(momentum=0.7), QueryLoss(3, predictive=True), micro_batch=2, stochastic=".*weight"
    ),
    "ELBO, annealed": lambda: make_case("tanh", Gaussian(), objective=AmortizedELBO(7, kl_weight=0.3)),
    "ELBO": lambda: make_case("tanh", Gaussian(), objective=AmortizedELBO(7)),
    "ELBO, one task, samples": lambda: make_case("tanh", inner=loop(samples=3), objective=AmortizedELBO(1, samples=3)),
    "ELBO, another hyperprior": lambda: make_case("relu", objective=AmortizedELBO(3, 1, NormalGammaHyperprior(1, 2))),
    "ELBO, no hyperprior": lambda: make_case("tanh", objective=AmortizedELBO(7, hyperprior=None)),
    "one learned step size": lambda: make_case("tanh", Gaussian(), loop(learn_lr="one")),
    "learned step sizes": lambda: make_case("tanh", Gaussian(), loop(learn_lr="per_tensor")),
    "learned step sizes, noise not adapted": lambda: make_case(
        "tanh", Gaussian(), loop(learn_lr="per_tensor", adapt=NOT_ADAPTED)
    ),
    "momentum": lambda: make_case("tanh", Gaussian(), loop(momentum=0.7)),
    "momentum, one learned step size": lambda: make_case("tanh", Gaussian(), loop(momentum=0.7, learn_lr="one")),
    "momentum, learned step sizes, samples": lambda: make_case(
        "relu", Gaussian(per_channel=True), loop(momentum=0.7, learn_lr="per_tensor", samples=3), AmortizedELBO(5)
    ),
    "random weights, plain biases adapted": lambda: make_case("tanh", stochastic=".*weight"),
    "random weights, plain biases fixed": lambda: make_case(
        "tanh", inner=loop(adapt=NOT_ADAPTED), stochastic=".*weight"
    ),
    "random first layer": lambda: make_case("tanh", inner=loop(learn_lr="per_tensor"), stochastic="0.*"),
    "random last layer, plain trunk adapted": lambda: make_case("conv", stochastic="3.*"),
    "random last layer, plain trunk fixed": lambda: make_case(
        "conv", Gaussian(), loop(adapt="likelihood.*", learn_lr="per_tensor"), stochastic="3.*", micro_batch=2
    ),
    "some plain adapted, some not": lambda: make_case(
        "tanh", Gaussian(), loop(adapt=r"2\.bias", momentum=0.7, learn_lr="per_tensor"), stochastic=".*weight"
    ),
    "no KL inside": lambda: make_case("tanh", Gaussian(), loop(kl_weight=0)),
    "no KL inside, momentum and step sizes": lambda: make_case(
        "tanh", Gaussian(), loop(kl_weight=0, momentum=0.7, learn_lr="per_tensor"), AmortizedELBO(2)
    ),
    "a small KL inside": lambda: make_case("tanh", inner=loop(kl_weight=0.1)),
    "no steps": lambda: make_case("tanh", Gaussian(), loop(0, learn_lr="one"), AmortizedELBO(4)),
    "no steps, momentum": lambda: make_case("tanh", Gaussian(), loop(0, momentum=0.7, learn_lr="per_tensor")),
    "one step": lambda: make_case("tanh", Gaussian(), loop(1, learn_lr="per_tensor"), AmortizedELBO(4)),
    "nine steps": lambda: make_case("tanh", Gaussian(), loop(9, learn_lr="one")),
    "nine steps, momentum": lambda: make_case("tanh", Gaussian(), loop(9, momentum=0.7), AmortizedELBO(4)),
    "nine steps, momentum, step sizes, samples": lambda: make_case(
        "relu", Gaussian(), loop(9, momentum=0.7, learn_lr="per_tensor", samples=3)
    ),
    "twenty steps": lambda: make_case("tanh", Gaussian(), loop(20, momentum=0.7, learn_lr="per_tensor")),
    "one example at a time": lambda: make_case("conv", Gaussian(), micro_batch=1, objective=AmortizedELBO(4)),
    "micro-batches that do not divide": lambda: make_case("conv", Gaussian(), micro_batch=2, support=5, query=3),
    "micro-batches that divide": lambda: make_case("tanh", Gaussian(), micro_batch=2, support=4, query=2),
    "micro-batches larger than the sets": lambda: make_case("tanh", Gaussian(), micro_batch=50),
    "micro-batches, samples, momentum": lambda: make_case(
        "conv", Gaussian(), loop(samples=3, momentum=0.7), QueryLoss(samples=3), micro_batch=2, stochastic=".*weight"
    ),
    "more queries than support": lambda: make_case("tanh", None, loop(4, 1e-3), AmortizedELBO(3), support=1, query=6),
}


@cache
def case_and_reference(name: str) -> tuple[Case, MetaGradient]:
    case = CASES[name]()
    return case, solved(unrolled, case)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", ENGINES)
def test_exact_engines_agree_with_full_unrolling(engine: str, name: str) -> None:
    case, expected = case_and_reference(name)
    assert_same(solved(ENGINES[engine], case), expected, case.problem)


@pytest.mark.parametrize("name", CASES)
def test_the_inner_loop_moves_and_stays_stable(name: str) -> None:
    """Otherwise the comparison would be of nothing, or of rounding errors that have grown."""
    case, expected = case_and_reference(name)
    assert expected.inner.nll.shape == expected.inner.kl.shape == (case.problem.inner.steps,)
    if case.problem.inner.steps > 1 and case.problem.inner.kl_weight:
        assert 0 < float(expected.inner.kl.max()) < 10, "an unstable loop has a KL that explodes"
    for part, grad in expected.grads.named().items():
        no_move = part == "log_lr" and case.problem.inner.steps == 0
        assert (float(grad.norm()) == 0) == no_move, part


def test_micro_batches_change_nothing() -> None:
    case, expected = case_and_reference("conv and GroupNorm")
    for size in (1, 2, 3, 7):
        small = make_case("conv", micro_batch=size)
        for engine in ENGINES.values():
            assert_same(solved(engine, small), expected, case.problem)


def test_another_seed_or_task_index_is_another_loss() -> None:
    case, expected = case_and_reference("MLP tanh")
    for noise in (case.noise.at(task=1), type(case.noise)(seed=99)):
        for engine in (unrolled, *ENGINES.values()):
            other = solved(engine, case.replace(noise=noise))
            assert not torch.allclose(other.loss, expected.loss, rtol=1e-6)
            assert_same(other, solved(unrolled, case.replace(noise=noise)), case.problem)


def trunk_parameters(problem: Problem) -> list[str]:
    stages = stages_of(problem.network.module)[: problem.trunk_stages]
    inside = {id(p) for stage in stages for p in stage.parameters()}
    return [name for name, p in problem.network.module.named_parameters() if id(p) in inside]


@pytest.mark.parametrize("engine", ["mixed", "twice_reverse", "keeping(1)", "keeping(all)", "implicit"])
def test_a_trunk_that_is_not_learned_has_no_gradient_and_changes_no_other(engine: str) -> None:
    case, expected = case_and_reference("U-Net, random output")
    trunk = trunk_parameters(case.problem)
    engines = {**ENGINES, "implicit": Implicit()}
    whole = solved(engines[engine], case)
    found = solved(engines[engine], case.replace(problem=replace(case.problem, learn_trunk=False)))
    assert trunk
    for name, grad in found.grads.plain.items():
        if name in trunk:
            assert whole.grads.plain[name].any(), name
            assert not grad.any(), name
        else:
            torch.testing.assert_close(grad, whole.grads.plain[name], rtol=1e-12, atol=0)
    torch.testing.assert_close(found.grads.mu, whole.grads.mu, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-12, atol=0)


@pytest.mark.parametrize("engine", ["mixed", "twice_reverse", "keeping(1)", "keeping(all)"])
@pytest.mark.parametrize(
    "name",
    [
        "learned step sizes",
        "momentum, learned step sizes, samples",
        "random last layer, plain trunk fixed",
        "ELBO, one task, samples",
        "noise per channel, not adapted",
        "classes of pixels",
        "U-Net, random output",
        "nine steps, momentum",
        "micro-batches, samples, momentum",
    ],
)
def test_a_stack_of_tasks_gives_each_tasks_own_answer(engine: str, name: str) -> None:
    case, _ = case_and_reference(name)
    generator = torch.Generator().manual_seed(5)

    def shuffled(value: torch.Tensor) -> torch.Tensor:
        order = torch.randperm(value.numel(), generator=generator)
        return value.flatten()[order].view(value.shape)

    cases = [case]
    for index in (1, 2):
        task = type(case.task)(*(type(part)(*map(shuffled, part)) for part in case.task[:2]), f"task {index}")
        cases.append(case.replace(task=task, noise=case.noise.at(task=index)))
    stack = type(case.task)(
        *(
            type(case.task.support)(*(torch.stack(tensors) for tensors in zip(*sets, strict=True)))
            for sets in zip(*(each.task[:2] for each in cases), strict=True)
        ),
        "stack",
    )
    terms, inner, grads = ENGINES[engine].stacked(case.problem, case.theta, stack, [each.noise for each in cases])
    alone = [solved(unrolled, each) for each in cases]
    names = trunk_parameters(case.problem)  # of these, a stack knows the mean over tasks, and no more
    trunk = {name: torch.stack([each.grads.plain[name] for each in alone]).mean(0) for name in names}
    for row, expected in enumerate(alone):
        expected.grads.plain.update(trunk)
        own = grads.map(lambda value, row=row: value[row])
        own_terms = type(terms)(*(value[row] for value in terms))
        own_inner = type(inner)(*(value[:, row] for value in inner))
        assert_same(MetaGradient(own_terms.total, own, own_terms, own_inner), expected, case.problem)


def test_finite_differences_come_close() -> None:
    for name in (
        "MLP tanh",
        "learned step sizes",
        "noise per channel, not adapted",
        "random last layer, plain trunk fixed",
    ):
        case, expected = case_and_reference(name)
        result = solved(finite_difference, case)
        assert_same(result, expected, case.problem, tolerance=1e-6)
    assert not finite_difference.exact
    assert all(engine.exact for engine in ENGINES.values())


def test_a_fixed_noise_has_no_gradient_and_a_learned_one_has() -> None:
    assert NOISE_RHO not in case_and_reference("MLP tanh")[1].grads.plain
    assert NOISE_RHO in case_and_reference("learned noise, not adapted")[1].grads.plain
