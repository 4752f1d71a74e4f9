r"""The problem that every engine solves.

Adaptation starts at the prior and takes K steps on the support set (Ravi & Beatson 2019, algorithm 1):

$$\lambda^{(0)} = \theta,\qquad m^{(k+1)} = \beta m^{(k)} + \nabla_\lambda L_S(\lambda^{(k)}, \theta),\qquad
\lambda^{(k+1)} = \lambda^{(k)} - \alpha\, m^{(k+1)}$$

$$L_S(\lambda, \theta) = \frac1N\Big(E_q[-\log p(S|\phi)] + \texttt{kl\_weight}\; KL(q_\lambda \| p_\theta)\Big),$$

where the expectation is a mean over a few samples $\phi = \mu + \sigma\epsilon$ whose noise is an argument. With
damping, the default, the means take shorter steps where the KL is steep: see ``Descent``. The outer loss is a
function of $\lambda^{(K)}$ and $\theta$. An engine returns its value and its derivative with respect to everything in
theta: means, scales, plain parameters (adapted or not) and step sizes.
"""

import math
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor, nn
from torch.amp import is_autocast_available

from metaprior.checks import PairChecker, check_integer, check_not_negative, check_positive
from metaprior.errors import TrainingDiverged
from metaprior.likelihoods import Likelihood
from metaprior.network import BayesianNetwork, first_stage_with, refuse_batch_statistics
from metaprior.noise import Noise
from metaprior.priors import NormalGammaHyperprior
from metaprior.tasks.task import Examples, Task, as_task
from metaprior.weights import Parameters, WeightDistribution


@dataclass(frozen=True)
class Descent:
    r"""How a task is learned: K steps of size alpha, with momentum beta, on S weight samples each.

    Args:
        steps: K.
        lr: alpha; where step sizes are learned, what they start from.
        learn_lr: "no", or meta-learn the logarithm of the step size: "one" for all, or "per_tensor" (also True): one
            for the means and one for the scales of each random tensor, and one for each adapted plain one.
        momentum: beta.
        kl_weight: what the KL in the inner loss is multiplied with.
        samples: S.
        adapt: regular expression; plain parameters whose whole name it matches move in the inner loop (random ones
            always do), the others keep theta's value. None, or "" in configuration files: no plain parameter moves.
        damped: step with $\alpha/(1 + \alpha c)$ for the means, where $c = \mathrm{kl\_weight}/(N\sigma_\theta^2)$ is
            the curvature with which the KL pulls a mean back. Plain descent overshoots and diverges once
            $\alpha c > 2$; this is the implicit (proximal) step on that quadratic, which cannot overshoot, and the
            same step where $\alpha c \ll 1$.
    """

    steps: int = 5
    lr: float = 0.01
    learn_lr: bool | Literal["no", "one", "per_tensor"] = "no"
    momentum: float = 0.0
    kl_weight: float = 1.0
    samples: int = 1
    adapt: str | None = ".*"
    damped: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "adapt", self.adapt or None)
        learn = {"False": "no", "True": "per_tensor"}.get(str(self.learn_lr), self.learn_lr)
        object.__setattr__(self, "learn_lr", learn)
        if learn not in ("no", "one", "per_tensor"):
            raise ValueError(f"learn_lr must be 'no', 'one' or 'per_tensor' (or False, True), got {self.learn_lr!r}")
        check_integer("steps", self.steps, 0)
        check_integer("samples", self.samples, 1)
        check_positive("lr", self.lr)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and less than 1, got {self.momentum}")
        check_not_negative("kl_weight", self.kl_weight)
        try:
            re.compile(self.adapt or "")
        except re.error as error:
            raise ValueError(f"adapt={self.adapt!r} is not a regular expression: {error}") from None


class OuterWeights(NamedTuple):
    """The factor of each sum in the outer loss; zero leaves it out."""

    support: float
    query: float
    kl: float
    hyperprior: float


