"""Exact meta-gradients in flat memory.

Every engine is called the same way, ``engine(problem, theta, task, noise)``, and returns a ``MetaGradient`` (``.loss``,
``.grads``, ``.terms``, ``.inner``) or, if a number is not finite, a ``NonFinite`` with the place where that happened.

MAML with the squared error, as with ``higher``; NLL and squared error of one output differ by a constant where
noise^2 = 1/2::

    problem = Problem(BayesianNetwork(net), Gaussian(noise=0.5**0.5), Descent(steps=5, lr=0.01, kl_weight=0))
    theta = problem.initial(y, relative_sigma=0)  # a point, and no distribution; then mu are the weights
    task = problem.check(Task((x, y), (x_query, y_query)))
    value = twice_reverse(problem, theta, task, Noise(0)).or_raise()
    value.grads.mu  # d(query loss)/d(weights), flat, in the order of net.named_parameters()
"""

from metaprior.metagrad.engines import finite_difference, first_order, keeping, mixed, on_disk, truncated, twice_reverse
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
    "on_disk",
    "plan",
    "truncated",
    "twice_reverse",
    "unrolled",
]
