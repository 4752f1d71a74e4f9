"""Exact meta-gradients in flat memory.

Every engine is called the same way, ``engine(problem, theta, task, noise)``, and returns a ``MetaGradient`` (``.loss``,
``.grads``, ``.terms``, ``.inner``) or, if a number is not finite, a ``NonFinite`` with the place where that happened.
"""

from metaprior.metagrad.engines import finite_difference, first_order, keeping, mixed, truncated, twice_reverse
from metaprior.metagrad.implicit import Implicit, implicit
from metaprior.metagrad.inner_loop import adapt, adapt_stack
from metaprior.metagrad.meta_batch import MetaBatch, meta_gradient
from metaprior.metagrad.planner import DoesNotFit, Plan, plan
from metaprior.metagrad.problem import AmortizedELBO, Descent, MetaGradient, NonFinite, Problem, QueryLoss
from metaprior.metagrad.reference import checkpointed, unrolled

__all__ = [
    "AmortizedELBO",
    "Descent",
    "DoesNotFit",
    "Implicit",
    "MetaBatch",
    "MetaGradient",
    "NonFinite",
    "Plan",
    "Problem",
    "QueryLoss",
    "adapt",
    "adapt_stack",
    "checkpointed",
    "finite_difference",
    "first_order",
    "implicit",
    "keeping",
    "meta_gradient",
    "mixed",
    "plan",
    "truncated",
    "twice_reverse",
    "unrolled",
]
