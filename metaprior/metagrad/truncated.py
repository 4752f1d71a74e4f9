r"""**Approximate**: only the last k steps are differentiated (truncated back-propagation, Shaban et al. 2019).

Earlier steps are taken as constants, as in ``first_order``. On a quadratic of curvature a the factor is
$(1-\alpha a)^k$ in place of $(1-\alpha a)^K$; with k = K it is exact.
"""

from metaprior.metagrad.products import reverse_over_reverse
from metaprior.metagrad.sweep import Sweep


def truncated(steps: int) -> Sweep:
    """The engine that differentiates through the last ``steps`` inner steps."""
    if steps < 0:
        raise ValueError(f"the number of differentiated steps cannot be negative, got {steps}")
    return Sweep(f"truncated({steps})", exact=False, product=reverse_over_reverse, through=steps)
