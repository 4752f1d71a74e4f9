import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from metaprior.adaptation import descent as descent_module
from metaprior.adaptation import task_model as task_model_module
from metaprior.likelihoods import NOISE_RHO, Gaussian
from metaprior.metagrad import AmortizedELBO, Descent, meta_batch, twice_reverse
from metaprior.metagrad.meta_batch import BatchSums
from metaprior.metagrad.problem import Problem
from metaprior.noise import Noise
from metaprior.tasks.task import Task, task_at
from metaprior.training.settings import FIRST_STEPS
from metaprior.training.trainer import Trainer
from metaprior.weights import WeightDistribution
from tests.training.lines import (
    LEARNED,
    EndlessLines,
    copied,
    line,
    lines,
    make_problem,
    make_trainer,
    moved,
    network_module,
)

EVERYTHING = {"mu", "rho", "0.weight", "0.bias", NOISE_RHO, "log_lr"}
SCALES = {"rho", NOISE_RHO, "log_lr"}


def step_with(trainer: Trainer) -> set[str]:
    """What a step moved."""
    before = copied(trainer)
    trainer.step()
    return moved(trainer, before)


def test_phases_move_what_they_say() -> None:
    trainer = make_trainer(lines(8), epochs=1, tasks_per_epoch=24, meta_batch=4, warm_start=3, scales_first=0.5)
    assert [step_with(trainer) for _ in range(3)] == [EVERYTHING - {"rho", "log_lr"}] * 3
    means = {name: copied(trainer)[name] for name in EVERYTHING - SCALES}
    step_with(trainer)  # sigma fits the new means, and a step size is searched
    assert [step_with(trainer) for _ in range(2)] == [SCALES] * 2
    for name, value in means.items():
        assert torch.equal(copied(trainer)[name], value), name
    assert [step_with(trainer) for _ in range(3)] == [EVERYTHING] * 3
    assert trainer.done


def test_after_the_warm_start_sigma_fits_the_means(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(
        lines(8), epochs=1, warm_start=20, warm_start_lr=0.3, scale_lr=1e-12, scales_first=1.0, relative_sigma=0.3
    )
    for _ in range(21):
        trainer.step()
    sigma = trainer.model.network.layout.split(trainer.theta.sigma.detach())
    for name, mean in trainer.model.network.layout.split(trainer.theta.mu.detach()).items():
        expected = (0.3 * mean.square().mean().sqrt()).expand_as(mean)
        torch.testing.assert_close(sigma[name], expected, rtol=1e-6, atol=0, msg=name)


@pytest.mark.parametrize("search", [True, False])
def test_step_sizes_are_searched_where_asked_for(search: bool) -> None:
    trainer = make_trainer(
        lines(8),
        make_problem(replace(LEARNED, lr=1e-6)),
        epochs=1,
        search_step_size=search,
        scale_lr=1e-9,
        scales_first=0.0,
    )
    trainer.step()
    found = trainer.theta.log_lr.detach().exp()
    assert (found > 1e-3).all() if search else torch.allclose(found, torch.full_like(found, 1e-6))


def test_learning_rates_are_those_of_the_phase() -> None:
    trainer = make_trainer(
        lines(8),
        epochs=1,
        tasks_per_epoch=80,
        meta_batch=4,
        warm_start=1,
        scales_first=0.1,
        schedule="constant",
        lr=0.3,
        scale_lr=0.05,
        warm_start_lr=0.7,
    )
    rates = []
    for _ in range(5):
        trainer.step()
        rates.append([group["lr"] for group in trainer.optimizer._adam.param_groups])
    rise = [(1 + step) / FIRST_STEPS for step in range(4)]
    expected = [[0.07, 0.005], [0.0, rise[0] * 0.05], [0.0, rise[1] * 0.05]]
    expected += [[rise[0] * 0.3, rise[2] * 0.05], [rise[1] * 0.3, rise[3] * 0.05]]  # means rise from their own start
    torch.testing.assert_close(torch.tensor(rates), torch.tensor(expected))


def maml_by_hand(steps: int, sizes: dict[str, float], tasks: list[Any]) -> dict[str, Tensor]:
    """The gradient of the mean query loss by initial weights and log step sizes, through every inner step."""
    start = {name: p.detach().requires_grad_() for name, p in network_module().named_parameters()}
    logs = {name: torch.tensor(math.log(size), dtype=torch.float64, requires_grad=True) for name, size in sizes.items()}

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        hidden = torch.tanh(x @ weights["0.weight"].T + weights["0.bias"])
        out = hidden @ weights["2.weight"].T + weights["2.bias"]
        return (0.5 * ((y - out) / 0.5) ** 2 + math.log(0.5) + 0.5 * math.log(2 * math.pi)).sum() / len(x)

    total = torch.zeros((), dtype=torch.float64)
    for task in tasks:
        weights = dict(start)
        for _ in range(steps):
            grads = torch.autograd.grad(loss(weights, *task.support), list(weights.values()), create_graph=True)
            weights = {
                name: value - logs[name].exp() * grad
                for (name, value), grad in zip(weights.items(), grads, strict=True)
            }
        total = total + loss(weights, *task.query) / len(tasks)
    leaves = {**start, **{f"log lr of {name}": value for name, value in logs.items()}}
    return dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))


