"""**Approximate**: each Hessian product from two plain gradients; for layers without second derivatives."""

from metaprior.metagrad.products import central_difference
from metaprior.metagrad.sweep import Sweep

finite_difference = Sweep("finite_difference", exact=False, product=central_difference)
