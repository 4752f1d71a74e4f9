r"""A player that knows everything except delta: what the exact posterior is worth by decision rule.

With delta ~ U(0, 1) and rewards that tell a jackpot from a miss without doubt, the posterior of delta after any number
of tries is uniform between the largest radius that did not pay and the smallest that did, so that a context of radius
$r$ pays with probability $p = (r - \text{low}) / (\text{high} - \text{low})$, cut to 0 ... 1. Thompson sampling tries
with this probability; the rule of the highest expected reward tries wherever $50p + 1 - p > 1.2$.
"""

from collections.abc import Sequence

import torch

import metaprior as mp
from benchmarks.wheel import tasks as wheel
from benchmarks.wheel.bandit import Bandits, Game, Outcome

WORTH_A_TRY = (wheel.SAFE_REWARD - wheel.PLAIN_REWARD) / (wheel.JACKPOT - wheel.PLAIN_REWARD)
"""The probability of a jackpot above which the expected reward of a try is above the safe one: 0.4 %."""


def play_with_exact_posterior(deltas: Sequence[float], game: Game) -> Outcome:
    """Return the outcome by the game's rule: "thompson", or "greedy" (the highest expected reward)."""
    if game.rule not in ("thompson", "greedy"):
        raise ValueError(f"rule must be 'thompson' or 'greedy' for the exact posterior, got {game.rule!r}")
    bandits, noise = Bandits(deltas, game), mp.Noise(game.seed).fork("exact player")
    radius, own_arm = bandits.contexts.norm(dim=2), wheel.quadrant_arm(bandits.contexts)
    pays = bandits.means.argmax(2) == own_arm
    draws = torch.full_like(radius, WORTH_A_TRY)
    if game.rule == "thompson":
        draws.uniform_(generator=noise.generator())
    tried = torch.zeros_like(pays)
    low, high = torch.zeros(bandits.size), torch.ones(bandits.size)
    for turn in range(game.contexts):
        r, paid = radius[:, turn], pays[:, turn]
        now = tried[:, turn] = (r - low) / (high - low) > draws[:, turn]
        low = torch.where(now & ~paid, torch.maximum(low, r), low)
        high = torch.where(now & paid, torch.minimum(high, r), high)
    arms = own_arm.where(tried, torch.tensor(wheel.SAFE_ARM))
    return bandits.outcome(arms, game.trials)
