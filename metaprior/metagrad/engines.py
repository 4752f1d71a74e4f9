r"""The engines that sweep back over the inner steps in weight space: one gradient stored for each step, in memory, or
(``on_disk``) gradient and iterate in a file.

| engine | result | Hessian products |
|---|---|---|
| ``mixed`` | exact | forward over reverse |
| ``twice_reverse``, ``keeping(k)`` | exact | reverse over reverse, the graphs of the last k steps kept |
| ``finite_difference`` | approximate | two plain gradients; for layers without second derivatives |
| ``truncated(k)`` | approximate | reverse over reverse, through the last k steps alone |
| ``first_order`` | approximate | none |

``truncated`` takes earlier steps as constants (Shaban et al. 2019), ``first_order`` all of them (first-order MAML, Finn
et al. 2017, section 5.2): $d\lambda^{(K)}/d\theta \approx I$. On a quadratic of curvature a the true factor is
$(1-\alpha a)^K$; with the last k steps it is $(1-\alpha a)^k$, so the error is small only if steps are few and short.
"""

from dataclasses import replace

from metaprior.checks import check_integer
from metaprior.metagrad.data_loss import central_difference, forward_over_reverse, reverse_over_reverse
from metaprior.metagrad.scratch import Folder, Scratch
from metaprior.metagrad.sweep import Sweep

ON_DISK = ", path on disk"
"""End of the names of engines that keep their path in a file."""


def keeping(steps: int) -> Sweep:
    """Return ``twice_reverse`` with the graphs of the last ``steps`` inner steps kept: faster, with more memory."""
    check_integer("steps", steps, 0)
    name = f"twice_reverse, graphs kept: {steps}" if steps else "twice_reverse"
    return Sweep(name, exact=True, product=reverse_over_reverse, keep=steps)


def truncated(steps: int) -> Sweep:
    """Return the engine that differentiates through the last ``steps`` inner steps."""
    check_integer("steps", steps, 0)
    return Sweep(f"truncated({steps})", exact=False, product=reverse_over_reverse, through=steps)


def on_disk(folder: Folder = None, *, engine: Sweep | None = None) -> Sweep:
    """Return an engine that keeps its path in a file, so that its memory does not grow with the number of inner steps.

    It gives bitwise the same result as in memory. See ``Sweep.scratch_bytes`` for the size of the file.

    Args:
        folder: Where the file is made; it has no name and is gone when the call is over. None is the system's temporary
            folder. In a file system in memory (tmpfs) nothing is gained.
        engine: The engine to keep on disk, without kept graphs; None is ``twice_reverse``.
    """
    engine = engine or twice_reverse
    return replace(engine, name=f"{engine.name}{ON_DISK}", scratch=Scratch(folder))


mixed = Sweep("mixed", exact=True, product=forward_over_reverse)
"""The exact engine whose Hessian products are forward over reverse mode."""
twice_reverse = keeping(0)
"""The exact engine whose Hessian products are reverse over reverse mode, with the least memory."""
first_order = Sweep("first_order", exact=False, product=reverse_over_reverse, through=0)
"""The approximate engine that leaves all second derivatives out, as first-order MAML does."""
finite_difference = Sweep("finite_difference", exact=False, product=central_difference)
"""The approximate engine whose Hessian products are differences of two gradients."""
