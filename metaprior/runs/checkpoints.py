"""Everything that a run's next step depends on, as a checkpoint and back, bitwise identical.

``last`` is written every ``checkpoint_every`` steps and at the end of each epoch, the one before it is kept as
``previous``, and ``best`` is the one with the lowest validation score.
"""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from metaprior import checkpoint
from metaprior.adaptation.task_model import HowGradients
from metaprior.errors import CheckpointError
from metaprior.team import current_team
from metaprior.team.agreement import refuse_disagreement, tensors_digest
from metaprior.training.epoch import Summary
from metaprior.training.trainer import Progress, Trainer
from metaprior.weights import WeightDistribution

KIND = "metaprior train"
CheckpointName = Literal["last", "previous", "best"]
NAMES: tuple[CheckpointName, ...] = ("last", "previous", "best")
DRIFT = "theta, which was the same at the start (unlike processors, or faulty memory)"


@dataclass
class Position:
    """The state of a run besides its trainer's."""

    epochs: int = 0
    """Finished epochs, with the warm start counted as one."""
    summary: Summary = field(default_factory=Summary)
    """What is known of the unfinished epoch."""
    seconds: float = 0.0
    """Time that the unfinished epoch has taken."""


class Gradients(NamedTuple):
    """How gradients are computed. Another way gives the same ones up to rounding, but not bitwise."""

    engine: str
    micro_batch: int | None
    stacked: bool
    processes: int

    def __str__(self) -> str:
        ranks = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{self.engine}, {'stacked' if self.stacked else 'one by one'}, micro-batch {self.micro_batch}{ranks}"


def gradients(trainer: Trainer) -> Gradients:
    """Return how a trainer computes gradients."""
    return Gradients(*trainer.model.how, trainer.team.size)


def way_of_checkpoint(checkpoints: Path, name: CheckpointName) -> HowGradients | None:
    """Return how gradients were computed when a checkpoint was made; None if it is missing or damaged."""
    try:
        saved = checkpoint.read_description(checkpoints / name, KIND)["gradients"]
        return HowGradients(saved["engine"], saved["micro_batch"], saved["stacked"])
    except (CheckpointError, KeyError, TypeError):  # ``CheckpointWriter.restore`` says what is wrong
        return None


class CheckpointWriter:
    """Writes and reads the checkpoints of one run. Rank 0 has the files, which do not depend on the number of ranks.

    Args:
        folder: the folder ``checkpoints`` of the run.
        trainer: what is saved and restored.
        digest: of the configuration that the checkpoints belong to.
    """

    def __init__(self, folder: Path, trainer: Trainer, digest: str) -> None:
        self.folder, self.trainer, self.digest = folder, trainer, digest

    def save(self, position: Position, name: CheckpointName = "last") -> None:
        """Write a checkpoint; the ``last`` that was there becomes ``previous``."""
        tensors = self.trainer.tensors()
        refuse_drift(self.trainer.theta)
        description = {
            "config": self.digest,
            "gradients": gradients(self.trainer)._asdict(),
            "progress": _encoded(asdict(self.trainer.progress)),
            "epochs": position.epochs,
            "summary": {**vars(position.summary), "sums": _encoded(position.summary.sums)},
            "seconds": position.seconds,
        }

        def write() -> None:
            folder = self.folder / name
            if name == "last" and (folder / checkpoint.DESCRIPTION).exists():
                checkpoint.duplicate(folder, self.folder / "previous")
            checkpoint.write(folder, KIND, tensors, description)

        current_team().on_first(write)

    def restore(self, name: CheckpointName) -> tuple[Position, Gradients]:
        """Bring the trainer to the state of a checkpoint; return the position, and how gradients were computed."""
        team = current_team()

        def restore_trainer() -> None:
            with checkpoint.readable(self.folder / name):
                self.trainer.restore(tensors, progress)

        try:
            tensors, (progress, position, computed) = team.read_on_first(lambda: self._read(name))
            team.attempt(restore_trainer, lambda _: None)
        except CheckpointError as error:
            others = [f"--resume-from {other}" for other in NAMES if other != name and self.is_whole(other)]
            advice = f"To go on from an earlier state: {' or '.join(others)}" if others else "No other one is whole"
            raise CheckpointError(f"{error}. {advice}") from None
        return position, computed

    def _read(self, name: CheckpointName) -> tuple[dict[str, Tensor], tuple[Progress, Position, Gradients]]:
        folder = self.folder / name
        tensors, description = checkpoint.read(folder, KIND)
        with checkpoint.readable(folder):
            if description["config"] != self.digest:
                raise ValueError("it belongs to a run with another configuration")
            summary = Summary(**{**description["summary"], "sums": _decoded(description["summary"]["sums"])})
            position = Position(int(description["epochs"]), summary, float(description["seconds"]))
            progress = Progress(**_decoded(description["progress"]))
            return tensors, (progress, position, Gradients(**description["gradients"]))

    def is_whole(self, name: CheckpointName) -> bool:
        """Return whether a checkpoint is there and can be read."""
        try:
            checkpoint.read(self.folder / name, KIND)
        except CheckpointError:
            return False
        return True

    def put_aside_damaged_last(self) -> None:
        """Rename a damaged ``last`` before a run goes on from another checkpoint."""
        last = self.folder / "last"
        if last.exists() and not self.is_whole("last"):
            number = next(n for n in range(1, 10**6) if not (self.folder / f"damaged-{n}").exists())
            last.rename(self.folder / f"damaged-{number}")

    def best_theta(self) -> WeightDistribution:
        """Return theta of the best validation, or the present one if there never was any."""
        best, device = self.folder / "best", self.trainer.theta.mu.device
        tensors, _ = current_team().read_on_first(lambda: (checkpoint.read(best, KIND)[0] if best.exists() else {}, 0))
        named = {name.removeprefix("theta/"): value.to(device) for name, value in tensors.items() if "theta/" in name}
        return WeightDistribution.from_named(named) if named else self.trainer.theta.detached()


def refuse_drift(theta: WeightDistribution) -> None:
    """Raise if the ranks' thetas are no longer the same: machines that compute differently, or memory that errs."""
    team = current_team()
    if team.size > 1:
        _, digests = team.attempt(lambda: tensors_digest(theta.tensors()), lambda digest: digest)
        refuse_disagreement([{DRIFT: digest} for digest in digests])


def _encoded(values: dict[str, Any]) -> dict[str, Any]:
    """Return numbers for JSON, which has no infinity: a norm can overflow where its gradient does not."""

    def infinite(value: Any) -> bool:
        return isinstance(value, float) and not math.isfinite(value)

    return {name: str(value) if infinite(value) else value for name, value in values.items()}


def _decoded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: float(value) if isinstance(value, str) else value for name, value in values.items()}