class Objective(Protocol):
    """A task's outer loss: which sums it has, and with which factors."""

    @property
    def samples(self) -> int:
        """Return the number of weight samples in each expectation."""

    @property
    def predictive(self) -> bool:
        """Return whether the mean over samples is of an observation's likelihood, and not of its logarithm."""

    @property
    def hyperprior(self) -> NormalGammaHyperprior | None:
        """Return the prior over theta itself, if there is one."""

    def weights(self, num_support: int, num_query: int) -> OuterWeights:
        """Return the factors for a task of this size."""


@dataclass(frozen=True)
class QueryLoss:
    r"""The query set's loss $\frac{1}{N_Q} E_q[-\log p(Q|\phi)]$, with S weight samples.

    Its minimum has no uncertainty of the weights: a mean over q is never below its smallest value, so a point does at
    least as well as any q, and sigma shrinks. ``predictive=True`` takes the mean over samples inside the logarithm,
    $\frac{1}{N_Q}\sum_n -\log\frac1S\sum_s p(y_n|\phi_s)$: the score of the forecast that will be made, which asks
    for as much spread as the errors have (the objective of VERSA, Gordon et al. 2019, equation 4). With one sample the
    two are the same, so it needs at least two.
    """

    hyperprior: ClassVar[None] = None
    samples: int = 1
    predictive: bool = False

    def __post_init__(self) -> None:
        check_integer("samples", self.samples, 2 if self.predictive else 1)

    def weights(self, num_support: int, num_query: int) -> OuterWeights:
        """Return the factors: only the query set counts."""
        return OuterWeights(support=0.0, query=1 / num_query, kl=0.0, hyperprior=0.0)


@dataclass(frozen=True)
class AmortizedELBO:
    r"""The objective of Ravi & Beatson 2019, equation 3, per observation ($N = N_S + N_Q$) and task (M in all):

    $$\frac1N\Big(E_q[-\log p(S, Q|\phi)] + KL(q_\lambda\|p_\theta) - \frac1M\log p(\theta)\Big)$$

    Its mean over M tasks of N observations is the paper's sum divided by MN. ``kl_weight`` multiplies the KL, for
    annealing; the paper's is 1.
    """

    predictive: ClassVar[bool] = False  # a bound on the evidence is a mean of logarithms
    num_tasks: int
    samples: int = 1
    hyperprior: NormalGammaHyperprior | None = field(default_factory=NormalGammaHyperprior)
    kl_weight: float = 1.0

    def __post_init__(self) -> None:
        check_integer("num_tasks", self.num_tasks, 1)
        check_integer("samples", self.samples, 1)
        check_not_negative("kl_weight", self.kl_weight)

    def weights(self, num_support: int, num_query: int) -> OuterWeights:
        """Return the factors: every observation counts the same."""
        share = 1 / (num_support + num_query)
        hyper = share / self.num_tasks if self.hyperprior is not None else 0.0
        return OuterWeights(support=share, query=share, kl=self.kl_weight * share, hyperprior=hyper)


