r"""The problem that every engine solves.

Adaptation starts at the prior and takes K steps on the support set (seeds' letters; Ravi & Beatson 2019, algorithm 1):

$$\lambda^{(0)} = \theta,\qquad m^{(k+1)} = \beta m^{(k)} + \nabla_\lambda L_S(\lambda^{(k)}, \theta),\qquad
\lambda^{(k+1)} = \lambda^{(k)} - \alpha\, m^{(k+1)}$$

$$L_S(\lambda, \theta) = \frac1N\Big(E_q[-\log p(S|\phi)] + \texttt{kl\_weight}\; KL(q_\lambda \| p_\theta)\Big),$$

(with damping, the default, the means take shorter steps where the KL is steep: see ``InnerLoop``),
with the expectation a mean over a few samples $\phi = \mu + \sigma\epsilon$ whose noise is an argument. The outer
loss is a function
of $\lambda^{(K)}$ and $\theta$. An engine returns its value and its derivative with respect to everything in theta:
means, scales, plain parameters (adapted or not) and step sizes.
"""

import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor, nn

from metaprior import checks
from metaprior.errors import TrainingDiverged
from metaprior.hyperprior import NormalGammaHyperprior
from metaprior.likelihoods import Likelihood
from metaprior.network import BayesianNetwork, refuse_batch_statistics
from metaprior.noise import Noise
from metaprior.stages import Chain, first_stage_with
from metaprior.tasks.task import Examples, Task
from metaprior.weights import Parameters, WeightDistribution


@dataclass(frozen=True)
class InnerLoop:
    r"""How a task is learned: K steps of size alpha, with momentum beta, on S weight samples each.

    ``learn_lr``: the step size is meta-learned as its logarithm, so it stays positive: ``"one"`` for all, or
    ``"per_tensor"`` (also ``True``): one for the means and one for the scales of each random tensor, and one for each
    adapted plain one. ``adapt`` is a regular expression: plain parameters whose whole name it matches move in the inner
    loop (random ones always do), the others keep theta's value. ``None`` (or "", where a configuration file has no
    None): no plain parameter moves.

    ``damped``: the KL pulls a mean back with the curvature $c = \mathrm{kl\_weight}/(N\sigma_\theta^2)$, so steep for a
    small sigma that plain descent overshoots and diverges once $\alpha c > 2$. Damped, the means step with
    $\alpha/(1 + \alpha c)$ in place of $\alpha$, which is the implicit (proximal) step on that quadratic: it cannot
    overshoot, whatever sigma, N and alpha are, and is the same step where $\alpha c \ll 1$.
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
            raise ValueError(f"learn_lr is 'no', 'one' or 'per_tensor' (or False, True), got {self.learn_lr!r}")
        refuse_fraction("steps", self.steps, 0)
        refuse_fraction("samples", self.samples, 1)
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr has to be a positive number, got {self.lr}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum has to be at least 0 and less than 1, got {self.momentum}")
        if not (math.isfinite(self.kl_weight) and self.kl_weight >= 0):
            raise ValueError(f"kl_weight has to be at least 0, got {self.kl_weight}")
        try:
            re.compile(self.adapt or "")
        except re.error as error:
            raise ValueError(f"adapt={self.adapt!r} is not a regular expression: {error}") from None


def refuse_fraction(name: str, value: object, least: int) -> None:
    """Raise unless a value is a whole number, and large enough."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} has to be a whole number, at least {least}; got {value!r}")


class OuterWeights(NamedTuple):
    """What each sum in the outer loss is multiplied with; zero leaves it out."""

    support: float
    query: float
    kl: float
    hyperprior: float


class Objective(Protocol):
    """How a task's outer loss is put together."""

    @property
    def samples(self) -> int:
        """Weight samples that expectations are a mean over."""

    @property
    def predictive(self) -> bool:
        """Whether that mean is taken of an observation's likelihood, and not of its logarithm."""

    @property
    def hyperprior(self) -> NormalGammaHyperprior | None:
        """The prior over theta itself, if there is one."""

    def weights(self, num_support: int, num_query: int) -> OuterWeights:
        """The factors for a task of this size."""


