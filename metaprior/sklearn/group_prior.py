"""How a prior over groups is learned, and how it is restored from bytes.

Few groups tell little about their prior, and a point estimate of it would be far too sure. So the prior is, by default,
a set of draws from its posterior (``HierarchicalVI`` with local posteriors in closed form); with many groups, of more
rows than draws can afford, it is the point that ``MetaLearner`` learns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metaprior.adaptation import Adaptation
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.hierarchy.theta_inference import HMC
from metaprior.likelihoods import Gaussian, Likelihood
from metaprior.methods.collapsed_hierarchical_vi import CollapsedHierarchicalVI
from metaprior.methods.meta_learner import MetaLearner
from metaprior.methods.method import TaskMethod
from metaprior.sklearn.group_network import GroupNetwork, made
from metaprior.sklearn.groups import GroupSplits, held_out, some_rows
from metaprior.sklearn.state import folder_of
from metaprior.tasks.task import Examples, Task

DRAWS, POINT = "draws", "point"
ROWS_OF_DRAWS = 2000
"""Most rows that draws are inferred from: every step of every draw passes over all of them."""
GROUPS_OF_A_POINT = 1000
"""Groups from which a point is learned, if there are more rows than draws can use. With 300 groups of 20 rows, draws
from a third of the rows still forecast new groups better."""
STEPS = {DRAWS: 400, POINT: 2000}
"""Default numbers of gradient steps."""
LEAPFROG, ANCHORED_SHARE = 15, 0.1
"""Steps of a trajectory, and the share of all steps that look for a start. A long search ends at thetas that fit the
noise, which the chains take long to leave."""
META_BATCH, META_LR = 16, 5e-3
HELD_OUT, LEAST_HELD_OUT, MOST_HELD_OUT = 0.2, 5, 100
"""Share of the groups that the spread of a point's forecasts is fitted to; the fewest, and the most."""


@dataclass(frozen=True)
class PriorSettings:
    """What is chosen about a prior before there are data, in the words of the estimators."""

    hidden: Sequence[int]
    activation: str
    prior: str
    adaptation: Adaptation | None
    draws: int
    steps: int | None
    seed: int

    def kind(self, groups: int, rows: int) -> str:
        """Return "draws" or "point"."""
        if self.prior != "auto":
            return self.prior
        few = groups < GROUPS_OF_A_POINT or rows <= ROWS_OF_DRAWS
        return DRAWS if few and self.adaptation is None else POINT

    def steps_of(self, kind: str) -> int:
        """Return the number of gradient steps of draws, or of a point."""
        return STEPS[kind] if self.steps is None else self.steps

    def network(self, inputs: int, outputs: int) -> GroupNetwork:
        """Return the network with its first weights."""
        return made(self.seed, inputs, self.hidden, outputs, self.activation)


def draws_of_prior(settings: PriorSettings, groups: Sequence[Examples], outputs: int) -> CollapsedHierarchicalVI:
    """Return draws of the prior given groups (x, y), with targets of about unit size, (N,) or (N, outputs)."""
    steps = settings.steps_of(DRAWS)
    used = some_rows(groups, ROWS_OF_DRAWS, settings.seed)
    learner = CollapsedHierarchicalVI(
        settings.network(used[0].x.shape[1], outputs),
        Gaussian(per_channel=True),
        local="closed_form",
        theta=HMC(
            settings.draws,
            trajectories=max(1, round((1 - ANCHORED_SHARE) * steps / LEAPFROG)),
            leapfrog=LEAPFROG,
            anchored_steps=max(1, round(ANCHORED_SHARE * steps)),
        ),
        standardize=False,
        seed=settings.seed,
    )
    return learner.fit({str(number): own for number, own in enumerate(used)}, progress=False)


def point_prior(
    settings: PriorSettings, groups: Sequence[Examples], likelihood: Likelihood, outputs: int
) -> MetaLearner:
    """Return a point estimate of the prior, its spread fitted to groups that it was not learned from, if there are any.

    Args:
        settings: how the prior is learned.
        groups: all rows of each group.
        likelihood: the likelihood of the targets.
        outputs: number of outputs of the network.
    """
    learner = MetaLearner(
        settings.network(groups[0].x.shape[1], outputs),
        likelihood,
        adaptation=settings.adaptation or ClosedForm(labels="fixed"),
        standardize=False,
        seed=settings.seed,
    )
    learned, apart = held_out(len(groups), HELD_OUT, MOST_HELD_OUT, settings.seed)
    if len(apart) < LEAST_HELD_OUT:
        learned, apart = list(range(len(groups))), []
    batch, steps = min(META_BATCH, len(learned)), settings.steps_of(POINT)
    tasks = GroupSplits([groups[number] for number in learned], batch, settings.seed)
    learner.fit(tasks, epochs=1, tasks_per_epoch=steps * batch, meta_batch=batch, lr=META_LR, progress=False)
    if apart:
        splits = [_halves(groups[number], str(number)) for number in apart]
        learner.calibrate([task for task in splits if task.query.size], progress=False)
    return learner


def _halves(group: Examples, name: str) -> Task:
    half = group.size // 2
    return Task(group.first(half), Examples(group.x[half:], group.y[half:]), name)


def restored(files: Mapping[str, bytes], kind: str, network: GroupNetwork, adaptation: Adaptation | None) -> TaskMethod:
    """Return a prior of this kind from the bytes of its files; ``network`` is one like the saved."""
    with folder_of(files) as folder:
        if kind == POINT:
            return MetaLearner.load(folder, network, adaptation=adaptation)
        loaded = CollapsedHierarchicalVI.load(folder, network)
        _ = loaded.thetas_  # reads the folder, which is gone afterwards
        return loaded
