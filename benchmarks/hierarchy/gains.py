"""Scores task by task: rows of the table, and gains of the hierarchy over tasks alone."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from benchmarks.common.result import Row, mean_row
from metaprior.scores import standard_error

ALONE, HIERARCHICAL = "alone", "hierarchical"
SAME, NEW = "same tasks", "new tasks"
MEASURES = ("mse", "nll", "coverage_90")


class Cell(NamedTuple):
    """The measures of every scored task, for a method with so many tasks and data on one kind of tasks."""

    method: str
    tasks: int
    observations: int
    on: str
    found: Sequence[Row]
    failed: int

    def row(self) -> Row:
        """Return means over tasks with their standard errors."""
        row: Row = {
            "method": self.method,
            "tasks": self.tasks,
            "observations": self.observations,
            "on": self.on,
            "scored": len(self.found),
            "failed": self.failed,
        }
        for measure in MEASURES:
            row |= mean_row(measure, self.values(measure))
        return row

    def values(self, measure: str) -> torch.Tensor:
        """Return one number for each task."""
        return torch.tensor([task[measure] for task in self.found], dtype=torch.float64)


def gain(cells: Sequence[Cell], tasks: int, observations: int, on: str) -> tuple[float, float]:
    """Return MSE alone over MSE in the hierarchy on the same tasks, and its standard error (delta method, paired)."""
    by_method = {c.method: c for c in cells if (c.tasks, c.observations, c.on) == (tasks, observations, on)}
    pairs = [{row["index"]: row["mse"] for row in by_method[method].found} for method in (ALONE, HIERARCHICAL)]
    both = sorted(pairs[0].keys() & pairs[1].keys())
    plain, shared = (torch.tensor([pair[index] for index in both], dtype=torch.float64) for pair in pairs)
    ratio = plain.mean() / shared.mean()
    return float(ratio), standard_error((plain - ratio * shared) / shared.mean())


def headline_of(cells: Sequence[Cell]) -> dict[str, float]:
    """Return gains at the corners of the table, and the coverage with most tasks."""
    data, tasks = [cell.observations for cell in cells], [cell.tasks for cell in cells]
    few_data, many_data, few_tasks, many_tasks = min(data), max(data), min(tasks), max(tasks)
    corners = {
        "gain_few_data": (many_tasks, few_data, SAME),
        "gain_many_data": (many_tasks, many_data, SAME),
        "gain_few_data_few_tasks": (few_tasks, few_data, SAME),
        "gain_many_data_few_tasks": (few_tasks, many_data, SAME),
        "gain_few_data_new_task": (many_tasks, few_data, NEW),
        "gain_many_data_new_task": (many_tasks, many_data, NEW),
    }
    headline: dict[str, float] = {}
    for name, corner in corners.items():
        headline[name], headline[f"{name}_se"] = gain(cells, *corner)
    for ending, count in (("", few_data), ("_many_data", many_data)):
        for method in (HIERARCHICAL, ALONE):
            place = (method, many_tasks, count, SAME)
            (cell,) = [c for c in cells if (c.method, c.tasks, c.observations, c.on) == place]
            headline[f"coverage_{method}{ending}"] = float(cell.values("coverage_90").mean())
    return headline
