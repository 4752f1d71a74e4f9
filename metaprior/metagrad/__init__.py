"""Exact meta-gradients in flat memory.

Every engine is called the same way, ``engine(problem, theta, task, noise)``, and returns a ``MetaGradient`` (``.loss``,
``.grads``, ``.terms``, ``.inner``) or, when a number is not finite, a ``NonFinite`` that says where.
"""

from metaprior.metagrad.adaptation import adapt, adapt_stack
from metaprior.metagrad.checkpointed import checkpointed
from metaprior.metagrad.finite_difference import finite_difference
from metaprior.metagrad.first_order import first_order
from metaprior.metagrad.implicit import Implicit, implicit
from metaprior.metagrad.meta_batch import MetaBatch, meta_gradient
from metaprior.metagrad.mixed import mixed
from metaprior.metagrad.planner import DoesNotFit, Plan, plan
from metaprior.metagrad.problem import AmortizedELBO, InnerLoop, MetaGradient, NonFinite, Problem, QueryLoss
from metaprior.metagrad.truncated import truncated
from metaprior.metagrad.twice_reverse import keeping, twice_reverse
from metaprior.metagrad.unrolled import unrolled

__all__ = [
    "AmortizedELBO",
    "DoesNotFit",
    "Implicit",
    "InnerLoop",
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
