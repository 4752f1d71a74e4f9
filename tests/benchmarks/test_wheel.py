from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from benchmarks import bandit
from benchmarks import wheel as bench
from benchmarks.bandit import Bandits, Game, Outcome, Rule, play
from metaprior.noise import Noise
from metaprior.tasks import wheel
from metaprior.weights import WeightDistribution

SHORT = {"seconds": 0.3}
TINY = replace(
    bench.QUICK,
    lessons=(replace(bench.RANGE, **SHORT, trainings=2), replace(bench.PAPER, **SHORT)),
    meta_batch=2,
    hidden=8,
    contexts=12,
    trials=2,
    steps=2,
)


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

    several = bench._row("", [outcome(2.0), outcome(4.0)], TINY)
    assert (several["delta 0.9"], several["se 0.9"]) == (3.0, pytest.approx(1.0))
    assert (several["missed"], several["wasted"]) == (3.0, 3.0)
    alone = bench._row("", [outcome(2.0)], TINY)
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


@pytest.mark.parametrize("rule", ["thompson", "optimistic", "greedy"])
def test_a_network_that_knows_the_wheel_has_no_regret(rule: Rule) -> None:
    from metaprior import Gaussian, InnerLoop, MetaLearner

    learner = MetaLearner(Oracle(), Gaussian(noise=0.1), inner=InnerLoop(1, 1e-3), relative_sigma=0.01)
    learner.start(wheel.WheelTasks(k_shot=8, k_query=8, num_tasks=4))
    outcome = play(learner, (0.9,), Game(contexts=60, trials=2, rule=rule))
    assert outcome.regret.shape == (1, 2)
    assert outcome.regret.abs().max() == 0
    assert (outcome.failed, outcome.adaptations) == (0, 2 * 7)


def test_a_failed_adaptation_is_counted_and_the_posterior_before_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    from metaprior import Gaussian, InnerLoop, MetaLearner

    learner = MetaLearner(Oracle(), Gaussian(noise=0.1), inner=InnerLoop(1, 1e-3), relative_sigma=0.01)
    learner.start(wheel.WheelTasks(k_shot=8, k_query=8, num_tasks=4))
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
    from metaprior import Gaussian, InnerLoop, MetaLearner

    learner = MetaLearner(Oracle(), Gaussian(noise=0.1), inner=InnerLoop(1, 1e-3), relative_sigma=1.0)
    learner.start(wheel.WheelTasks(k_shot=8, k_query=8, num_tasks=4))
    posterior, options = bandit._stacked(learner, 3), Bandits((0.9,), Game(contexts=2, trials=3)).options(0)
    by_rule = {rule: bandit._values(learner, posterior, options, Noise(1), rule) for rule in get_args(Rule)}
    assert torch.equal(by_rule["optimistic"], torch.maximum(by_rule["thompson"], by_rule["greedy"]))
    assert not torch.equal(by_rule["thompson"], by_rule["greedy"])


def test_the_headline_is_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", TINY)
    monkeypatch.setattr(bench, "run_all", lambda function, jobs, **_: list(map(function, jobs)))
    result = bench.run(quick=True)
    rows = {row["what"]: row for row in result.rows}
    for delta in bench.DELTAS:
        assert result.headline[f"wheel_{delta}"] == rows["ABML, Thompson"][f"delta {delta}"]
        assert result.headline[f"wheel_{delta}_maml"] == rows["MAML, greedy"][f"delta {delta}"]
        assert rows["ABML, Thompson"][f"delta {delta}"] >= 0
        assert result.headline[f"wheel_{delta}_optimistic"] == rows["ABML, optimistic Thompson"][f"delta {delta}"]
    assert rows["published: ABML, Thompson (n = 2,000)"]["delta 0.99"] == 35.04
    assert {"ABML, Thompson, support sets of 512", "MAML, greedy, support sets of 512"} < set(rows)
    assert (rows["ABML, Thompson"]["trainings"], rows["MAML, greedy, support sets of 512"]["trainings"]) == (2, 1)
    assert {"exact posterior, Thompson", "exact posterior, highest expected reward"} < set(rows)
    assert sum("meta-steps" in note for note in result.notes) == 6, "one for each training"
