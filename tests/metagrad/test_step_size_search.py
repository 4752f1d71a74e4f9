import math

import pytest
import torch
from torch import Tensor, nn

from metaprior.likelihoods import Gaussian, Likelihood
from metaprior.metagrad import Descent, Problem
from metaprior.metagrad import step_size_search as search
from metaprior.metagrad.step_size_search import FACTOR, HIGHEST, LOWEST, searched_step_sizes
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.team import Team
from metaprior.weights import WeightDistribution
from tests.team.fake import together
from tests.training.lines import damaged, lines, make_problem

SHARE = 0.25


def quadratic(target: float = 2.0) -> Task:
    """With x = 1 everywhere and noise 1, the loss of weight w is (w - target)^2 / 2 and a constant."""
    ones = torch.ones(3, 1, dtype=torch.float64)
    return Task(Examples(ones, target * ones), Examples(ones, target * ones))


def problem_with(lr: float, steps: int = 3, relative_sigma: float = 1e-12) -> tuple[Problem, WeightDistribution]:
    """A prior at 0, as narrow as a point: K steps of size alpha leave (1 - alpha)^K of the error."""
    module = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(module.weight)
    inner = Descent(steps=steps, lr=lr, learn_lr="per_tensor", kl_weight=0.0)
    problem = Problem(BayesianNetwork(module), Gaussian(noise=1.0), inner)
    return problem, problem.initial(torch.ones(1, 1, dtype=torch.float64), relative_sigma)


def balance(problem: Problem, theta: WeightDistribution, tasks: list[Task], noise: Noise) -> Tensor:
    return search._Search(problem, [(task, noise) for task in tasks], SHARE).balance(theta, noise)


def found_for(lr: float, tasks: list[Task]) -> float:
    problem, theta = problem_with(lr)
    log_lr = searched_step_sizes(problem, theta, tasks, Noise(), share=SHARE).log_lr
    assert (log_lr == log_lr[0]).all()
    return math.exp(float(log_lr[0]))


def wanted(lr: float, steps: int = 3, curvature: float = 1.0) -> float:
    """The smallest of the grid that wins a quarter of what the best one wins; K steps leave (1 - alpha c)^2K."""
    grid = [lr * FACTOR**power for power in range(-40, 41)]
    grid = [alpha for alpha in grid if LOWEST * 0.999 <= alpha <= HIGHEST * 1.001]

    def left(alpha: float) -> float:
        shrink = abs(1 - alpha * curvature)
        return shrink ** (2 * steps) if shrink < 1 else math.inf

    best = min(grid, key=left)
    grid += [best / math.sqrt(FACTOR), best * math.sqrt(FACTOR)]
    return min(alpha for alpha in grid if left(alpha) <= 1 - SHARE * (1 - min(map(left, grid))))


@pytest.mark.parametrize("lr", [1e-4, 0.03, 0.7, 1.0, 5.0])
def test_a_good_one_of_the_grid_is_found(lr: float) -> None:
    assert found_for(lr, [quadratic(), quadratic(-1.0)]) == pytest.approx(wanted(lr), rel=1e-9)
    assert wanted(lr) < 0.3, "short steps that win enough are taken before longer ones that win more"


def test_where_it_starts_does_not_matter() -> None:
    assert found_for(1e-4, [quadratic()]) == pytest.approx(found_for(1.0, [quadratic()]), rel=1e-9)
    assert found_for(1e-7, [quadratic()]) == pytest.approx(wanted(1.0), rel=1e-9)


def test_the_given_step_size_wins_a_tie() -> None:
    assert found_for(0.2, [quadratic(0.0)]) == pytest.approx(0.2), "nothing to learn, so no step size is better"


def test_candidates_that_are_not_finite_are_out() -> None:
    huge = Task(*(Examples(1e60 * part.x, part.y) for part in quadratic()[:2]))  # stable for alpha < 1e-120
    problem, theta = problem_with(1e-3, steps=5)
    assert torch.equal(searched_step_sizes(problem, theta, [huge], Noise(), share=SHARE).log_lr, theta.log_lr)
    steep = Task(*(Examples(1e2 * part.x, part.y) for part in quadratic()[:2]))  # 1e4 of curvature
    problem, theta = problem_with(0.5, steps=35)
    found = searched_step_sizes(problem, theta, [steep], Noise(), share=SHARE).log_lr
    assert math.exp(float(found[0])) == pytest.approx(wanted(0.5, 35, 1e4), rel=1e-9), "larger ones overflow or diverge"


