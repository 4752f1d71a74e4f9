"""An application as small as one can be: tasks of its own, a fact about them, a file at the end, a command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer

from metaprior.noise import task_generator
from metaprior.runs.config import Choice
from metaprior.runs.sources import TASKS, LearnedRun, Purpose, TaskSettings, TaskSource
from metaprior.tasks import Examples, Task, Tasks
from metaprior.tasks.task import FirstTasks


@dataclass(frozen=True)
class ToyTasks(TaskSettings):
    """Lines through a point of the y axis."""

    height: float = 1.0
    k_shot: int = 3
    seed: int = 0

    def open(self, *, progress: bool) -> "ToySource":
        return ToySource(self)

    def misfits(self, model: Choice, likelihood: Choice) -> list[str]:
        return [] if model.kind == "mlp" else [f"model.kind is {model.kind!r}; toys are for mlp"]


@dataclass(frozen=True)
class Lines:
    height: float
    k_shot: int
    seed: int

    def __getitem__(self, index: int) -> Task:
        generator = task_generator("toy", self.seed, index)
        x = torch.rand(2 * self.k_shot, 1, generator=generator)
        y = self.height + torch.randn(1, generator=generator) * x
        half = self.k_shot
        return Task(Examples(x[:half], y[:half]), Examples(x[half:], y[half:]), f"line {index}")


class ToySource(TaskSource):
    file, summary, heading = "toy.json", "lines, as ordered", "errors in centimetres"

    def __init__(self, settings: ToyTasks) -> None:
        super().__init__(settings.seed)
        self.settings = settings

    def tasks(self, purpose: Purpose, count: int | None = None) -> Tasks:
        return Lines(self.settings.height, self.settings.k_shot, self.seed_of(purpose))

    def pooled(self, meta_batch: int) -> Tasks:
        return FirstTasks(self.tasks("train"), 4)

    def describe(self) -> dict[str, Any]:
        return {"height": self.settings.height}

    def finish(self, end: LearnedRun) -> list[Path]:
        end.run.write_json("toy_scores.json", {"step": end.step})
        end.say("toys are put away")
        return []


TASKS.add("toy", ToyTasks)


def add_commands(app: typer.Typer) -> None:
    @app.command()
    def play() -> None:
        """Play."""