@dataclass(frozen=True)
class Problem:
    """All that a meta-gradient depends on besides theta, the task and the noise.

    Args:
        network: the network with random weights.
        likelihood: p(y | outputs).
        inner: how a task is learned.
        objective: the outer loss.
        micro_batch: observations that are run through the network at once; it bounds the memory of activations and
            changes no result beyond rounding.
        learn_trunk: False if the gradient by the stages in front of everything that is adapted is not needed; engines
            that can save a pass back through them return zeros for it.
    """

    network: BayesianNetwork
    likelihood: Likelihood
    inner: Descent = Descent()
    objective: Objective = QueryLoss()
    micro_batch: int | None = None
    learn_trunk: bool = True

    def __post_init__(self) -> None:
        refuse_hidden_noise(self.network.module)
        if not self.network.layout.names:
            raise ValueError(
                "network must have random weights, which are what the inner loop moves, got none. For MAML use all of "
                "them with problem.initial(y, relative_sigma=0) and Descent(kl_weight=0)."
            )
        if self.micro_batch is not None:
            check_integer("micro_batch", self.micro_batch, 1)
        taken = {*self.likelihood.parameter_names} & {*self.network.plain_names, *self.network.layout.names}
        if taken:
            raise ValueError(
                f"the network has a parameter called {taken.pop()!r}, which the likelihood uses; rename it"
            )
        if self.inner.adapt not in (None, ".*") and not self.adapted_names:
            plain = ", ".join(self._plain_names) or "(none)"
            raise ValueError(
                f"adapt={self.inner.adapt!r} matches none of the plain parameters, which are {plain}. The pattern must "
                "match a whole name; with adapt=None no plain parameter moves"
            )

    def initial(self, targets: Tensor, relative_sigma: float = 0.1) -> WeightDistribution:
        """Return a first theta: the module's present values, a noise scale from the targets, the given step size."""
        weights = self.network.initial(relative_sigma)
        plain = {**weights.plain, **self.likelihood.initial_parameters(targets.to(weights.mu))}
        if self.inner.learn_lr == "no":
            return weights.replace(plain=plain)
        return weights.replace(plain=plain, log_lr=weights.mu.new_full(self._step_size_shape, math.log(self.inner.lr)))

    @property
    def _plain_names(self) -> tuple[str, ...]:
        return (*self.network.plain_names, *self.likelihood.parameter_names)

    @cached_property
    def adapted_names(self) -> list[str]:
        """Names of the plain parameters that move in the inner loop, in a fixed order."""
        pattern = self.inner.adapt
        return [] if pattern is None else [name for name in self._plain_names if re.fullmatch(pattern, name)]

    @property
    def _step_size_shape(self) -> tuple[int, ...]:
        if self.inner.learn_lr == "one":
            return ()
        return (2 * len(self.network.layout.names) + len(self.adapted_names),)

    @cached_property
    def trunk_stages(self) -> int:
        """Number of the network's first stages that hold no parameter that moves in the inner loop."""
        moving = [name for name in self.network.plain_names if name in self.adapted_names]
        return first_stage_with(self.network.module, [*self.network.layout.names, *moving])

    def masking(self, *sets: Examples) -> "Problem":
        """Return the problem itself, or, if some of these sets' targets are missing, that of the others."""
        likelihood = self.likelihood.masking(*(own.y for own in sets))
        return self if likelihood is self.likelihood else replace(self, likelihood=likelihood)

    def check_theta(self, theta: WeightDistribution) -> None:
        """Raise unless theta has the names and shapes of this problem; every engine calls this first."""
        refuse_autocast(theta.mu.device)
        refuse_hidden_noise(self.network.module)  # modes may have changed
        refuse_batch_statistics(self.network.module)
        needed = {*self._plain_names}
        lacking, unknown = sorted(needed - theta.plain.keys()), sorted(theta.plain.keys() - needed)
        if lacking or unknown:
            raise ValueError(
                f"theta.plain lacks {lacking} and has {unknown}, which this problem does not know; "
                "problem.initial(targets) makes a theta that fits"
            )
        size = self.network.layout.dimension
        for name, tensor in (("mu", theta.mu), ("rho", theta.rho)):
            if tensor.shape != (size,):
                raise ValueError(f"theta.{name} has shape {tuple(tensor.shape)}, this network needs ({size},)")
        found = None if theta.log_lr is None else tuple(theta.log_lr.shape)
        expected = None if self.inner.learn_lr == "no" else self._step_size_shape
        if found != expected:
            raise ValueError(f"theta.log_lr must have shape {expected} (learn_lr={self.inner.learn_lr!r}), got {found}")

    def check(self, task: Task) -> Task:
        """Return the task in the types that the engines trust, or raise with what is wrong with it."""
        task = as_task(task)
        checked = Task(
            self.check_examples(task.support, f"{task.name}: support"),
            self.check_examples(task.query, f"{task.name}: query", least=1),
            task.name,
        )
        probe = (checked.support if checked.support.size else checked.query).first(2).x
        self.network.check_repeatable(probe)
        if self.trunk_stages:
            moving = {*self.network.layout.names, *self.adapted_names}
            self.network.check_stages(probe, self.trunk_stages, moving)
        return checked

    def check_examples(self, examples: Examples, what: str, least: int = 0) -> Examples:
        """Return examples (at least ``least``) in the types that the engines trust; an error starts with ``what``."""
        return Examples(*PairChecker(self.network, self.likelihood)(examples.x, examples.y, what, least=least))

    def for_support(self, size: int) -> "Problem":
        """Return the problem for a support set of ``size`` examples: without any there is no step to take."""
        return self if size else replace(self, inner=replace(self.inner, steps=0))


