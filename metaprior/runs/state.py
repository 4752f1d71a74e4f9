"""Everything that a run's next step depends on, as a checkpoint and back, to the last bit.

``last`` is written every so often and at the end of each epoch, the one before it is kept as ``previous``, and ``best``
is the one with the lowest validation score.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from metaprior import checkpoint
from metaprior.checkpoint import CheckpointError
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
    """Writes and reads the checkpoints of one run; ``digest`` says which configuration they belong to."""

    def __init__(self, folder: Path, trainer: Trainer, digest: str) -> None:
        self.folder, self.trainer, self.digest = folder, trainer, digest

    def save(self, position: Position) -> None:
        """Write ``last``; the one that was there becomes ``previous``."""
        last = self.folder / "last"
        if (last / checkpoint.DESCRIPTION).exists():
            checkpoint.duplicate(last, self.folder / "previous")
        checkpoint.write(last, KIND, self.trainer.tensors(), self._description(position))

    def save_best(self, position: Position) -> None:
        """Write ``best``."""
        checkpoint.write(self.folder / "best", KIND, self.trainer.tensors(), self._description(position))

    def _description(self, position: Position) -> dict[str, Any]:
        progress = asdict(self.trainer.progress)
        summary = {name: value for name, value in vars(position.summary).items() if name != "last_failure"}
        return {
            "config": self.digest,
            "gradients": gradients(self.trainer),
            "progress": {**progress, "best": None if math.isinf(progress["best"]) else progress["best"]},
            "epochs": position.epochs,
            "summary": {**summary, "sums": {name: _text(value) for name, value in summary["sums"].items()}},
            "seconds": position.seconds,
        }

    def restore(self, which: Which) -> tuple[Position, str]:
        """Bring the trainer to where a checkpoint was made; also how its gradients were computed."""
        folder = self.folder / which
        try:
            tensors, description = checkpoint.read(folder, KIND)
            return self._restored(folder, tensors, description)
        except CheckpointError as error:
            raise CheckpointError(f"{error}.{self._others(which)}") from None

    def _restored(
        self, folder: Path, tensors: dict[str, Tensor], description: Mapping[str, Any]
    ) -> tuple[Position, str]:
        with checkpoint.readable(folder):
            if description["config"] != self.digest:
                raise ValueError("it belongs to a run with another configuration")
            saved = dict(description["progress"])
            progress = Progress(**{**saved, "best": math.inf if saved["best"] is None else saved["best"]})
            summary = dict(description["summary"])
            summary["sums"] = {name: float(value) for name, value in summary["sums"].items()}
            position = Position(int(description["epochs"]), Summary(**summary), float(description["seconds"]))
            self.trainer.restore(tensors, progress)
            return position, str(description["gradients"])

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
        if not (self.folder / "best").exists():
            return self.trainer.theta.detached()
        tensors, _ = checkpoint.read(self.folder / "best", KIND)
        theta = {name.removeprefix("theta/"): value for name, value in tensors.items() if name.startswith("theta/")}
        plain = {name.removeprefix("plain."): value for name, value in theta.items() if name.startswith("plain.")}
        return WeightDistribution(theta["mu"], theta["rho"], plain)


def gradients(trainer: Trainer) -> str:
    """How gradients are computed. Another way gives the same ones up to rounding, but not to the last bit."""
    batch = trainer.problem.micro_batch
    return f"{trainer.engine.name}, {'stacked' if trainer.stacked else 'one by one'}, micro-batch {batch}"


def _text(value: float) -> float | str:
    """JSON has no infinity; a gradient's norm can overflow where the gradient does not."""
    return value if math.isfinite(value) else str(value)
