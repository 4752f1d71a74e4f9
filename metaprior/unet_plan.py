"""What ``metaprior plan`` does: predict the memory of one meta-step of a Bayesian U-Net, before anything runs."""

from dataclasses import dataclass

import torch

from metaprior.likelihoods import NOISE, Gaussian
from metaprior.metagrad.planner import Choice, predict
from metaprior.metagrad.problem import InnerLoop, Problem
from metaprior.models.unet import UNet
from metaprior.network import BayesianNetwork
from metaprior.tasks.task import Examples, Task


@dataclass(frozen=True)
class UNetJob:
    """Sizes of the network and of its tasks."""

    width: int
    frame: int
    frames: int
    k_shot: int
    k_query: int
    steps: int
    samples: int
    stochastic: str

    def choices(self) -> tuple[Choice, ...]:
        """Every exact way, with its predicted peak; parameters that are not random do not move."""
        network = BayesianNetwork(UNet(self.frames, self.frames, self.width), self.stochastic)
        inner = InnerLoop(steps=self.steps, samples=self.samples, adapt=NOISE)
        problem = Problem(network, Gaussian(), inner)
        task = Task(self._examples(self.k_shot), self._examples(self.k_query))
        return tuple(predict(problem, problem.initial(task.support.y), task))

    def _examples(self, count: int) -> Examples:
        frames = torch.ones(count, self.frames, self.frame, self.frame)
        return Examples(frames, frames)
