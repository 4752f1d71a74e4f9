"""Learn a prior over neural-network weights, adapt it to a new task, forecast with honest uncertainty."""

from importlib.metadata import version

from metaprior import callbacks, conformal, metagrad
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.context.encoder import SupportEncoder
from metaprior.adaptation.context.settings import Combination, Context
from metaprior.compression import CompressionLoss
from metaprior.errors import CheckpointError, NotFinite, NotFittedError, TrainingDiverged
from metaprior.forecasts import Forecast
from metaprior.hierarchy.hierarchical_posterior import HierarchicalPosterior
from metaprior.hierarchy.hyper_posterior import HyperPosterior
from metaprior.hierarchy.theta_inference import HMC, Anchored, Variational
from metaprior.hierarchy.whitened import CollapsedHyperprior
from metaprior.history import EpochRecord
from metaprior.likelihoods import (
    BalancedGaussian,
    Bernoulli,
    Categorical,
    CensoredGaussian,
    CRPSGaussian,
    Gaussian,
    GaussianMixture,
    HeteroscedasticGaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    Quantiles,
    StudentT,
    ZeroInflatedLogNormal,
)
from metaprior.metagrad.problem import AmortizedELBO, Descent, NonFinite, Problem, QueryLoss
from metaprior.methods import BayesByBackprop, HierarchicalVI, MetaLearner, load
from metaprior.methods.own_loop import meta_evaluate, meta_train_one_epoch
from metaprior.models.small import MLP
from metaprior.models.unet import BayesianUNet, UNet
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.posterior import CompressedPosterior, Posterior, Predictive
from metaprior.priors import GaussianHyperprior, NormalGammaHyperprior, NormalPrior, ScaleMixturePrior
from metaprior.tasks.grouped import GroupedTasks
from metaprior.tasks.task import Examples, Task, VariedSupport
from metaprior.team import Team, team_of_torchrun
from metaprior.training.settings import MetaTraining
from metaprior.weights import WeightDistribution, kl_divergence

__version__ = version("metaprior")

__all__ = [
    "HMC",
    "MLP",
    "AmortizedELBO",
    "Anchored",
    "BalancedGaussian",
    "BayesByBackprop",
    "BayesianNetwork",
    "BayesianUNet",
    "Bernoulli",
    "CRPSGaussian",
    "Categorical",
    "CensoredGaussian",
    "CheckpointError",
    "ClosedForm",
    "CollapsedHyperprior",
    "Combination",
    "CompressedPosterior",
    "CompressionLoss",
    "Context",
    "Descent",
    "EpochRecord",
    "Examples",
    "Forecast",
    "Gaussian",
    "GaussianHyperprior",
    "GaussianMixture",
    "GroupedTasks",
    "HeteroscedasticGaussian",
    "HierarchicalPosterior",
    "HierarchicalVI",
    "HyperPosterior",
    "Likelihood",
    "MetaLearner",
    "MetaTraining",
    "NegativeBinomial",
    "Noise",
    "NonFinite",
    "NormalGammaHyperprior",
    "NormalPrior",
    "NotFinite",
    "NotFittedError",
    "Poisson",
    "Posterior",
    "Predictive",
    "Problem",
    "Quantiles",
    "QueryLoss",
    "ScaleMixturePrior",
    "StudentT",
    "SupportEncoder",
    "Task",
    "Team",
    "TrainingDiverged",
    "UNet",
    "Variational",
    "VariedSupport",
    "WeightDistribution",
    "ZeroInflatedLogNormal",
    "callbacks",
    "conformal",
    "kl_divergence",
    "load",
    "meta_evaluate",
    "meta_train_one_epoch",
    "metagrad",
    "team_of_torchrun",
]
