r"""The average of the latest iterates, for training with a learning rate that does not fall.

Steps of constant length keep wandering around a minimum; the mean of where they have been lies nearer to it than any of
them (Polyak & Juditsky 1992), and is there at any time, without knowing when the training will end. With polynomially
growing weights (Shamir & Zhang 2013, "SGD for non-smooth optimization: convergence results and optimal averaging
schemes"),

    mean_t = mean_{t-1} + (theta_t - mean_{t-1}) / (1 + share (t - 1)),

iterate i of t has a weight of about (i/t)^(1/share - 1): what lies much further back than ``share`` of the steps so far
is forgotten. A share of 1 is the mean of all, and towards 0 it becomes the last iterate.
"""

from torch import Tensor

from metaprior.weights import WeightDistribution


class Average:
    """The running average of theta's means and plain parameters; rho, which a warm start leaves alone, is theta's."""

    def __init__(self, theta: WeightDistribution, share: float) -> None:
        self.share = share
        self.theta = theta.detached().replace(rho=theta.rho.detach())

    def add(self, theta: WeightDistribution, count: int) -> None:
        """Take in one more iterate, the ``count``-th."""
        weight, latest = 1 / (1 + self.share * (count - 1)), theta.named()
        for name, value in self.tensors.items():
            value.lerp_(latest[name].detach(), weight)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What is averaged, by name."""
        return {name: value for name, value in self.theta.named().items() if name != "rho"}
