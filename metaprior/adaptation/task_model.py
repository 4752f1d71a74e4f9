"""The contract between an adaptation and everything that trains, saves, resumes and evaluates with it.

An **adaptation** (``Descent``, ``ClosedForm``, ``Context``) is a value: settings and nothing else. Bound to a network,
a likelihood and an objective it becomes a ``TaskModel``. Trainer, learner, own loops and runs speak to a ``TaskModel``
alone and never ask which adaptation it belongs to.

Everything that is learned is in theta, a ``WeightDistribution``: means and scales of random weights (``mu``, ``rho``;
of length 0 where no weight is random) and plain tensors by name (``plain``): the network's own parameters under their
own names, those of the adaptation under a prefix (``head.``, ``context.``), and the likelihood's. Saving, resuming,
sharding and several processes therefore need nothing from an adaptation.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from metaprior.checks import PairChecker
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.memory import Budget
from metaprior.metagrad.meta_batch import BatchSums, pooled_sums
from metaprior.metagrad.problem import Engine, NonFinite, Objective, OuterTerms, Problem
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.objectives import Terms
from metaprior.posterior import Predictive
from metaprior.priors import NormalGammaHyperprior
from metaprior.tasks.task import Examples, Task
from metaprior.weights import PLAIN, WeightDistribution

MEANS, SCALES = "means", "scales"
"""Groups of what is learned; each has a learning rate of its own, and scales are never decayed."""


@dataclass(frozen=True)
class Binding:
    """What an adaptation is bound to: the arguments of a ``MetaLearner`` that a task model may depend on.

    Args:
        network: the module with the choice of its random parameters.
        likelihood: p(y | outputs) in the network's units.
        objective: name of the outer loss, an ``Objective``, or None for the adaptation's own default.
        outer_samples: weight samples of the outer loss.
        hyperprior: prior over theta, for objectives that have one.
        relative_sigma: initial sigma of a random tensor as a fraction of its root mean square.
        num_tasks: M, the number of tasks that a prior over theta is shared by.
    """

    network: BayesianNetwork
    likelihood: Likelihood
    objective: str | Objective | None = None
    outer_samples: int = 1
    hyperprior: NormalGammaHyperprior | None = None
    relative_sigma: float = 0.1
    num_tasks: int = 1

    def objective_name(self, names: Sequence[str]) -> str:
        """Return the objective's name, by default the first of ``names``; raise if it is none of them."""
        if self.objective is None:
            return names[0]
        if not isinstance(self.objective, str) or self.objective not in names:
            raise ValueError(f"objective must be one of {', '.join(names)}, got {self.objective!r}")
        return self.objective


class HowGradients(NamedTuple):
    """How gradients are computed; another way gives the same ones up to rounding, but not bitwise."""

    engine: str = "autograd"
    micro_batch: int | None = None
    stacked: bool = True


@dataclass(frozen=True)
class Start:
    """What is known when meta-training begins, right after the warm start.

    Args:
        first_tasks: returns this rank's share of the next ``count`` tasks, checked, and the noise of its first task.
            All ranks must call it together, so call it on a condition that is the same on all of them.
        warm_started: whether this training had a warm start.
        trained: whether the means are trained, by a warm start or before.
        relative_sigma: as in ``Binding``.
        search_step_size: whether a first step size is searched.
        balance_step_sizes: whether this search gives every tensor a step size of its own.
    """

    first_tasks: Callable[[int], tuple[list[Task], Noise]]
    warm_started: bool
    trained: bool
    relative_sigma: float
    search_step_size: bool
    balance_step_sizes: bool