@pytest.mark.parametrize("stacked", [False, True])
def test_a_point_prior_is_maml(stacked: bool) -> None:
    sizes = {"0.weight": 0.05, "0.bias": 0.2, "2.weight": 0.1, "2.bias": 0.3}
    inner = Descent(steps=3, lr=0.1, learn_lr="per_tensor", kl_weight=0.0)
    problem = make_problem(inner, likelihood=Gaussian(noise=0.5), stochastic=".*")
    trainer = make_trainer(
        EndlessLines(),
        problem,
        epochs=1,
        tasks_per_epoch=30,
        meta_batch=3,
        relative_sigma=0.0,
        scales_first=0.0,
        search_step_size=False,
        lr=0.02,
        scale_lr=0.03,
        grad_clip_norm=0.4,
        stacked=stacked,
    )
    logs = [math.log(size) for size in sizes.values()]
    with torch.no_grad():  # the means' step sizes come first, then those of the scales, which a point does not use
        trainer.theta.log_lr[:4] = torch.tensor(logs, dtype=torch.float64)
    start = copied(trainer)
    report = trainer.step()

    grads = maml_by_hand(3, sizes, lines(3))
    groups = {
        "means": torch.cat([grads[name].flatten() for name in sizes]),
        "scales": torch.stack([grads[f"log lr of {name}"] for name in sizes]),
    }
    after = {"means": (start["mu"], 0.02, copied(trainer)["mu"])}
    after["scales"] = (start["log_lr"][:4], 0.03, copied(trainer)["log_lr"][:4])
    for name, gradient in groups.items():
        assert report.grad_norms[name] == pytest.approx(float(gradient.norm()), rel=1e-10)
        gradient = gradient * min(1.0, 0.4 / (float(gradient.norm()) + 1e-6))
        before, rate, found = after[name]
        adam = gradient / (gradient.abs() + 1e-8)  # its first step, at a tenth of the rate
        torch.testing.assert_close(found, before - 0.1 * rate * adam, rtol=1e-10, atol=1e-12, msg=name)
    for _ in range(4):
        trainer.step()
    assert bool(torch.isneginf(trainer.theta.rho).all())
    assert torch.equal(copied(trainer)["log_lr"][4:], start["log_lr"][4:])


def test_steps_see_tasks_in_order_with_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[str], Noise]] = []
    real = descent_module.meta_sums

    def spy(problem: Any, theta: Any, tasks: Any, noise: Noise, **how: Any) -> Any:
        seen.append(([task.name for task in tasks], noise))
        return real(problem, theta, tasks, noise, **how)

    monkeypatch.setattr(descent_module, "meta_sums", spy)
    tasks = lines(5)
    trainer = make_trainer(tasks, epochs=1, meta_batch=3, seed=4, engine=twice_reverse)
    for _ in range(3):
        trainer.step()
    assert [names for names, _ in seen] == [
        [task_at(tasks, position + i, 4).name for i in range(3)] for position in (0, 3, 6)
    ]
    assert [noise.task for _, noise in seen] == [0, 3, 6]
    assert len({noise.seed for _, noise in seen}) == 1


def test_the_kl_is_annealed_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    weights: list[tuple[float, float]] = []
    real = descent_module.meta_sums

    def spy(problem: Any, *rest: Any, **how: Any) -> Any:
        weights.append((problem.inner.kl_weight, problem.objective.kl_weight))
        return real(problem, *rest, **how)

    monkeypatch.setattr(descent_module, "meta_sums", spy)
    trainer = make_trainer(
        lines(5), make_problem(LEARNED, AmortizedELBO(5)), epochs=1, tasks_per_epoch=16, warm_start=1, kl_warmup=0.5
    )
    for _ in range(5):
        trainer.step()
    assert weights == [(1 / 3, 1 / 3), (2 / 3, 2 / 3), (1.0, 1.0), (1.0, 1.0)]


def test_a_plateau_halves_the_learning_rates() -> None:
    trainer = make_trainer(lines(5), epochs=1, schedule="plateau", plateau_patience=2, scales_first=0.0)
    scores = [3.0, 2.0, 2.0, 2.5, 1.0, 1.5, math.nan, 1.0, 9.0]
    assert [trainer.note_score(score) for score in scores] == [True, True, False, False, True, *[False] * 4]
    assert trainer.progress.plateau_factor == 1 / 8
    assert (trainer.progress.best, trainer.progress.since_best) == (1.0, 4)
    trainer.step()
    assert trainer.optimizer._adam.param_groups[0]["lr"] == pytest.approx(1e-3 / FIRST_STEPS / 8)
    constant = make_trainer(lines(5), schedule="constant", plateau_patience=1)
    constant.note_score(1.0)
    constant.note_score(2.0)
    assert constant.progress.plateau_factor == 1.0


