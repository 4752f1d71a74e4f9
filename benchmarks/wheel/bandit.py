"""Wheel bandits, played side by side with the posterior that is adapted to what was seen so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

import metaprior as mp
from benchmarks.wheel import tasks as wheel
from metaprior.progress import track

EARLY = (1, 2, 4, 8, 16, 32)
"""Contexts after which the posterior is renewed at the start, before the regular ``refresh``."""


Rule = Literal["thompson", "optimistic", "greedy"]
"""The value of an arm: the prediction of one weight sample (Thompson sampling); the larger one of that and of the
prediction of the means (optimistic Thompson sampling, May et al. 2012); or the prediction of the means."""


@dataclass(frozen=True)
class Game:
    """The length of a game, the number of bandits, and how they are played."""

    contexts: int = 2000
    trials: int = 20
    refresh: int = 50
    """Contexts between two adaptations to everything seen so far."""
    rule: Rule = "thompson"
    seed: int = 0


class Bandits:
    """B wheels with n contexts each, which are drawn beforehand and the same for every player."""

    def __init__(self, deltas: Sequence[float], game: Game) -> None:
        noise = mp.Noise(game.seed).fork("bandits")
        self.size = len(deltas) * game.trials
        self.contexts = wheel.contexts(self.size * game.contexts, noise.fork("contexts").generator()).unflatten(
            0, (self.size, game.contexts)
        )
        pairs = zip(self.contexts, [delta for delta in deltas for _ in range(game.trials)], strict=True)
        self.means = torch.stack([wheel.mean_rewards(own, delta) for own, delta in pairs])  # (B, n, arms)
        self._noise = noise.fork("rewards")

    def options(self, turn: int) -> Tensor:
        """Return the network's inputs for every arm, (B, arms, 7)."""
        context = self.contexts[:, turn].repeat_interleave(wheel.ARMS, 0)
        arms = torch.arange(wheel.ARMS).repeat(self.size)
        options: Tensor = wheel.encode(context, arms).unflatten(0, (self.size, wheel.ARMS))
        return options

    def rewards(self, turn: int, arms: Tensor) -> Tensor:
        """Return the observed rewards of the chosen arms, (B,)."""
        chosen = self.means[torch.arange(self.size), turn, arms]
        noise = self._noise.at(step=turn).normal(chosen)
        return torch.add(chosen, noise, alpha=wheel.REWARD_NOISE)

    def regret(self, arms: Tensor) -> Tensor:
        """Return the cumulative regret of choices (B, n) in percent of that of uniformly random choices."""
        best = self.means.amax(2)
        lost = (best - self.means.gather(2, arms.unsqueeze(2)).squeeze(2)).sum(1)
        return 100 * lost / (best - self.means.mean(2)).sum(1)

    def outcome(self, arms: Tensor, trials: int, *, failed: int = 0, adaptations: int = 0) -> "Outcome":
        """Return the outcome of choices (B, n)."""
        pays, best = self.means.amax(2) == wheel.JACKPOT, self.means.argmax(2)
        missed, wasted = (pays & (arms != best)).sum(1), (~pays & (arms != wheel.SAFE_ARM)).sum(1)
        regret, missed, wasted = (values.unflatten(0, (-1, trials)) for values in (self.regret(arms), missed, wasted))
        return Outcome(regret, missed, wasted, failed, adaptations)


class Outcome(NamedTuple):
    """The result of a game, (deltas, trials) each, and the numbers of failed and of all adaptations."""

    regret: Tensor
    """In percent of uniform play."""
    missed: Tensor
    """Jackpots that were not taken."""
    wasted: Tensor
    """Tries inside of delta, where the safe arm is best."""
    failed: int
    adaptations: int


def play(learner: mp.MetaLearner, deltas: Sequence[float], game: Game) -> Outcome:
    """Play the bandits: adapt from theta to everything seen so far, and choose the arm of the highest value.

    Where an adaptation is not finite, the posterior before it is used on.
    """
    bandits, noise = Bandits(deltas, game), mp.Noise(game.seed).fork("player")
    seen = mp.Examples(torch.zeros(bandits.size, game.contexts, 7), torch.zeros(bandits.size, game.contexts, 1))
    arms = torch.zeros(bandits.size, game.contexts, dtype=torch.long)
    posterior = _stacked(learner, bandits.size)
    rows = torch.arange(bandits.size)
    failed = adaptations = 0
    for turn in track(range(game.contexts), "Bandits", unit="decisions", show=True):
        if turn in EARLY or (turn and turn % game.refresh == 0):
            found = _adapted(learner, mp.Examples(seen.x[:, :turn], seen.y[:, :turn]), noise.at(step=turn))
            good = found.mu.isfinite().all(1) & ~found.rho.isnan().any(1)
            posterior = _where(good, found, posterior, learner.problem(1).adapted_names)
            failed, adaptations = failed + int((~good).sum()), adaptations + len(good)
        options = bandits.options(turn)
        values = _values(learner, posterior, options, noise.fork("decision").at(step=turn), game.rule)
        arms[:, turn] = values.argmax(1)
        seen.x[:, turn] = options[rows, arms[:, turn]]
        seen.y[:, turn, 0] = wheel.to_target(bandits.rewards(turn, arms[:, turn]))
    return bandits.outcome(arms, game.trials, failed=failed, adaptations=adaptations)


def _stacked(learner: mp.MetaLearner, size: int) -> mp.WeightDistribution:
    """Return the prior, once for each bandit."""
    theta, moving = learner.theta_, learner.problem(1).adapted_names
    plain = {name: p.expand(size, *p.shape) if name in moving else p for name, p in theta.plain.items()}
    return theta.replace(mu=theta.mu.expand(size, -1), rho=theta.rho.expand(size, -1), plain=plain)


def _adapted(learner: mp.MetaLearner, seen: mp.Examples, noise: mp.Noise) -> mp.WeightDistribution:
    noises = [noise.at(task=number) for number in range(len(seen.x))]
    return mp.metagrad.adapt_stack(learner.problem(1), learner.theta_, seen, noises)


def _where(
    good: Tensor, new: mp.WeightDistribution, old: mp.WeightDistribution, moving: Sequence[str]
) -> mp.WeightDistribution:
    """Return the new rows where they are good, the old ones elsewhere."""

    def chosen(one: Tensor, other: Tensor) -> Tensor:
        return torch.where(good.view(-1, *[1] * (one.ndim - 1)), one, other)

    plain = {name: chosen(p, old.plain[name]) if name in moving else p for name, p in new.plain.items()}
    return new.replace(mu=chosen(new.mu, old.mu), rho=chosen(new.rho, old.rho), plain=plain)


def _values(
    learner: mp.MetaLearner, posterior: mp.WeightDistribution, options: Tensor, noise: mp.Noise, rule: Rule
) -> Tensor:
    """Return the value of every arm, (B, arms), in the units of the targets."""
    moving = {name: posterior.plain[name] for name in learner.problem(1).adapted_names}

    def predict(own: Tensor, own_plain: dict[str, Tensor], x: Tensor) -> Tensor:
        return learner.network(own, {**posterior.plain, **own_plain}, x)

    def values(weights: Tensor) -> Tensor:
        return torch.vmap(predict)(weights, moving, options).squeeze(-1)

    with torch.no_grad():
        if rule == "greedy":
            return values(posterior.mu)
        sampled = values(posterior.sample(noise.normal(posterior.mu)))
        return sampled if rule == "thompson" else torch.maximum(sampled, values(posterior.mu))