@dataclass(frozen=True)
class QueryLoss:
    r"""$\frac{1}{N_Q} E_q[-\log p(Q|\phi)]$, and nothing else; with S weight samples.

    Its minimum knows no uncertainty of the weights: a mean over q is never below its smallest value, so a point does at
    least as well as any q, and sigma shrinks. ``predictive=True`` takes the mean over samples inside the logarithm,
    $\frac{1}{N_Q}\sum_n -\log\frac1S\sum_s p(y_n|\phi_s)$: the score of the forecast that will be made, which asks
    for as much spread as the errors have (the objective of VERSA, Gordon et al. 2019, equation 4). With one sample the
    two are the same, so it needs more.
    """

    samples: int = 1
    predictive: bool = False

    def __post_init__(self) -> None:
        refuse_fraction("samples", self.samples, 2 if self.predictive else 1)

    @property
    def hyperprior(self) -> None:
        """None: theta is free."""
        return

    def weights(self, num_support: int, num_query: int) -> OuterWeights:
        """Only the query set counts."""
        return OuterWeights(support=0.0, query=1 / num_query, kl=0.0, hyperprior=0.0)


@dataclass(frozen=True)
class AmortizedELBO:
    r"""The paper's objective, per observation ($N = N_S + N_Q$) and task (M tasks in all; Ravi & Beatson 2019, (3)):

    $$\frac1N\Big(E_q[-\log p(S, Q|\phi)] + KL(q_\lambda\|p_\theta) - \frac1M\log p(\theta)\Big)$$

    Its mean over M tasks of N observations is the paper's sum divided by MN. A ``kl_weight`` other than 1 (annealing
    uses it) multiplies the KL, and is not the paper's.
    """

    num_tasks: int
    samples: int = 1
    hyperprior: NormalGammaHyperprior | None = field(default_factory=NormalGammaHyperprior)
    kl_weight: float = 1.0

    def __post_init__(self) -> None:
        refuse_fraction("num_tasks", self.num_tasks, 1)
        refuse_fraction("samples", self.samples, 1)
        if not (math.isfinite(self.kl_weight) and self.kl_weight >= 0):
            raise ValueError(f"kl_weight has to be at least 0, got {self.kl_weight}")

    @property
    def predictive(self) -> bool:
        """False: a bound on the evidence is a mean of logarithms."""
        return False

    def weights(self, num_support: int, num_query: int) -> OuterWeights:
        """Every observation counts the same."""
        share = 1 / (num_support + num_query)
        hyper = share / self.num_tasks if self.hyperprior is not None else 0.0
        return OuterWeights(support=share, query=share, kl=self.kl_weight * share, hyperprior=hyper)


