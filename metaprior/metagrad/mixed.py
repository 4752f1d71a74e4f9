"""Mixed mode: weight-space Hessian products by forward-over-reverse, noise replayed, one gradient stored a step."""

from metaprior.metagrad.products import forward_over_reverse
from metaprior.metagrad.sweep import Sweep

mixed = Sweep("mixed", exact=True, product=forward_over_reverse)
