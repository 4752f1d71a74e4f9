r"""An **approximate** engine: the adapted lambda is taken for a minimum of the inner loss (implicit differentiation,
Rajeswaran et al. 2019).

At a minimum $G(\lambda, \theta) = 0$ the path does not matter, and

$$\frac{dL}{d\theta} = \frac{\partial L}{\partial\theta} - \Big(\frac{\partial G}{\partial\theta}\Big)^T x, \qquad
\frac{\partial G}{\partial\lambda}\,x = \frac{\partial L}{\partial\lambda},$$

solved by conjugate gradients with the same weight-space products as the exact engines, for one draw of the noise. The
error is of the size of the remaining inner gradient (``diagnostics["inner_gradient"]``) and of the solver's residual
(``diagnostics["residual"]``): after a few steps it is large, after convergence it vanishes. The gradient by step sizes
is zero, and means and scales matter only as a prior, so they have no gradient where ``kl_weight`` is zero.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.metagrad.data_loss import HessianProduct, reverse_over_reverse
from metaprior.metagrad.engines import twice_reverse
from metaprior.metagrad.inner_loop import Cotangents, InnerRun, differentiate_outer_loss
from metaprior.metagrad.inner_step import Direction, Iterate
from metaprior.metagrad.problem import MetaGradient, NonFinite, Problem
from metaprior.metagrad.sweep import PathInMemory, checked, collect_gradient, pull_back
from metaprior.metagrad.vectors import in_memory
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import Parameters, WeightDistribution


@dataclass(frozen=True)
class Implicit:
    """An engine that assumes that the inner loop has converged: conjugate gradients on (dG/d lambda + damping) x = v.

    It is approximate: its error vanishes as the inner loop converges. It stops early where the curvature is not
    positive, and gives no derivative by step sizes.

    Args:
        iterations: Largest number of iterations of conjugate gradients.
        damping: A number that is added to the curvature.
        tolerance: Relative size of the residual at which the iterations stop.
        product: How products with the Hessian are computed.
        name: The name in tables.
        exact: False: the engine is approximate.
    """

    iterations: int = 20
    damping: float = 0.0
    tolerance: float = 1e-10
    product: HessianProduct = reverse_over_reverse
    name: str = "implicit"
    exact: bool = False

    def __call__(
        self, problem: Problem, theta: WeightDistribution, task: Task, noise: Noise
    ) -> MetaGradient | NonFinite:
        """Return the outer loss of one task, its approximate gradient, and its terms."""
        if not task.support.size:  # there is no inner loss, and so no minimum
            return twice_reverse(problem, theta, task, noise)
        run = InnerRun(problem, theta, task, [noise])
        path = PathInMemory(run, first=problem.inner.steps, keep=0)
        inner = path.walk()
        if isinstance(inner, NonFinite):
            return inner
        state, last = in_memory(path.iterate.lambda_), problem.inner.steps
        terms, cotangents = differentiate_outer_loss(run, state)
        _, record = run.gradient(path.iterate, last)
        gradient = run.with_noise(record, last)

        def curvature(x: Parameters) -> Parameters:
            scratch = Cotangents(x.zeros(), run.data.fixed_cotangent(), run.storage)
            pull_back(run, last, state, record, gradient, Direction(x), scratch, self.product)
            return _sum(in_memory(scratch.v), x, self.damping)

        x, residual = self._solve(curvature, in_memory(cotangents.v))
        along = _sum(x.zeros(), x, -1.0)
        through = Cotangents(x.zeros(), cotangents.fixed, run.storage, cotangents.theta)
        pull_back(run, last, state, record, gradient, Direction(along), through, self.product)
        run.data.pull_back_trunk(through.fixed)
        through.v = x.zeros()  # the starting point does not matter at a minimum
        grads = collect_gradient(run, through)
        left = state.zeros()  # a velocity of zero becomes the inner gradient in one more step
        run.step(Iterate(state, left), record, last)
        diagnostics = {"residual": residual, "inner_gradient": float(_dot(left, left).sqrt())}
        return checked(MetaGradient(terms.total, grads, terms, inner, diagnostics), run.checks)

    def _solve(self, apply: Callable[[Parameters], Parameters], v: Parameters) -> tuple[Parameters, float]:
        """Return x and the relative residual."""
        x, r = v.zeros(), v.clone()
        p, old = r.clone(), _dot(v, v)
        start = float(old)
        for _ in range(self.iterations):
            if float(old) <= self.tolerance**2 * start or start == 0:
                break
            hp = apply(p)
            bend = _dot(p, hp)
            if float(bend) <= 0:
                break
            x, r = _sum(x, p, old / bend), _sum(r, hp, -old / bend)
            new = _dot(r, r)
            p = _sum(r, p, float(new / old))
            old = new
        return x, float(old.sqrt()) / start**0.5 if start else 0.0


def _dot(a: Parameters, b: Parameters) -> Tensor:
    return torch.stack([(s * t).sum() for s, t in zip(a.tensors(), b.tensors(), strict=True)]).sum()


def _sum(a: Parameters, b: Parameters, factor: float | Tensor) -> Parameters:
    """Return a + factor * b."""
    return a.zip_map(lambda s, t: s + factor * t, b)


implicit = Implicit()