@dataclass(frozen=True)
class Problem:
    """Network, likelihood, inner loop and outer loss: all that a meta-gradient depends on besides theta, task and
    noise.

    ``micro_batch``: observations that are run through the network at once; it bounds the activations' memory and
    changes no result (beyond rounding). ``learn_trunk=False``: nobody asks for the gradient by the stages in front of
    everything that is adapted; engines that can save a pass back through them return zeros for it.
    """

    network: BayesianNetwork
    likelihood: Likelihood
    inner: InnerLoop = InnerLoop()
    objective: Objective = QueryLoss()
    micro_batch: int | None = None
    learn_trunk: bool = True

    def __post_init__(self) -> None:
        refuse_hidden_noise(self.network.module)
        if self.micro_batch is not None:
            refuse_fraction("micro_batch", self.micro_batch, 1)
        taken = {*self.likelihood.parameter_names} & {*self.network.plain_names, *self.network.layout.names}
        if taken:
            raise ValueError(
                f"the network has a parameter called {taken.pop()!r}, a name that has another use; rename it"
            )
        if self.inner.adapt not in (None, ".*") and not self.adapted_names:
            plain = ", ".join(self._plain_names) or "(none)"
            raise ValueError(
                f"adapt={self.inner.adapt!r} matches none of the plain parameters, which are {plain}. The pattern has "
                "to match a whole name; adapt=None says that no plain parameter moves"
            )

    def initial(self, targets: Tensor, relative_sigma: float = 0.1) -> WeightDistribution:
        """A theta to start from: the module's present values, a noise scale from the targets, the given step size."""
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
        """Plain parameters that move in the inner loop, in an order of their own."""
        pattern = self.inner.adapt
        return [] if pattern is None else [name for name in self._plain_names if re.fullmatch(pattern, name)]

    @property
    def _step_size_shape(self) -> tuple[int, ...]:
        if self.inner.learn_lr == "one":
            return ()
        return (2 * len(self.network.layout.names) + len(self.adapted_names),)

    @cached_property
    def trunk_stages(self) -> int:
        """How many of the network's first stages hold no parameter that moves in the inner loop."""
        moving = [name for name in self.network.plain_names if name in self.adapted_names]
        return first_stage_with(self.network.module, [*self.network.layout.names, *moving])

    def check_theta(self, theta: WeightDistribution) -> None:
        """Raise unless theta belongs to this problem; every engine asks first (shapes and names only, no numbers)."""
        refuse_hidden_noise(self.network.module)  # modes may have changed
        refuse_batch_statistics(self.network.module)
        needed = {*self._plain_names}
        lacking, unknown = sorted(needed - theta.plain.keys()), sorted(theta.plain.keys() - needed)
        if lacking or unknown:
            raise ValueError(
                f"theta.plain lacks {lacking} and has {unknown}, which this problem does not know; "
                "problem.initial(targets) makes a theta that fits"
            )
        shapes = {"mu": (theta.mu, self.network.layout.dimension), "rho": (theta.rho, self.network.layout.dimension)}
        for name, (tensor, size) in shapes.items():
            if tensor.shape != (size,):
                raise ValueError(f"theta.{name} has shape {tuple(tensor.shape)}, this network needs ({size},)")
        found = None if theta.log_lr is None else tuple(theta.log_lr.shape)
        expected = None if self.inner.learn_lr == "no" else self._step_size_shape
        if found != expected:
            raise ValueError(f"theta.log_lr must have shape {expected} (learn_lr={self.inner.learn_lr!r}), got {found}")

    def check(self, task: Task) -> Task:
        """The task in the types that the engines trust, or an error that says what is wrong with it."""
        checked = {part: self.check_examples(getattr(task, part), f"{task.name}: {part}") for part in PARTS}
        self._check_repeatable(checked["support"].x[:2])
        if self.trunk_stages:
            self._check_stages(checked["support"].x[:2])
        return Task(checked["support"], checked["query"], task.name)

    def _check_repeatable(self, x: Tensor) -> None:
        """Refuse a network that gives two answers for the same weights: a replayed step would be another one."""
        before = {name: value.clone() for name, value in self.network.constants.items()}
        with torch.no_grad():
            one, two = (self.network.run_part(Chain(self.network.module), {}, x) for _ in range(2))
        changed = [name for name, value in self.network.constants.items() if not torch.equal(value, before[name])]
        why = f"changes its buffers {changed}" if changed else "draws random numbers in forward"
        if changed or not torch.allclose(one, two, rtol=1e-5, atol=1e-7, equal_nan=True):
            raise ValueError(
                f"the network gives two answers for the same weights and inputs: it {why}. Call .eval() on that part, "
                "or leave it out: a step that is differentiated has to be repeatable"
            )

    def _check_stages(self, x: Tensor) -> None:
        """Refuse a module whose stages, one after the other, are not its forward, also when adapted weights move."""
        module = self.network.module
        adapted = {*self.network.layout.names, *self.adapted_names}
        moved = {name: 1.1 * p.detach() + 0.1 for name, p in module.named_parameters() if name in adapted}
        whole, first, rest = Chain(module), Chain(module, 0, self.trunk_stages), Chain(module, self.trunk_stages)
        with torch.no_grad():
            expected = self.network.run_part(whole, moved, x)
            found = self.network.run_part(rest, moved, self.network.run_part(first, {}, x))
        if expected.shape != found.shape or not torch.allclose(expected, found, rtol=1e-4, atol=1e-6):
            raise ValueError(
                f"{type(module).__name__}.stages() does not give what forward gives: running its stages one after the "
                "other has to be the same as calling the module"
            )

    def check_examples(self, examples: Examples, what: str) -> Examples:
        """Examples in the types that the engines trust, or an error that starts with ``what``."""
        try:
            x = checks.inputs(examples.x, dtype=self.network.dtype, device=self.network.device)
            y = checks.as_tensor(examples.y, "y", device=self.network.device)
            checks.same_length(x, y)
            y = self.likelihood.check_targets(y, self.network.check_forward(x))
            return Examples(x, checks.as_float(y, "y", self.network.dtype) if y.is_floating_point() else y)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{what}: {error}") from error