class TaskModel(ABC):
    """An adaptation bound to a network, a likelihood (in the network's units) and an objective.

    A task model holds nothing that is learned, and may be kept and used again. To implement one, write ``initial``,
    ``sums``, ``pooled_loss``, ``adapt`` and ``prior``; or, for losses that autograd can differentiate, inherit from
    ``AutogradModel`` (``autograd.py``) and write ``losses`` in place of ``sums``. Everything else has a default here
    that holds where all of theta is plain.
    """

    network: BayesianNetwork
    likelihood: Likelihood

    steps: int | None = None
    """Number of steps that ``adapt`` takes by default; None where adapting is not iterative."""
    advice: ClassVar[str] = "a warm start, a smaller lr, inputs of a common scale"
    """What to try when many tasks in a row had no finite gradient."""

    @property
    def how(self) -> HowGradients:
        """How gradients are computed, for the records of a run."""
        return HowGradients()

    # --- theta ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def initial(self, targets: Tensor, relative_sigma: float = 0.1) -> WeightDistribution:
        """Return a first theta from the module's present parameters.

        ``targets`` (in the network's units) are those of some tasks; they may decide values, such as a first noise
        scale, and the shapes of the likelihood's own parameters, but no other shape.
        """

    @cached_property
    def structure(self) -> dict[str, torch.Size]:
        """The shape of every tensor of theta, by its name in ``theta.named()``, without the likelihood's own."""
        few = torch.tensor([[-1.0], [1.0]], dtype=self.network.dtype, device=self.network.device)
        own = {PLAIN + name for name in self.likelihood.parameter_names}
        return {name: value.shape for name, value in self.initial(few).named().items() if name not in own}

    def check_theta(self, theta: WeightDistribution) -> None:
        """Raise ValueError unless theta has the names and shapes of this model."""
        noise = {PLAIN + name for name in self.likelihood.parameter_names}
        found = {name: value.shape for name, value in theta.named().items()}
        wanted = {name: self.structure.get(name, found.get(name)) for name in (*self.structure, *sorted(noise))}
        differing = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name) or name not in found]
        if differing:
            name = differing[0]
            shape, other = (None if one is None else tuple(one) for one in (wanted.get(name), found.get(name)))
            raise ValueError(
                f"theta must have the names and shapes of this model, but {len(differing)} differ; the first is "
                f"{name!r} with shape {other}, and the model needs {shape}. initial(targets) makes a theta that fits"
            )

    def groups(self, theta: WeightDistribution) -> dict[str, list[str]]:
        """Return the names (as in ``theta.named()``) of what is learned, by group, ``MEANS`` and ``SCALES``.

        Scales are the likelihood's parameters, learned step sizes and rho, except that of a point prior, which is
        infinite. Tensors without entries belong to no group.
        """
        named = {name: value for name, value in theta.named().items() if value.numel()}
        noise = {PLAIN + name for name in self.likelihood.parameter_names}
        scales = [name for name in named if name in noise or name == "log_lr"]
        means = [name for name in named if name not in ("rho", *scales)]
        rho = ["rho"] if "rho" in named and bool(torch.isfinite(theta.rho).all()) else []
        return {MEANS: means, SCALES: [*scales, *rho]}

    # --- data -------------------------------------------------------------------------------------------------------

    def check(self, task: Task) -> Task:
        """Return the task in the types that ``sums`` trusts, or raise with what is wrong with it."""
        support = self.check_examples(task.support, f"{task.name}: support")
        query = self.check_examples(task.query, f"{task.name}: query", least=1)
        self.network.check_repeatable(query.first(2).x)
        return Task(support, query, task.name)

    def check_examples(self, examples: Examples, what: str, least: int = 0) -> Examples:
        """Return examples (at least ``least``) in the types that ``adapt`` trusts; an error starts with ``what``."""
        return Examples(*PairChecker(self.network, self.likelihood)(examples.x, examples.y, what, least=least))

    # --- gradients --------------------------------------------------------------------------------------------------

    def check_start(self, start: Start) -> None:
        """Raise for settings of a training that this model cannot follow; called before the first step."""
        if start.balance_step_sizes:
            raise ValueError(
                f"balance_step_sizes gives every tensor a step size of its own, and {type(self).__name__} takes no "
                "steps. Try balance_step_sizes=False"
            )

    def prepared(
        self,
        theta: WeightDistribution,
        tasks: Sequence[Task],
        budget: Budget,
        engine: Engine | None,
        *,
        before: HowGradients | None = None,
    ) -> "TaskModel":
        """Return this model with the way to compute gradients chosen for tasks like these.

        Args:
            theta: where training starts.
            tasks: as many as this rank computes together.
            budget: memory, and a folder for scratch files.
            engine: the user's choice of how to differentiate through an inner loop; None leaves it open.
            before: how an earlier start of this training computed gradients, which is kept if memory allows.
        """
        if engine is not None:
            raise ValueError(
                f"engine must be None with this adaptation, got {engine.name}: there is no inner loop to differentiate"
            )
        return self

    @abstractmethod
    def sums(
        self, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise, *, means_move: bool = True
    ) -> BatchSums:
        """Return the sums over tasks (also none) of the outer loss and of its gradient by everything in theta.

        Support sets may have any number of examples, also zero, and differ between tasks. A task without a finite loss
        or gradient is left out of the sums and is among their ``failures``.

        Args:
            theta: where.
            tasks: checked tasks.
            noise: task i uses ``noise.at(task=noise.task + i)``.
            means_move: False if only scales are learned now; gradients of the group of means may then be zero.
        """

    @abstractmethod
    def pooled_loss(self, theta: WeightDistribution, x: Any, y: Tensor) -> Tensor:
        """Return the summed negative log-likelihood of examples without any adaptation, for autograd.

        The warm start minimises it: plain training on the pooled examples of many tasks.
        """

    def pooled_sums(self, theta: WeightDistribution, tasks: Sequence[Task]) -> BatchSums:
        """Return ``pooled_loss`` of all examples of these tasks, and its gradient, as sums over examples."""
        return pooled_sums(self.pooled_loss, theta, tasks, self.how.micro_batch)

    def begin(self, theta: WeightDistribution, start: Start) -> WeightDistribution:
        """Return the theta that meta-training begins with, from that after the warm start (or the first one)."""
        return theta

    def annealed(self, share: float) -> "TaskModel":
        """Return the model with its KL terms multiplied by ``share``, for ``kl_warmup``; without any: itself."""
        return self

    # --- adapting ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def adapt(
        self, theta: WeightDistribution, support: Examples, noise: Noise, steps: int | None = None
    ) -> Predictive | NonFinite:
        """Return the posterior of a task given its checked support set, also an empty one, or where it failed.

        It predicts in the network's units (``TargetScale.identity``); the learner sets the user's by ``in_units``.
        """

    @abstractmethod
    def prior(self, theta: WeightDistribution) -> Predictive:
        """Return the forecast of a new task before its first example, in the network's units."""

    def idle(self, theta: WeightDistribution) -> str | None:
        """Return a sentence about why adapting changes nothing, where theta alone shows that it does; else None."""
        return None

    # --- adaptations with an inner loop -----------------------------------------------------------------------------

    @property
    def problem(self) -> Problem:
        """The problem that engines differentiate; raises TypeError where there is no inner loop."""
        raise self._no_loop()

    def inner_loss(self, posterior: Predictive, theta: WeightDistribution, support: Examples, noise: Noise) -> Terms:
        """Return the inner loss of a posterior; raises TypeError where there is no inner loop."""
        raise self._no_loop()

    def outer_loss(self, posterior: Predictive, theta: WeightDistribution, task: Task, noise: Noise) -> OuterTerms:
        """Return the outer loss of a posterior, term by term; raises TypeError where there is no inner loop."""
        raise self._no_loop()

    def _no_loop(self) -> TypeError:
        return TypeError(
            f"{type(self).__name__} has no inner loop. Inner and outer losses of a posterior, and the problem of the "
            "engines, belong to adaptation=Descent(...)"
        )
