"""Make what the page is built from: ``python -m metaprior.explore.training FOLDER`` (a few minutes on one core).

The folder gets a trained learner for each problem and way, ``scores.json`` with their scores on new tasks, and
``plants.json`` with forecasts of simulated plants by the prior of ``metaprior.solar.sites`` (extra ``solar``). The
package has the result in ``metaprior/explore/priors``.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
import typer

from metaprior.explore.problems import PRIORS, PROBLEMS, WAYS, Problem, Way
from metaprior.files import written_when_complete
from metaprior.methods import MetaLearner
from metaprior.tasks.task import Task, VariedSupport, task_at
from metaprior.text_table import Row, text_table

SIZES = (0, 1, 2, 3, 4, 5, 7, 10, 14, 20)
"""Support sets in training, drawn uniformly."""
SHOTS = (0, 1, 2, 5, 10, 20)
"""Support sets that are scored."""
TRAINING_SEED, VALIDATION_SEED, TEST_SEED = 1000, 2, 12
TRAINING_QUERY, SCORED_QUERY, SCORED_TASKS = 20, 50, 300
EPOCHS = 10


def trained(
    problem: Problem, way: Way, *, steps: int | None = None, validation_tasks: int = SCORED_TASKS
) -> MetaLearner:
    """Return a learner after its training, with the spread of its forecasts fitted to validation tasks.

    Args:
        problem: What is learned.
        way: How.
        steps: Meta-steps; those of the way if not given.
        validation_tasks: Number of tasks that the spread is fitted to.
    """
    learner, batch = way.new_learner(problem), int(way.training["meta_batch"])
    tasks = problem.tasks(max(SIZES), TRAINING_QUERY, problem.noise, TRAINING_SEED)
    varied = VariedSupport(tasks, SIZES, together=batch if way.alike else 1)
    per_epoch = (way.steps if steps is None else steps) * batch // EPOCHS
    learner.fit(varied, epochs=EPOCHS, tasks_per_epoch=per_epoch, progress=False, **way.training)
    return learner.calibrate(new_tasks(problem, VALIDATION_SEED, validation_tasks), progress=False)


def new_tasks(problem: Problem, seed: int, count: int = SCORED_TASKS) -> list[Task]:
    """Return tasks that no training has seen."""
    source = problem.tasks(max(SIZES), SCORED_QUERY, problem.noise, seed)
    return [task_at(source, index, seed) for index in range(count)]


def score_rows(problem: str, way: str, learner: MetaLearner, tasks: Sequence[Task]) -> list[Row]:
    """Return error, log score and coverage by number of points, means over tasks."""
    found = learner.evaluate(tasks, shots=SHOTS, progress=False).rows
    return [
        {
            "problem": problem,
            "way": way,
            "points": row["shots"],
            "rmse": round(row["rmse"], 4),
            "nll": round(row["nll"], 4),
            "coverage": round(row["coverage_90"], 4),
        }
        for row in found
    ]


def write_json(path: Path, content: object) -> None:
    """Write a file of the package, with a line for each entry, so that changes can be read."""
    with written_when_complete(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Train all learners, score them, forecast the plants, and write everything to the folder that is named."""
    parser = argparse.ArgumentParser(description="Make what the page of `metaprior explore` is built from.")
    parser.add_argument("folder", type=Path, nargs="?", default=PRIORS, help="where it is written (in the package)")
    folder = parser.parse_args().folder
    torch.set_num_threads(1)  # sums in the same order on every machine
    rows: list[Row] = []
    for name, problem in PROBLEMS.items():
        tasks = new_tasks(problem, TEST_SEED)
        for way, how in WAYS.items():
            learner = trained(problem, how)
            learner.save(folder / name / way)
            rows += score_rows(name, way, learner, tasks)
    write_json(folder / "scores.json", rows)
    typer.echo(text_table(rows))
    from metaprior.explore.plants import plant_forecasts  # needs the extra solar

    write_json(folder / "plants.json", plant_forecasts())


if __name__ == "__main__":
    main()
