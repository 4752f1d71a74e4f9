import pytest
import torch

from benchmarks.bandit import Bandits, Game
from benchmarks.known_wheel import WORTH_A_TRY, play_with_exact_posterior


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