def test_a_point_prior_is_searched_too() -> None:
    problem, theta = problem_with(1e-3, relative_sigma=0.0)
    found = searched_step_sizes(problem, theta, [quadratic()], Noise(), share=SHARE).log_lr
    assert math.exp(float(found[0])) == pytest.approx(wanted(1e-3), rel=1e-9)


def test_damaged_tasks_are_left_out() -> None:
    bad = Task(quadratic().support, Examples(quadratic().query.x, torch.inf + quadratic().query.y))
    assert found_for(1e-3, [quadratic(), bad]) == pytest.approx(wanted(1e-3), rel=1e-9)
    assert found_for(1e-3, [bad]) == pytest.approx(1e-3)


def test_only_the_step_sizes_change() -> None:
    problem, theta = problem_with(1e-3)
    found = searched_step_sizes(problem, theta, [quadratic()], Noise(), share=SHARE)
    assert found.mu is theta.mu
    assert found.rho is theta.rho
    assert torch.equal(theta.log_lr, torch.full((2,), math.log(1e-3), dtype=torch.float64))


def test_rounding_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    real = search._task_loss

    def rounded(problem: Problem, theta: WeightDistribution, task: Task, noise: Noise) -> float:
        loss = real(problem, theta, task, noise)
        moved = float(theta.log_lr[0]) > math.log(1e-6)
        return loss if moved or math.isinf(theta.log_lr[0]) else loss + 1e-5

    monkeypatch.setattr(search, "_task_loss", rounded)
    assert found_for(0.1, [quadratic()]) == pytest.approx(wanted(0.1), rel=1e-9)


def test_the_noise_scale_has_a_search_of_its_own_in_front_of_that_of_the_weights() -> None:
    """Weights of a curvature of 1e6 / noise^2 want tiny steps; no common size would move both."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(8, 1, dtype=torch.float64, generator=generator)
    x = torch.full((8, 1), 1e3, dtype=torch.float64)
    task = Task(Examples(x, 2 + 0.1 * noise), Examples(x, 2 + 0.1 * noise.flip(0)))
    module = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(module.weight, 2.001e-3)
    inner = Descent(steps=5, lr=1e-2, learn_lr="per_tensor", kl_weight=0.0)
    problem = Problem(BayesianNetwork(module), Gaussian(), inner)
    theta = problem.initial(torch.ones(4, 1, dtype=torch.float64), 1e-12)
    found = searched_step_sizes(problem, theta, [task], Noise(), share=0.9).log_lr.exp()
    *weights, of_noise = found.tolist()
    assert max(weights) < 1e-5
    assert of_noise > 1e-2


def test_losses_that_differ_by_rounding_are_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    real = search._task_loss

    def rounded(problem: Problem, theta: WeightDistribution, task: Task, noise: Noise) -> float:
        shortest = float(theta.log_lr[0]) == pytest.approx(math.log(1e-8))
        return real(problem, theta, task, noise) - 1e-7 * shortest

    monkeypatch.setattr(search, "_task_loss", rounded)
    assert found_for(0.1, [quadratic(0.0)]) == pytest.approx(0.1)


def test_the_search_ends_where_steps_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    real = search._task_loss

    def watched(problem: Problem, theta: WeightDistribution, task: Task, noise: Noise) -> float:
        tried.append(float(theta.log_lr[0].exp()))
        return real(problem, theta, task, noise)

    monkeypatch.setattr(search, "_task_loss", watched)
    steep = Task(*(Examples(1e2 * part.x, part.y) for part in quadratic()[:2]))  # stable below 2e-4
    found_for(1.0, [steep])
    assert max(tried) == pytest.approx(1e-2), "1e-3 and 1e-2 were worse than standing still"


# --- balanced ---------------------------------------------------------------------------------------------------------


class Steep(nn.Module):
    """f(x) = (100 a + b + 0 c) x: the gradient by a is 100 times that by b, and c has none."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return (100 * self.a + self.b + 0 * self.c) * x


def steep_problem(
    lr: float, relative_sigma: float = 0.0, likelihood: Likelihood | None = None, stochastic: str = "[ab]"
) -> tuple[Problem, WeightDistribution]:
    inner = Descent(steps=3, lr=lr, learn_lr="per_tensor", kl_weight=0.0)
    problem = Problem(BayesianNetwork(Steep(), stochastic), likelihood or Gaussian(noise=1.0), inner)
    return problem, problem.initial(torch.ones(1, 1, dtype=torch.float64), relative_sigma)


