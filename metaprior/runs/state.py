"""Everything that a run's next step depends on, as a checkpoint and back, to the last bit.

``last`` is written every so often and at the end of each epoch, the one before it is kept as ``previous``, and ``best``
is the one with the lowest validation score.
"""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from metaprior import checkpoint
from metaprior.errors import CheckpointError
from metaprior.metagrad.planner import Way
from metaprior.team import current_team
from metaprior.team.agreement import refuse_disagreement, tensors_digest
from metaprior.training.epoch import Summary
from metaprior.training.trainer import Progress, Trainer
from metaprior.weights import WeightDistribution

KIND = "metaprior train"
Which = Literal["last", "previous", "best"]
WHICH: tuple[Which, ...] = ("last", "previous", "best")


@dataclass
class Position:
    """Where a run stands besides the trainer: epochs that are over, and what is known of the one under way."""

    epochs: int = 0
    """Epochs that are over, the warm start counted as one."""
    summary: Summary = field(default_factory=Summary)
    seconds: float = 0.0


class Keeper:
    """Writes and reads the checkpoints of one run; ``digest`` says which configuration they belong to.

    Rank 0 has the files. A checkpoint is the same for any number of ranks.
    """

    def __init__(self, folder: Path, trainer: Trainer, digest: str) -> None:
        self.folder, self.trainer, self.digest = folder, trainer, digest
        self.team = current_team()

    def save(self, position: Position) -> None:
        """Write ``last``; the one that was there becomes ``previous``."""
        self._write("last", position, keep_as="previous")

    def save_best(self, position: Position) -> None:
        """Write ``best``."""
        self._write("best", position)

    def _write(self, which: Which, position: Position, keep_as: Which | None = None) -> None:
        tensors = self.trainer.tensors()
        refuse_drift(self.trainer.theta)

        def write() -> None:
            folder = self.folder / which
            if keep_as is not None and (folder / checkpoint.DESCRIPTION).exists():
                checkpoint.duplicate(folder, self.folder / keep_as)
            checkpoint.write(folder, KIND, tensors, self._description(position))

        self.team.on_first(write)

    def _description(self, position: Position) -> dict[str, Any]:
        progress = asdict(self.trainer.progress)
        summary = vars(position.summary)
        return {
            "config": self.digest,
            "gradients": gradients(self.trainer)._asdict(),
            "progress": {name: None if value == math.inf else value for name, value in progress.items()},
            "epochs": position.epochs,
            "summary": {**summary, "sums": {name: _text(value) for name, value in summary["sums"].items()}},
            "seconds": position.seconds,
        }

    def restore(self, which: Which) -> tuple[Position, str]:
        """Bring the trainer to where a checkpoint was made; also how its gradients were computed."""
        try:
            tensors, state = self.team.read_on_first(lambda: self._read(which))
            self.team.attempt(lambda: self._put_back(which, tensors, state.progress), lambda _: None)
        except CheckpointError as error:
            raise CheckpointError(f"{error}.{self._others(which)}") from None
        return state.position, state.gradients

    def _read(self, which: Which) -> tuple[dict[str, Tensor], "_State"]:
        folder = self.folder / which
        tensors, description = checkpoint.read(folder, KIND)
        with checkpoint.readable(folder):
            if description["config"] != self.digest:
                raise ValueError("it belongs to a run with another configuration")
            saved: dict[str, Any] = description["progress"]
            infinite = {name: math.inf for name, value in saved.items() if value is None}
            progress = Progress(**{**saved, **infinite})
            summary = dict(description["summary"])
            summary["sums"] = {name: float(value) for name, value in summary["sums"].items()}
            position = Position(int(description["epochs"]), Summary(**summary), float(description["seconds"]))
            return tensors, _State(position, progress, _gradients_text(description["gradients"]))

    def _put_back(self, which: Which, tensors: dict[str, Tensor], progress: Progress) -> None:
        with checkpoint.readable(self.folder / which):
            self.trainer.restore(tensors, progress)

    def _others(self, which: Which) -> str:
        """What else there is to go on from."""
        there = [f"--resume-from {name}" for name in WHICH if name != which and self.is_whole(name)]
        return f" To go on from an earlier state: {' or '.join(there)}" if there else " No other checkpoint is whole"

    def is_whole(self, which: Which) -> bool:
        """Whether a checkpoint is there and can be read."""
        try:
            checkpoint.read(self.folder / which, KIND)
        except CheckpointError:
            return False
        return True

    def put_aside_damaged_last(self) -> None:
        """Before going on from another checkpoint: a damaged ``last`` is kept under another name, for whoever cares."""
        last = self.folder / "last"
        if not last.exists() or self.is_whole("last"):
            return
        number = next(n for n in range(1, 10**6) if not (self.folder / f"damaged-{n}").exists())
        last.rename(self.folder / f"damaged-{number}")

    def best_theta(self) -> WeightDistribution:
        """Theta of the best validation, or the present one if there never was any."""
        tensors, _ = self.team.read_on_first(self._best)
        if not tensors:
            return self.trainer.theta.detached()
        device = self.trainer.theta.mu.device
        found = {name: value.to(device) for name, value in tensors.items() if name.startswith("theta/")}
        return WeightDistribution.from_named({name.removeprefix("theta/"): value for name, value in found.items()})

    def _best(self) -> tuple[dict[str, Tensor], None]:
        return (checkpoint.read(self.folder / "best", KIND)[0] if (self.folder / "best").exists() else {}), None


class _State(NamedTuple):
    """What a checkpoint holds besides tensors."""

    position: Position
    progress: Progress
    gradients: str


class Gradients(NamedTuple):
    """How gradients are computed. Another way gives the same ones up to rounding, but not to the last bit."""

    engine: str
    micro_batch: int | None
    stacked: bool
    processes: int

    def __str__(self) -> str:
        ranks = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{self.engine}, {'stacked' if self.stacked else 'one by one'}, micro-batch {self.micro_batch}{ranks}"


def gradients(trainer: Trainer) -> Gradients:
    """How this one does."""
    return Gradients(trainer.engine.name, trainer.problem.micro_batch, trainer.stacked, trainer.team.size)


def _gradients_text(saved: str | dict[str, Any]) -> str:
    """As a checkpoint has it; earlier ones have the text alone."""
    return saved if isinstance(saved, str) else str(Gradients(**saved))


def way_before(checkpoints: Path, which: Which) -> Way | None:
    """How gradients were computed when a checkpoint was made, for planning them alike.

    None where no checkpoint tells: none is there, it is an earlier release's, or damaged (which ``restore`` says).
    """
    try:
        saved = checkpoint.read_description(checkpoints / which, KIND).get("gradients")
    except CheckpointError:
        return None
    return Way(saved["engine"], saved["micro_batch"]) if isinstance(saved, dict) else None


def refuse_drift(theta: WeightDistribution) -> None:
    """Raise if the ranks' thetas are no longer the same: machines that compute differently, or memory that errs."""
    team = current_team()
    if team.size > 1:
        _, digests = team.attempt(lambda: tensors_digest(theta.tensors()), lambda digest: digest)
        refuse_disagreement(
            [{"theta, which was the same at the start (unlike processors, or faulty memory)": d} for d in digests]
        )


def _text(value: float) -> float | str:
    """JSON has no infinity; a gradient's norm can overflow where the gradient does not."""
    return value if math.isfinite(value) else str(value)
