"""Where a hierarchical inference stands, besides the tasks' posteriors: what a commit of the store carries with it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from metaprior.errors import CheckpointError
from metaprior.hierarchy.hyper_posterior import HyperPosterior, PosteriorSums
from metaprior.hierarchy.local_descent import LocalSteps, SharedParameters
from metaprior.metagrad.problem import refuse_fraction


@dataclass(frozen=True)
class HierarchyTerms:
    """The objective in its parts, in nats, summed over all tasks: ``total`` is minimised, ``elbo`` bounds log p(D)."""

    nll: float
    """Sum of E_q[-log p(D_i | phi_i)]."""
    kl: float
    """Sum of E_q(theta) KL(q(phi_i) || p(phi_i | theta))."""
    hyper_kl: float
    """KL(q(theta) || p(theta))."""

    @property
    def total(self) -> float:
        """What is minimised."""
        return self.nll + self.kl + self.hyper_kl

    @property
    def elbo(self) -> float:
        """Lower bound on the log evidence of all data."""
        return -self.total


@dataclass(frozen=True)
class FitPlan:
    """How to fit; ``HierarchicalVI.fit`` says what each part means."""

    epochs: int
    local_steps: int
    task_batch: int
    batch_size: int
    lr: float
    samples: int
    kl_warmup: float

    def __post_init__(self) -> None:
        for name in ("epochs", "local_steps", "task_batch"):
            refuse_fraction(name, getattr(self, name), 1)
        self.local()  # says what is wrong with the rest

    def local(self) -> LocalSteps:
        """All steps that a posterior takes."""
        return LocalSteps(self.epochs * self.local_steps, self.batch_size, self.lr, self.samples, self.kl_warmup)


@dataclass
class State:
    """Psi, the sums it is fitted to, what all tasks share, and the place in the present fit."""

    psi: HyperPosterior
    sums: PosteriorSums
    shared: SharedParameters
    plan: FitPlan | None = None
    rounds: int = 0
    """Mini-batches of tasks that were worked on in this fit."""
    finished: bool = True
    scalar_targets: bool = False
    history: list[HierarchyTerms] = field(default_factory=list)
    start: Tensor | None = None
    """Means that new posteriors start from, where theta was given."""

    @property
    def fit_plan(self) -> FitPlan:
        """Of the present fit, or of the last one."""
        if self.plan is None:
            raise ValueError("nothing is known about the prior yet: call fit(tasks) first")
        return self.plan

    def tensors(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return {
            **{f"psi.{name}": value for name, value in self.psi._asdict().items()},
            "sums.first": self.sums.first,
            "sums.second": self.sums.second,
            **{f"shared.{name}": value for name, value in self.shared.moments.items()},
            **({} if self.start is None else {"theta.start": self.start}),
        }

    def description(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "fit": {
                "plan": None if self.plan is None else asdict(self.plan),
                "rounds": self.rounds,
                "finished": self.finished,
                "shared_steps": self.shared.steps,
                "tasks": self.sums.tasks,
            },
            "history": [asdict(terms) for terms in self.history],
        }


def restored(
    tensors: Mapping[str, Tensor], description: Mapping[str, Any], plain: Mapping[str, Tensor], scalar_targets: bool
) -> State:
    """The state that was saved; ``plain`` are the shared parameters' values."""
    fit = description["fit"]
    psi = HyperPosterior(*(tensors[f"psi.{name}"] for name in HyperPosterior._fields))
    sums = PosteriorSums(int(fit["tasks"]), tensors["sums.first"], tensors["sums.second"])
    moments = {name.removeprefix("shared."): value for name, value in tensors.items() if name.startswith("shared.")}
    return State(
        psi,
        sums,
        SharedParameters(plain, moments, int(fit["shared_steps"])),
        None if fit["plan"] is None else FitPlan(**fit["plan"]),
        int(fit["rounds"]),
        bool(fit["finished"]),
        scalar_targets,
        [HierarchyTerms(**terms) for terms in description["history"]],
        tensors.get("theta.start"),
    )


def refuse_other_plan(saved: FitPlan | None, given: FitPlan) -> None:
    """Raise unless a fit goes on as it was begun."""
    before, now = {} if saved is None else asdict(saved), asdict(given)
    other = [
        f"{name} (was {before.get(name)}, now {value})" for name, value in now.items() if before.get(name) != value
    ]
    if other:
        raise CheckpointError(f"a fit is resumed with the settings it was started with, but {'; '.join(other)}")
