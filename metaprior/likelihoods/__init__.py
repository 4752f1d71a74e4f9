r"""Likelihoods p(y | network output).

A likelihood is a small frozen description. What it learns (a noise scale) are *plain parameters*, passed to it by name
beside the network's own. An **observation** is one entry of the first axis; its negative log-likelihood is the sum over
everything behind that axis (channels, pixels), never a mean. Targets that are **missing** (NaN, for class labels -100)
are left out of that sum by ``Masked``, which ``masking`` adds where there are any.
"""

from metaprior.likelihoods.balanced import BalancedGaussian
from metaprior.likelihoods.gaussian import NOISE_RHO, CRPSGaussian, Gaussian, HeteroscedasticGaussian
from metaprior.likelihoods.labels import Bernoulli, Categorical
from metaprior.likelihoods.likelihood import Likelihood, Masked
from metaprior.likelihoods.mixture import GaussianMixture
from metaprior.registry import Registry

LIKELIHOODS = Registry(
    "likelihood.kind",
    {
        "gaussian": Gaussian,
        "heteroscedastic": HeteroscedasticGaussian,
        "balanced": BalancedGaussian,
        "crps": CRPSGaussian,
        "mixture": GaussianMixture,
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
    "Gaussian",
    "GaussianMixture",
    "HeteroscedasticGaussian",
    "Likelihood",
    "Masked",
]
