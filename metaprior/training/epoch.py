"""Several steps in a row and their summary; the progress bar of a run."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from metaprior.errors import TrainingDiverged
from metaprior.history import EpochRecord
from metaprior.metagrad.memory import peak_memory
from metaprior.metagrad.problem import OuterTerms
from metaprior.missing import TargetCount
from metaprior.progress import progress_bar
from metaprior.training.trainer import StepReport, Trainer

FAILURES_NAMED = 5
NORM = "grad_norm_"


@dataclass
class Summary:
    """Means over the steps of an epoch, each meta-step weighted with its tasks."""

    phase: str = ""
    steps: int = 0
    tasks: int = 0
    bad_tasks: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Number of tasks in each sum."""
    failures: list[str] = field(default_factory=list)
    """Descriptions of the first few bad tasks."""
    targets: int = 0
    missing: int = 0
    """Targets that are missing and were left out."""

    def add(self, report: StepReport) -> None:
        """Add the report of a step."""
        self.phase, self.steps, self.tasks = report.phase.name, self.steps + 1, self.tasks + report.tasks
        self.bad_tasks += len(report.failures)
        self.targets += report.targets.targets
        self.missing += report.targets.missing
        self.failures += map(str, report.failures[: FAILURES_NAMED - len(self.failures)])
        if report.tasks:
            norms = {f"{NORM}{name}": value for name, value in report.grad_norms.items()}
            for name, value in {**report.losses, **norms}.items():
                self.sums[name] = self.sums.get(name, 0.0) + value * report.tasks
                self.counts[name] = self.counts.get(name, 0) + report.tasks

    @property
    def means(self) -> dict[str, float]:
        """Mean loss, terms and gradient norms, each over the steps that had one; empty if no task was finite."""
        return {name: value / self.counts[name] for name, value in self.sums.items()}

    @property
    def loss(self) -> float:
        """Mean outer loss; NaN if no task was finite."""
        return self.means.get("loss", math.nan)

    def record(self, epoch: int) -> EpochRecord:
        """Return the record of an epoch for ``history_``."""
        terms = {name: self.means.get(name, math.nan) for name in OuterTerms._fields}
        norms = {name.removeprefix(NORM): value for name, value in self.means.items() if name.startswith(NORM)}
        return EpochRecord(
            epoch,
            loss=self.loss,
            nll=terms["nll_support"] + terms["nll_query"],
            kl=terms["kl"],
            hyper=terms["hyperprior"],
            phase=self.phase,
            steps=self.steps,
            tasks=self.tasks,
            bad_tasks=self.bad_tasks,
            failures=tuple(self.failures),
            terms=terms,
            grad_norms=norms,
            missing=self.missing,
        )


def run_steps(trainer: Trainer, count: int, after_step: Callable[[StepReport], None] = lambda report: None) -> Summary:
    """Take up to ``count`` steps, call ``after_step`` after each of them, and return their summary."""
    summary, start = Summary(), trainer.progress.step
    for _ in range(start, min(start + count, trainer.settings.steps)):
        report = trainer.step()
        summary.add(report)
        after_step(report)
    return summary


def refuse_nothing_learned(summary: Summary) -> None:
    """Raise TrainingDiverged if no task of an epoch had a finite gradient."""
    if summary.steps and not summary.tasks:
        raise TrainingDiverged(
            f"none of {summary.bad_tasks} tasks had a finite gradient; theta is as it was. The first: "
            f"{summary.failures[0]}"
        )


def warn_of_bad_tasks(history: Sequence[Summary]) -> None:
    """Warn of tasks without a finite gradient, and name the first."""
    bad = sum(summary.bad_tasks for summary in history)
    if bad:
        first = next(summary.failures[0] for summary in history if summary.failures)
        all_tasks = bad + sum(summary.tasks for summary in history)
        warnings.warn(
            f"{bad} of {all_tasks} tasks had no finite gradient and were left out of the training; the first: {first}",
            stacklevel=3,
        )


def warn_of_missing_targets(history: Sequence[Summary]) -> None:
    """Warn of targets that are missing, with their number over all steps."""
    TargetCount(sum(own.missing for own in history), sum(own.targets for own in history)).warn(4)


@contextmanager
def step_bar(
    trainer: Trainer, steps: range, label: str, *, progress: bool, shown: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Callable[[Summary], None]]:
    """Show a progress bar for ``steps``, and give a function to be called with the summary after each of them.

    Some of the steps may have been taken before. ``shown`` is displayed beside loss and memory (the last validation).
    """
    size = trainer.settings.meta_batch
    done = (trainer.progress.step - steps.start) * size
    with progress_bar(label, len(steps) * size, unit="tasks", show=progress, done=done) as bar:

        def tell(summary: Summary) -> None:
            bad = {"bad": str(summary.bad_tasks)} if summary.bad_tasks else {}
            peak = {"peak": f"{peak_memory(trainer.theta.mu.device) / 2**30:.2f} GiB"}
            bar.update(size, **{"loss": f"{summary.loss:.3g}", **shown, **bad, **peak})

        yield tell