@pytest.mark.parametrize("lr", [1e-5, 1e-2])
def test_balanced_step_sizes_move_all_tensors_by_the_same(lr: float) -> None:
    """Sizes s / 10 and 10 s, so that f moves by s (100^2 / 10 + 10) = 1010 s times the error; s is searched."""
    problem, theta = steep_problem(lr)
    tasks = [quadratic(), quadratic(-1.0)]
    found = searched_step_sizes(problem, theta, tasks, Noise(), share=SHARE, balanced=True).log_lr.exp()
    common = wanted(lr, 3, 1010.0)
    expected = [common / 10, common * 10, common / 10, common * 10, common]  # means, scales, and c without gradient
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=0)


def test_scales_are_balanced_as_their_means_whatever_sigma_is() -> None:
    problem, theta = steep_problem(1e-2, 0.5)
    theta = theta.replace(rho=torch.tensor([-3.0, 0.7], dtype=torch.float64))
    found = balance(problem, theta, [quadratic(), quadratic(1.0)], Noise(3))
    ten = math.log(10)
    expected = torch.tensor([-ten, ten, -ten, ten, 0.0], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_nothing_is_balanced_where_nothing_has_a_gradient() -> None:
    problem, theta = steep_problem(0.2)
    assert not balance(problem, theta, [quadratic(0.0)], Noise()).any()
    found = searched_step_sizes(problem, theta, [quadratic(0.0)], Noise(), share=SHARE, balanced=True).log_lr
    torch.testing.assert_close(found.exp(), torch.full_like(found, 0.2))


@pytest.mark.parametrize("size", [1e200, 1e306])
def test_a_task_whose_gradient_is_not_finite_is_left_out_of_the_balance(size: float) -> None:
    """Its data are finite; the squares of its gradient, or the gradient itself (100 x^2 and more), overflow."""
    problem, theta = steep_problem(1e-2)
    huge = Task(*(Examples(size * part.x, part.y) for part in quadratic()[:2]))
    assert not search._mean_squares(problem, theta, huge, Noise()).isfinite().all()
    alone = balance(problem, theta, [quadratic()], Noise())
    assert float(alone[1] - alone[0]) == pytest.approx(math.log(100))
    assert torch.equal(balance(problem, theta, [huge, quadratic()], Noise()), alone)
    assert not balance(problem, theta, [huge], Noise()).any(), "of no task at all, nothing is balanced"


def test_the_noise_scale_is_searched_for_itself_and_not_balanced() -> None:
    problem, theta = steep_problem(1e-4, likelihood=Gaussian())
    assert len(theta.log_lr) == 6
    balanced, common = (
        searched_step_sizes(problem, theta, [quadratic()], Noise(), share=SHARE, balanced=how).log_lr
        for how in (True, False)
    )
    assert float(balanced[5]) == float(common[5])
    assert float(balanced[1] - balanced[0]) == pytest.approx(math.log(100))
    assert float(common[1]) == float(common[0])


def divided_search(tasks: list[Task], size: int, *, balanced: bool) -> list[Tensor]:
    """The step sizes that every rank finds, each with its share of the tasks."""
    problem = make_problem(Descent(2, 1e-3, learn_lr="per_tensor"))
    theta = problem.initial(torch.ones(1, 1, dtype=torch.float64), 0.1)

    def work(team: Team) -> Tensor:
        own = team.share(len(tasks))
        noise = Noise(5).at(task=own.start)
        mine = [tasks[index] for index in own]
        found = searched_step_sizes(problem, theta, mine, noise, share=SHARE, balanced=balanced)
        return found.log_lr.detach().clone()

    return together(size, work)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("bad", [set(), {0}, {2}, {0, 1, 2}])
def test_ranks_search_together_and_find_what_one_would_to_the_last_bit(bad: set[int], balanced: bool) -> None:
    """Also a rank whose tasks are all bad, or that has none."""
    tasks = [damaged(task, "support") if index in bad else task for index, task in enumerate(lines(3))]
    (alone,) = divided_search(tasks, 1, balanced=balanced)
    untouched = torch.allclose(alone, torch.full_like(alone, math.log(1e-3)))
    assert untouched == (len(bad) == len(tasks)), "where a task is good, there is something to find"
    for size in (2, 4):
        for found in divided_search(tasks, size, balanced=balanced):
            assert torch.equal(found, alone)
