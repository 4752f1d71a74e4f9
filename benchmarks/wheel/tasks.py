r"""The wheel bandit: five arms, contexts in the unit disc, and a rare region where one arm pays 50.

The expected reward of arm $a$ in context $c$ is

    arm 4:       1.2                               everywhere
    arms 0 - 3:  50  if |c| > delta and the arm belongs to the quadrant of c,  1 otherwise

and a reward is observed with noise of standard deviation 0.01. The larger delta, the smaller the part $1 - \delta^2$ of
contexts that pay, and the longer an agent that does not explore goes on pulling the safe arm 4.

Riquelme, Tucker, Snoek 2018, "Deep Bayesian Bandits Showdown"; learning from wheels of other deltas: Garnelo et al.
2018, "Neural Processes", and Ravi, Beatson 2019, "Amortized Bayesian Meta-Learning".
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.checks import check_counts
from metaprior.noise import task_generator, uniform
from metaprior.tasks.task import Task, check_index

ARMS = 5
SAFE_ARM = 4
SAFE_REWARD = 1.2
PLAIN_REWARD = 1.0
JACKPOT = 50.0
REWARD_NOISE = 0.01


def contexts(count: int, generator: torch.Generator) -> Tensor:
    """Points (count, 2), uniform in the unit disc."""
    radius = torch.rand(count, generator=generator).sqrt()  # the area within a radius grows with its square
    angle = uniform(0.0, 2 * torch.pi, (count,), generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


def mean_rewards(contexts: Tensor, delta: float) -> Tensor:
    """Expected reward of every arm: contexts (count, 2) -> (count, 5)."""
    outside = contexts.square().sum(1) > delta**2
    rewards = contexts.new_full((len(contexts), ARMS), PLAIN_REWARD)
    rewards[:, SAFE_ARM] = SAFE_REWARD
    rewards[outside, quadrant_arm(contexts)[outside]] = JACKPOT
    return rewards


def quadrant_arm(contexts: Tensor) -> Tensor:
    """The arm that pays outside delta, contexts (..., 2) -> (...): (+, +) is 0, (+, -) 1, (-, +) 2 and (-, -) 3."""
    right, upper = (contexts > 0).long().unbind(-1)
    return 2 * (1 - right) + (1 - upper)


def observed_rewards(contexts: Tensor, actions: Tensor, delta: float, generator: torch.Generator) -> Tensor:
    """Rewards (count,) of the arms that were pulled, with their noise."""
    means = mean_rewards(contexts, delta).gather(1, actions[:, None])[:, 0]
    return means + REWARD_NOISE * torch.randn(means.shape, generator=generator)


def encode(contexts: Tensor, actions: Tensor) -> Tensor:
    """A network's input: contexts (count, 2) and arms (count,) -> (count, 7), the arm as one of five."""
    return torch.cat([contexts, F.one_hot(actions, ARMS).to(contexts.dtype)], 1)


def to_target(reward: Tensor) -> Tensor:
    """What a network learns: log(reward).

    Rewards are near 1, 1.2 and 50. On their own scale the difference between the first two, which decides what an agent
    does inside the wheel, is 1/240 of that to the third, and a regression on all of them does not see it; their
    logarithms are 0, 0.18 and 3.9.
    """
    if bool((reward <= 0).any()):
        raise ValueError(f"rewards have to be positive to have a logarithm, the smallest is {float(reward.min()):.4g}")
    return reward.log()


def to_reward(target: Tensor) -> Tensor:
    """Back from a network's scale: exp(target), the inverse of ``to_target``."""
    return target.exp()


@dataclass(frozen=True)
class WheelTasks:
    """Wheels, each with its own delta ~ U(delta_low, delta_high): predict an arm's reward in a context.

    ``num_tasks`` of them. x is ``encode(context, arm)``, (k, 7), with arms drawn uniformly in support and query alike;
    y is ``to_target(reward)``, (k, 1).
    """

    k_shot: int = 512
    k_query: int = 50
    num_tasks: int = 64
    seed: int = 0
    delta_low: float = 0.0
    delta_high: float = 1.0

    def __post_init__(self) -> None:
        check_counts(k_shot=self.k_shot, k_query=self.k_query, num_tasks=self.num_tasks)
        if not 0 <= self.delta_low <= self.delta_high <= 1:
            raise ValueError(
                "delta is a radius within the unit disc: 0 <= delta_low <= delta_high <= 1 is needed, "
                f"got delta_low={self.delta_low} and delta_high={self.delta_high}"
            )

    def __len__(self) -> int:
        """Number of wheels."""
        return self.num_tasks

    def __getitem__(self, index: int) -> Task:
        """Pulls of the wheel with this index, 0 to num_tasks - 1."""
        check_index(index, self.num_tasks)
        generator = task_generator("wheel", self.seed, index)
        delta = self._delta(generator)
        points = contexts(self.k_shot + self.k_query, generator)
        actions = torch.randint(ARMS, (len(points),), generator=generator)
        y = to_target(observed_rewards(points, actions, delta, generator))[:, None]
        return Task.split(encode(points, actions), y, self.k_shot, f"wheel {index} (delta {delta:.3f})")

    def delta(self, index: int) -> float:
        """The delta of the wheel with this index."""
        check_index(index, self.num_tasks)
        return self._delta(task_generator("wheel", self.seed, index))

    def _delta(self, generator: torch.Generator) -> float:
        """The first number that a task draws."""
        return float(uniform(self.delta_low, self.delta_high, (1,), generator))
