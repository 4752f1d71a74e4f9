"""The state of a hierarchical inference apart from the tasks' posteriors: what a commit of the store carries."""

from dataclasses import asdict, dataclass, field

from torch import Tensor

from metaprior.checks import check_integer
from metaprior.errors import CheckpointError
from metaprior.hierarchy.hyper_posterior import HyperPosterior, PosteriorSums
from metaprior.history import EpochRecord
from metaprior.scaling import TargetScale
from metaprior.stack_descent import DescentPlan, SharedParameters


@dataclass(frozen=True)
class HierarchyTerms:
    """The objective's terms in nats, summed over all tasks: ``total`` is minimised, ``elbo`` bounds log p(D)."""

    nll: float
    """Sum of E_q[-log p(D_i | phi_i)]."""
    kl: float
    """Sum of E_q(theta) KL(q(phi_i) || p(phi_i | theta))."""
    hyper_kl: float
    """KL(q(theta) || p(theta))."""

    @property
    def total(self) -> float:
        """Return the objective, which is minimised."""
        return self.nll + self.kl + self.hyper_kl

    @property
    def elbo(self) -> float:
        """Return the lower bound on the log evidence of all data."""
        return -self.total


@dataclass(frozen=True)
class FitPlan:
    """The settings of a fit; ``HierarchicalVI.fit`` explains each."""

    epochs: int
    local_steps: int
    task_batch: int
    batch_size: int
    lr: float
    samples: int
    kl_warmup: float

    def __post_init__(self) -> None:
        for name in ("epochs", "local_steps", "task_batch"):
            check_integer(name, getattr(self, name), 1)
        self.local()  # checks the rest

    def local(self) -> DescentPlan:
        """Return the settings of all steps that one posterior takes."""
        return DescentPlan(self.epochs * self.local_steps, self.batch_size, self.lr, self.samples, self.kl_warmup)

    def refuse_other(self, given: "FitPlan") -> None:
        """Raise ``CheckpointError`` unless a stopped fit is resumed with the settings it was started with."""
        before, now = asdict(self), asdict(given)
        if other := [f"{name} (was {before[name]}, now {now[name]})" for name in now if before[name] != now[name]]:
            raise CheckpointError(f"a fit is resumed with the settings it was started with, but {'; '.join(other)}")


@dataclass
class State:
    """Psi, the sums it is fitted to, the shared parameters, and the position in the present fit."""

    psi: HyperPosterior
    sums: PosteriorSums
    shared: SharedParameters
    target_scale: TargetScale
    plan: FitPlan | None = None
    """Settings of the present fit, or of the last one; None before the first."""
    rounds: int = 0
    """Rounds of this fit that are finished."""
    finished: bool = True
    scalar_targets: bool = False
    history: list[EpochRecord] = field(default_factory=list)
    start: Tensor | None = None
    """Means that new posteriors start from, where theta is fixed."""
