r"""Likelihoods p(y | network output).

A likelihood is a small frozen description. What it learns (a noise scale) are *plain parameters*, passed to it by name
beside the network's own. An **observation** is one entry of the first axis; its negative log-likelihood is the sum over
everything behind that axis (channels, pixels), never a mean. Targets that are **missing** (NaN, for class labels -100)
are left out of that sum by ``Masked``, which ``masking`` adds where there are any.
"""

from metaprior.likelihoods.balanced import BalancedGaussian
from metaprior.likelihoods.censored import CensoredGaussian
from metaprior.likelihoods.counts import NegativeBinomial, Poisson
from metaprior.likelihoods.gaussian import CRPSGaussian, Gaussian, HeteroscedasticGaussian
from metaprior.likelihoods.labels import Bernoulli, Categorical
from metaprior.likelihoods.likelihood import Likelihood, Masked
from metaprior.likelihoods.location_scale import NOISE_RHO
from metaprior.likelihoods.mixture import GaussianMixture
from metaprior.likelihoods.quantiles import Quantiles
from metaprior.likelihoods.student import StudentT
from metaprior.likelihoods.zero_inflated import ZeroInflatedLogNormal
from metaprior.registry import Registry

LIKELIHOODS = Registry(
    "likelihood.kind",
    {
        "gaussian": Gaussian,
        "heteroscedastic": HeteroscedasticGaussian,
        "balanced": BalancedGaussian,
        "crps": CRPSGaussian,
        "mixture": GaussianMixture,
        "student_t": StudentT,
        "censored": CensoredGaussian,
        "zero_inflated": ZeroInflatedLogNormal,
        "quantiles": Quantiles,
        "poisson": Poisson,
        "negative_binomial": NegativeBinomial,
        "categorical": Categorical,
        "bernoulli": Bernoulli,
    },
)

__all__ = [
    "LIKELIHOODS",
    "NOISE_RHO",
    "BalancedGaussian",
    "Bernoulli",
    "CRPSGaussian",
    "Categorical",
    "CensoredGaussian",
    "Gaussian",
    "GaussianMixture",
    "HeteroscedasticGaussian",
    "Likelihood",
    "Masked",
    "NegativeBinomial",
    "Poisson",
    "Quantiles",
    "StudentT",
    "ZeroInflatedLogNormal",
]