PARTS = ("support", "query")


class OuterTerms(NamedTuple):
    """The terms of the outer loss, each with its factor."""

    nll_support: Tensor
    nll_query: Tensor
    kl: Tensor
    hyperprior: Tensor

    @property
    def total(self) -> Tensor:
        """The outer loss."""
        return self.nll_support + self.nll_query + self.kl + self.hyperprior


class InnerTerms(NamedTuple):
    """The inner loss before each step: two tensors of shape (K,)."""

    nll: Tensor
    kl: Tensor


@dataclass(frozen=True)
class MetaGradient:
    """The outer loss of a task, its derivative by everything in theta, and the terms of both losses."""

    loss: Tensor
    grads: Parameters
    terms: OuterTerms
    inner: InnerTerms
    diagnostics: dict[str, float] = field(default_factory=dict)
    """Measures of an approximate engine's error."""

    def or_raise(self) -> "MetaGradient":
        """Return the gradient itself; ``NonFinite.or_raise`` raises."""
        return self


@dataclass(frozen=True)
class NonFinite:
    """The place where a number is not finite; engines return it in place of a gradient, and the caller decides."""

    task: str
    step: int | Literal["outer", "sweep", "data"]
    """An inner step, the outer loss, the backward sweep, or the task's own data."""
    term: str
    value: float

    def or_raise(self) -> NoReturn:
        """Raise FloatingPointError with what happened."""
        raise TrainingDiverged(str(self))

    def __str__(self) -> str:
        if self.step == "data" and self.term.endswith(" y") and math.isnan(self.value):
            return f"{self.task}: all targets of its {self.term.removesuffix(' y')} set are missing; it was not used"
        if self.step == "data":
            return f"{self.task}: its {self.term} holds {self.value}; nothing of this task was used. Repair its data"
        where = f"inner step {self.step}" if isinstance(self.step, int) else self.step
        return (
            f"{self.task}: the {self.term} became {self.value} ({where}); nothing of this task was used. A smaller "
            "inner lr, fewer inner steps, a smaller sigma, or inputs of a common scale help"
        )


class Engine(Protocol):
    """One way to differentiate through the inner loop. ``exact`` engines agree up to rounding."""

    @property
    def name(self) -> str:
        """Return the name for tables and messages."""

    @property
    def exact(self) -> bool:
        """Return whether the result is the derivative itself, and not an approximation."""

    def __call__(
        self, problem: Problem, theta: WeightDistribution, task: Task, noise: Noise
    ) -> MetaGradient | NonFinite:
        """Return the outer loss of one task, its gradient, and its terms."""


def refuse_autocast(device: torch.device) -> None:
    """Raise within ``torch.autocast``: what it rounds to 8 or 11 bits is differentiated twice, and is not exact."""
    if is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
        raise ValueError(
            f"autocast must be off around an inner loop, got torch.autocast({device.type!r}, dtype={dtype}): gradients "
            "would be off by up to several per cent, and exact ones are promised. Try `with "
            f"torch.autocast({device.type!r}, enabled=False):`, or turn autocast on in the forward of your own module"
        )


def refuse_hidden_noise(module: nn.Module) -> None:
    """Raise if a layer draws random numbers: a replayed step would differentiate another loss."""
    for name, part in module.named_modules():
        noisy = isinstance(part, nn.modules.dropout._DropoutNd | nn.RReLU) and part.training
        if noisy and getattr(part, "p", 1.0) > 0:
            raise ValueError(
                f"layer {name or '(the module itself)'!r} ({type(part).__name__}) draws noise of its own, which "
                "cannot be drawn again when a step is differentiated. Call .eval() on it, or leave it out"
            )