def test_losing_a_hard_task_is_never_an_improvement() -> None:
    """The mean of the tasks that are left is lower without the hardest one."""
    trainer = make_trainer(lines(4))
    seen = [(50.5, 0), (1.0, 1), (math.inf, 2), (50.4, 0)]
    assert [trainer.note_score(*one) for one in seen] == [True, False, False, True]
    always = make_trainer(lines(4))  # one that nothing can adapt to does not end the choice of the best
    assert [always.note_score(*one) for one in ((2.0, 1), (1.0, 1), (3.0, 0))] == [True, True, True]


def test_the_trunk_has_no_gradient_while_only_scales_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = descent_module.meta_sums

    def watched(problem: Problem, *arguments: Any, **options: Any) -> BatchSums:
        asked.append(problem.learn_trunk)
        return real(problem, *arguments, **options)

    monkeypatch.setattr(descent_module, "meta_sums", watched)
    problem = make_problem(replace(LEARNED, adapt="likelihood.*"))
    trainer = make_trainer(lines(8), problem, epochs=1, tasks_per_epoch=16, meta_batch=4, scales_first=0.5)
    assert trainer.model.problem.trunk_stages > 0
    for _ in range(4):
        trainer.step()
    assert asked == [False, False, True, True]


@pytest.mark.parametrize(("warm_start", "share"), [(0, 0.25), (1, 0.9)])
def test_after_a_warm_start_a_step_size_has_to_win_more(
    warm_start: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = []
    real = descent_module.searched_step_sizes

    def watched(*arguments: Any, share: float, **options: Any) -> WeightDistribution:
        shares.append(share)
        return real(*arguments, share=share, **options)

    monkeypatch.setattr(descent_module, "searched_step_sizes", watched)
    trainer = make_trainer(lines(8), epochs=1, tasks_per_epoch=4, meta_batch=4, warm_start=warm_start)
    for _ in range(warm_start + 1):
        trainer.step()
    assert shares == [share]


def test_a_meta_batch_of_larger_tasks_is_not_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is made on the first tasks; what fits together is asked again for every shape."""
    monkeypatch.setattr(meta_batch, "STACKED_NUMBERS", 3000)
    stacks = []
    real = descent_module.meta_sums

    def watched(*arguments: Any, stacked: bool, **options: Any) -> BatchSums:
        stacks.append(stacked)
        return real(*arguments, stacked=stacked, **options)

    monkeypatch.setattr(descent_module, "meta_sums", watched)

    class Growing:
        def __getitem__(self, index: int) -> Task:
            return line(index, support=4 if index < 4 else 400)

    trainer = make_trainer(Growing(), epochs=1, tasks_per_epoch=8, meta_batch=4, search_step_size=False)
    trainer.step()
    trainer.step()
    assert stacks == [True, False]


# --- a source of its own for the warm start, step sizes that are balanced ---------------------------------------------


class Named:
    """Endless lines that say where they come from."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __getitem__(self, index: int) -> Task:
        return line(index)._replace(name=f"{self.source} {index}")


def test_the_warm_start_draws_from_its_own_source_and_meta_steps_from_the_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def watch(name: str) -> None:
        where = task_model_module if name == "pooled_sums" else descent_module
        real = getattr(where, name)

        def watched(first: Any, theta: WeightDistribution, tasks: list[Task], *rest: Any, **how: Any) -> Any:
            seen.append([name, *(task.name for task in tasks)])
            return real(first, theta, tasks, *rest, **how)

        monkeypatch.setattr(where, name, watched)

    for name in ("pooled_sums", "searched_step_sizes", "meta_sums"):
        watch(name)
    trainer = make_trainer(
        Named("task"), pooled=Named("pooled"), epochs=1, tasks_per_epoch=4, meta_batch=2, warm_start=2, scales_first=0.0
    )
    while not trainer.done:
        trainer.step()
    assert seen == [
        ["pooled_sums", "pooled 0", "pooled 1"],
        ["pooled_sums", "pooled 2", "pooled 3"],
        ["searched_step_sizes", "task 4"],
        ["meta_sums", "task 4", "task 5"],
        ["meta_sums", "task 6", "task 7"],
    ]


def test_without_a_source_of_its_own_the_warm_start_pools_the_tasks() -> None:
    tasks = lines(5)
    assert make_trainer(tasks).pooled is tasks


@pytest.mark.parametrize("balanced", [True, False])
def test_the_search_is_told_whether_to_balance(balanced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def watched(_problem: Problem, theta: WeightDistribution, *_: Any, **options: Any) -> WeightDistribution:
        asked.append(options)
        return theta

    monkeypatch.setattr(descent_module, "searched_step_sizes", watched)
    make_trainer(lines(4), epochs=1, balance_step_sizes=balanced, pretrained=True).step()
    assert asked[0]["balanced"] is balanced
    assert asked[0]["share"] == 0.9, "a module that came trained is as after a warm start"


@pytest.mark.parametrize("learn", ["one", "no"])
def test_balancing_needs_a_step_size_for_every_tensor(learn: Any) -> None:
    with pytest.raises(ValueError, match=f"needs .*learn_lr='per_tensor'.*got '{learn}'"):
        make_trainer(lines(4), make_problem(replace(LEARNED, learn_lr=learn)), balance_step_sizes=True)
