r"""Predictive distributions from the outputs of S weight samples, or of S weighted components.

A forecast is a mixture: over samples $\phi_1..\phi_S$ of the weights, each with weight 1/S, or, where ``weights`` are
given, over components that are the whole distribution (the exact posterior of a closed form). By the law of total
variance

$$\mathrm{Var}[y] = \mathrm{Var}_\phi[E[y|\phi]] + E_\phi[\mathrm{Var}[y|\phi]],$$

an **epistemic** part (the weights are uncertain; it shrinks with data) and an **aleatoric** part (the data are noisy;
it does not). Both are given as standard deviations, so ``std**2 == epistemic**2 + aleatoric**2``. For real-valued
targets the epistemic variance of samples has S - 1 in its denominator; for labels it has S, which makes the total
p(1 - p).
"""

from metaprior.forecasts.censored import CensoredForecast
from metaprior.forecasts.counts import CountForecast
from metaprior.forecasts.families import MixtureForecast
from metaprior.forecasts.forecast import Forecast, check_shape, concatenated
from metaprior.forecasts.gaussian import GaussianForecast
from metaprior.forecasts.labels import BernoulliForecast, CategoricalForecast
from metaprior.forecasts.quantiles import QuantileForecast
from metaprior.forecasts.student import StudentTForecast
from metaprior.forecasts.zero_inflated import ZeroInflatedForecast

__all__ = [
    "BernoulliForecast",
    "CategoricalForecast",
    "CensoredForecast",
    "CountForecast",
    "Forecast",
    "GaussianForecast",
    "MixtureForecast",
    "QuantileForecast",
    "StudentTForecast",
    "ZeroInflatedForecast",
    "check_shape",
    "concatenated",
]
