"""As ``mixed``, with the products by reverse-over-reverse; the graphs of the last steps can be kept."""

from metaprior.metagrad.products import reverse_over_reverse
from metaprior.metagrad.sweep import Sweep


def keeping(steps: int) -> Sweep:
    """With the graphs of the last ``steps`` inner steps kept: faster, for the memory that they take."""
    if steps < 0:
        raise ValueError(f"the number of steps whose graph is kept cannot be negative, got {steps}")
    name = f"twice_reverse, graphs kept: {steps}" if steps else "twice_reverse"
    return Sweep(name, exact=True, product=reverse_over_reverse, keep=steps)


twice_reverse = keeping(0)
