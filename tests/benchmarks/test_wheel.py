from typing import get_args

import pytest
import torch
from torch import Tensor

from benchmarks.wheel import bandit
from benchmarks.wheel import comparison as bench
from benchmarks.wheel import tasks as wheel
from benchmarks.wheel.bandit import Bandits, Game, Outcome, Rule, play
from benchmarks.wheel.exact_posterior import WORTH_A_TRY, play_with_exact_posterior
from metaprior import Descent, Gaussian, MetaLearner
from metaprior.noise import Noise
from metaprior.weights import WeightDistribution


def test_regret_is_in_percent_of_uniform_play() -> None:
    bandits = Bandits((0.5, 0.9), Game(contexts=4000, trials=1))
    best = bandits.means.argmax(2)
    assert bandits.regret(best).tolist() == [0.0, 0.0]
    uniform = torch.randint(wheel.ARMS, best.shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(bandits.regret(uniform), torch.full((2,), 100.0), rtol=0.06, atol=0)
    # The safe arm everywhere: outside the wheel it pays 1.2 where 50 are to be had, and nothing is lost inside.
    inside = bandits.contexts.norm(dim=2) < torch.tensor([[0.5], [0.9]])
    outside = (~inside).sum(1) * (50 - 1.2)
    by_chance = (~inside).sum(1) * (50 - (50 + 3 * 1 + 1.2) / 5) + inside.sum(1) * (1.2 - (4 * 1 + 1.2) / 5)
    safe = torch.full_like(best, wheel.SAFE_ARM)
    torch.testing.assert_close(bandits.regret(safe), 100 * outside / by_chance, rtol=1e-4, atol=1e-4)


def test_an_outcome_says_what_was_missed_and_wasted() -> None:
    bandits = Bandits((0.5, 0.9), Game(contexts=500, trials=2))
    best = bandits.means.argmax(2)
    perfect = bandits.outcome(best, 2)
    assert not any(bool(values.any()) for values in (perfect.regret, perfect.missed, perfect.wasted))
    pays = best != wheel.SAFE_ARM
    safe = bandits.outcome(torch.full_like(best, wheel.SAFE_ARM), 2)
    assert safe.regret.shape == (2, 2)
    assert torch.equal(safe.missed, pays.sum(1).unflatten(0, (2, 2)))
    assert not safe.wasted.any()
    wrong = bandits.outcome(torch.where(pays, best, 0), 2)
    assert torch.equal(wrong.wasted, (~pays).sum(1).unflatten(0, (2, 2)))
    assert not wrong.missed.any()


def test_a_row_of_several_trainings_has_the_error_between_them() -> None:
    def outcome(level: float) -> Outcome:
        regret = torch.tensor([level - 1, level + 1]).expand(len(bench.DELTAS), 2)
        return Outcome(regret, regret.round(), regret.round(), 0, 7)

    several = bench._row("", [outcome(2.0), outcome(4.0)], bench.Settings())
    assert (several["delta 0.9"], several["se 0.9"]) == (3.0, pytest.approx(1.0))
    assert (several["missed"], several["wasted"]) == (3.0, 3.0)
    alone = bench._row("", [outcome(2.0)], bench.Settings())
    assert (alone["delta 0.9"], alone["se 0.9"]) == (2.0, pytest.approx(1.0))


def test_every_option_is_the_context_with_one_arm() -> None:
    bandits = Bandits((0.5,), Game(contexts=3, trials=2))
    options = bandits.options(1)
    assert options.shape == (2, wheel.ARMS, 7)
    assert torch.equal(options[..., 2:], torch.eye(5).expand(2, 5, 5))
    assert torch.equal(options[:, 3, :2], bandits.contexts[:, 1])


class Oracle(torch.nn.Module):
    """Knows the wheel of radius 0.9: the log reward of a context and an arm. One weight, to be a network at all."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        outside = (x[:, :2].square().sum(1) >= 0.81).float()
        right = 1 - (x[:, 0] > 0).float(), 1 - (x[:, 1] > 0).float()
        quadrant = 2 * right[0] + right[1]  # (+,+) (+,-) (-,+) (-,-)
        arm = x[:, 2:] @ torch.arange(5.0)
        jackpot = outside * (arm == quadrant).float()
        return (jackpot * 3.9 + (arm == 4).float() * 0.18).unsqueeze(1) + self.bias


def oracle(relative_sigma: float) -> MetaLearner:
    inner = Descent(1, 1e-3)
    learner = MetaLearner(
        Oracle(), Gaussian(noise=0.1), adaptation=inner, relative_sigma=relative_sigma, standardize=False
    )
    return learner.start(wheel.WheelTasks(k_shot=8, k_query=8, num_tasks=4))


@pytest.mark.parametrize("rule", ["thompson", "optimistic", "greedy"])
def test_a_network_that_knows_the_wheel_has_no_regret(rule: Rule) -> None:
    learner = oracle(0.01)
    outcome = play(learner, (0.9,), Game(contexts=60, trials=2, rule=rule))
    assert outcome.regret.shape == (1, 2)
    assert outcome.regret.abs().max() == 0
    assert (outcome.failed, outcome.adaptations) == (0, 2 * 7)


def test_a_failed_adaptation_is_counted_and_the_posterior_before_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = oracle(0.01)
    real = bandit._adapted

    def second_fails(*arguments: object) -> WeightDistribution:
        found = real(*arguments)  # type: ignore[arg-type]
        found.mu[1] = torch.nan
        return found

    monkeypatch.setattr(bandit, "_adapted", second_fails)
    outcome = play(learner, (0.9,), Game(contexts=60, trials=2))
    assert (outcome.failed, outcome.adaptations) == (7, 2 * 7)
    assert outcome.regret.abs().max() == 0


def test_optimism_never_goes_below_the_means() -> None:
    learner = oracle(1.0)
    posterior, options = bandit._stacked(learner, 3), Bandits((0.9,), Game(contexts=2, trials=3)).options(0)
    by_rule = {rule: bandit._values(learner, posterior, options, Noise(1), rule) for rule in get_args(Rule)}
    assert torch.equal(by_rule["optimistic"], torch.maximum(by_rule["thompson"], by_rule["greedy"]))
    assert not torch.equal(by_rule["thompson"], by_rule["greedy"])


def test_a_try_is_worth_it_where_its_expected_reward_is_above_the_safe_one() -> None:
    chance = WORTH_A_TRY
    expected = 50 * chance + 1 * (1 - chance)
    assert expected == pytest.approx(1.2)


def test_the_first_context_is_tried_wherever_it_may_pay() -> None:
    game = Game(contexts=1, trials=200, rule="greedy")
    radius = Bandits((0.5,), game).contexts.norm(dim=2)[:, 0]
    regret = play_with_exact_posterior((0.5,), game).regret[0]
    inside = radius <= 0.5
    assert 0 < inside.sum() < len(inside)
    assert regret[~inside].abs().max() == 0  # the jackpot is found
    # Inside, the try costs 0.2, and uniform play 1.2 - (4 * 1 + 1.2) / 5 = 0.16.
    torch.testing.assert_close(regret[inside], torch.full_like(regret[inside], 125.0), rtol=1e-4, atol=0)


def test_thompson_sampling_tries_with_the_probability_of_a_jackpot() -> None:
    game = Game(contexts=1, trials=4000, rule="thompson")
    radius = Bandits((0.5,), game).contexts.norm(dim=2)[:, 0]
    missed = (
        play_with_exact_posterior((0.5,), game).regret[0] > 100
    )  # of 38.6 by chance 48.8 are lost; 125 % also inside
    outside = radius > 0.5
    assert float(missed[outside].double().mean()) == pytest.approx(1 - float(radius[outside].mean()), abs=0.02)


def test_what_was_tried_is_not_asked_again() -> None:
    game = Game(contexts=2000, trials=10, rule="greedy")
    few = play_with_exact_posterior((0.99,), Game(contexts=200, trials=10, rule="greedy")).regret.mean()
    assert play_with_exact_posterior((0.99,), game).regret.mean() < few / 2


def test_other_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="'optimistic'"):
        play_with_exact_posterior((0.5,), Game(rule="optimistic"))