PARTS = ("support", "query")


class OuterTerms(NamedTuple):
    """The outer loss in its parts, each with its factor: per observation, summed over nothing else."""

    nll_support: Tensor
    nll_query: Tensor
    kl: Tensor
    hyperprior: Tensor

    @property
    def total(self) -> Tensor:
        """What is minimised."""
        return self.nll_support + self.nll_query + self.kl + self.hyperprior


class InnerTerms(NamedTuple):
    """The inner loss before each step: two tensors of shape (K,)."""

    nll: Tensor
    kl: Tensor


@dataclass(frozen=True)
class MetaGradient:
    """What an engine returns: the outer loss, its derivative by everything in theta, and the terms of both losses."""

    loss: Tensor
    grads: Parameters
    terms: OuterTerms
    inner: InnerTerms
    diagnostics: dict[str, float] = field(default_factory=dict)
    """What an approximate engine has to say about itself."""

    def or_raise(self) -> "MetaGradient":
        """Itself; a ``NonFinite`` in its place raises."""
        return self


@dataclass(frozen=True)
class NonFinite:
    """What an engine returns when a number is not finite: where it happened. The caller decides what to do."""

    task: str
    step: int | Literal["outer", "sweep", "data"]
    """An inner step, the outer loss, the sweep back; or none of them: the task's own data were not finite."""
    term: str
    value: float

    def or_raise(self) -> NoReturn:
        """Raise an error that says what happened, for callers who do not want to decide."""
        raise TrainingDiverged(str(self))

    def __str__(self) -> str:
        if self.step == "data":
            return f"{self.task}: its {self.term} holds {self.value}; nothing of this task was used. Mend its data"
        where = f"inner step {self.step}" if isinstance(self.step, int) else self.step
        return (
            f"{self.task}: the {self.term} became {self.value} ({where}); nothing of this task was used. A smaller "
            "inner lr, fewer inner steps, a smaller sigma, or inputs of a common scale help"
        )


class Engine(Protocol):
    """One way to differentiate through the inner loop. ``exact`` engines agree to rounding."""

    @property
    def name(self) -> str:
        """For tables and messages."""

    @property
    def exact(self) -> bool:
        """Whether it returns the derivative itself, or an approximation of it."""

    def __call__(
        self, problem: Problem, theta: WeightDistribution, task: Task, noise: Noise
    ) -> MetaGradient | NonFinite:
        """Outer loss of one task, its gradient, and its terms."""


def refuse_hidden_noise(module: nn.Module) -> None:
    """Raise if a layer draws random numbers of its own: a replayed step would differentiate another loss."""
    for name, part in module.named_modules():
        noisy = isinstance(part, nn.modules.dropout._DropoutNd | nn.RReLU) and part.training
        if noisy and getattr(part, "p", 1.0) > 0:
            raise ValueError(
                f"layer {name or '(the module itself)'!r} ({type(part).__name__}) draws noise of its own, which "
                "cannot be drawn again when a step is differentiated. Call .eval() on it, or leave it out"
            )
