"""Learn a prior over neural-network weights, adapt it to a new task, forecast with honest uncertainty."""

from importlib.metadata import version

from metaprior.checkpoint import CheckpointError
from metaprior.hyperprior import NormalGammaHyperprior
from metaprior.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from metaprior.methods.bayes_by_backprop import BayesByBackprop
from metaprior.methods.free_energy_descent import TrainingDiverged
from metaprior.models.mlp import MLP
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.priors import NormalPrior, ScaleMixturePrior
from metaprior.weights import WeightDistribution, kl_divergence

__version__ = version("metaprior")

__all__ = [
    "MLP",
    "BayesByBackprop",
    "BayesianNetwork",
    "Bernoulli",
    "Categorical",
    "CheckpointError",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "Noise",
    "NormalGammaHyperprior",
    "NormalPrior",
    "Posterior",
    "ScaleMixturePrior",
    "TrainingDiverged",
    "WeightDistribution",
    "kl_divergence",
]
