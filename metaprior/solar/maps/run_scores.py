"""Scores of a run on frames: forecasts of unseen days by lead time, beside persistence.

``scores.json`` holds ``LeadTimeScores.as_json`` for each method, and for adaptation to fewer windows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from metaprior.evaluation import map_tasks
from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.config import Config
from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.solar.maps.comparison import (
    Forecaster,
    PointForecaster,
    add_case,
    case_of,
    empty_scores,
    of_learner,
    reference,
    with_shots,
)
from metaprior.solar.maps.context import PERSISTENCE, SMART_PERSISTENCE
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.source import SolarSource
from metaprior.solar.maps.units import has_coordinates
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.solar.value_units import units_or_words
from metaprior.text_table import Row, text_table

SCORES = "scores.json"
PRIOR, ADAPTED = "prior (not adapted)", "adapted"
FEW_SHOTS = (1, 2)
"""Numbers of shots in the learning curve, besides zero and all."""
SHOWN = ("rmse", "skill_persistence", "skill_smart_persistence", "crps", "coverage_90")


@dataclass
class RunScores:
    """Scores by method, and by number of shots between zero and all."""

    units: str
    shots: int
    """Number of support windows of a task."""
    methods: dict[str, LeadTimeScores]
    fewer: dict[int, LeadTimeScores]
    failures: list[str] = field(default_factory=list)
    """Tasks that are left out of all scores because a forecast was not finite."""

    def table(self) -> str:
        """Return a table of each method at each lead time, followed by the tasks that failed."""
        rows = [
            {"method": name, "lead": str(row["lead"]), **{measure: row[measure] for measure in SHOWN if measure in row}}
            for name, scores in self.methods.items()
            for row in scores.rows()
        ]
        failed = [f"- failed, and left out of all scores: {line}" for line in self.failures]
        return "\n".join([f"lead times in minutes, values in {units_or_words(self.units)}", text_table(rows), *failed])

    def learning_curve(self) -> list[Row]:
        """Return a row of scores over all lead times for each number of shots."""
        by_shots = {0: self.methods[PRIOR], **self.fewer, self.shots: self.methods[ADAPTED]}
        return [{"method": ADAPTED, "shots": shots, **scores.row()} for shots, scores in sorted(by_shots.items())]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain lists and numbers, for ``from_json``."""
        return {
            "units": self.units,
            "shots": self.shots,
            "methods": {name: scores.as_json() for name, scores in self.methods.items()},
            "fewer": {str(shots): scores.as_json() for shots, scores in self.fewer.items()},
            "failures": self.failures,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RunScores":
        """Return the scores that ``as_json`` wrote; raises KeyError, TypeError, AttributeError or ValueError else."""
        if not isinstance(content["units"], str) or not isinstance(content["shots"], int):
            raise TypeError(
                f"units and shots must be a text and an integer, got {content['units']!r} and {content['shots']!r}"
            )
        if missing := {PRIOR, ADAPTED} - set(content["methods"]):
            raise ValueError(f"methods must have scores of {' and '.join(sorted(missing))}")
        return cls(
            content["units"],
            content["shots"],
            {name: LeadTimeScores.from_json(scores) for name, scores in content["methods"].items()},
            {int(shots): LeadTimeScores.from_json(scores) for shots, scores in content["fewer"].items()},
            list(content["failures"]),
        )


def read_scores(run: RunFolder) -> RunScores:
    """Return the scores of a run's folder; raises RunFolderError if they are missing or damaged."""
    path = run.path / SCORES
    remedy = f"restore it from a copy. Without one: {run.how_to_go_on}, which scores the run again from its checkpoint"
    if not path.exists() and not run.finished:
        raise RunFolderError(
            f"{run.path} has no scores yet: the run has not finished. Continue it with metaprior train --resume"
        )
    if not path.exists():
        raise RunFolderError(f"{path} does not exist, although the run has finished; {remedy}")
    content = run.read_json(SCORES)
    try:
        return RunScores.from_json(content)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RunFolderError(f"{path} is damaged: it must hold scores by lead time ({problem}); {remedy}") from None


def score_run(
    source: SolarSource,
    config: Config,
    learner: MetaLearner,
    *,
    poll: Callable[[], None] = lambda: None,
    progress: bool = False,
) -> RunScores:
    """Score the learned prior on the test tasks, before and after adaptation, and by number of shots.

    The ranks of the current team share the tasks; all get the scores, bitwise identical to those of one process.
    """
    dataset, count = source.tasks("test"), config.evaluate.tasks
    methods, points = _forecasters(config, learner), _points(dataset)

    def scored(index: int) -> dict[str, LeadTimeScores] | str:
        poll()
        scores, case = {name: empty_scores(dataset) for name in (*points, *methods)}, case_of(dataset, index)
        try:
            add_case(scores, case, methods, points)
        except FloatingPointError as error:
            return f"{case.task.name}: {error}"
        return scores

    total = {name: empty_scores(dataset) for name in (*points, *methods)}
    failures: list[str] = []
    for result in map_tasks(scored, count, label="scores", progress=progress):
        if isinstance(result, str):
            failures.append(result)
        else:
            for name, scores in result.items():
                total[name].merge(scores)
    if len(failures) == count:
        raise FloatingPointError(f"no task could be scored; the first: {failures[0]}")
    fewer = {shots: total.pop(_few(shots)) for shots in FEW_SHOTS if _few(shots) in total}
    units = str(dataset.frames.attrs.get("units", "1"))
    return RunScores(units, dataset.k_shot, total, fewer, failures)


def _points(dataset: MetaSolarPredictionDataset) -> dict[str, PointForecaster]:
    points = {"persistence": reference(PERSISTENCE)}
    return {**points, "smart persistence": reference(SMART_PERSISTENCE)} if has_coordinates(dataset.frames) else points


def _forecasters(config: Config, learner: MetaLearner) -> dict[str, Forecaster]:
    steps, samples = config.inner.steps, config.evaluate.samples
    adapted = of_learner(learner, steps=steps, samples=samples)
    few = {_few(shots): with_shots(adapted, shots) for shots in FEW_SHOTS if shots < config.tasks.arguments["k_shot"]}
    return {PRIOR: of_learner(learner, steps=None, samples=samples), **few, ADAPTED: adapted}


def _few(shots: int) -> str:
    return f"adapted to {shots}"
