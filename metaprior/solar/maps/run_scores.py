"""What a run on frames writes at its end: scores by lead time beside persistence, example forecasts, a picture.

``scores.json`` holds ``LeadTimeScores.as_json`` for each method, and for adaptation to fewer windows.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaprior.files import written_when_complete
from metaprior.methods.meta_learner import MetaLearner
from metaprior.report import canvas
from metaprior.runs.config import Config
from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.runs.sources import LearnedRun
from metaprior.solar.maps import comparison
from metaprior.solar.maps.comparison import PERSISTENCE, SMART_PERSISTENCE, Forecaster, of_learner
from metaprior.solar.maps.report.example import ExampleForecast, example_forecast, write_examples
from metaprior.solar.maps.report.figures import forecast_figure
from metaprior.solar.maps.source import SolarSource
from metaprior.solar.maps.units import has_coordinates
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.solar.value_units import units_or_words
from metaprior.team import current_team
from metaprior.text_table import Row, text_table

SCORES = "scores.json"
PRIOR, ADAPTED = "prior (not adapted)", "adapted"
FEW_SHOTS = (1, 2)
"""Numbers of shots in the learning curve, besides zero and all."""
EXAMPLES = 4
"""Test tasks of which one forecast is kept."""
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
    if not path.exists():
        unfinished = (
            f"{run.path} has no scores yet: the run has not finished. Continue it with metaprior train --resume"
        )
        finished = f"{path} does not exist, although the run has finished; {remedy}"
        raise RunFolderError(finished if run.finished else unfinished)
    content = run.read_json(SCORES)
    try:
        return RunScores.from_json(content)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RunFolderError(f"{path} is damaged: it must hold scores by lead time ({problem}); {remedy}") from None


def score_run(
    source: SolarSource, config: Config, learner: MetaLearner, *, poll: Callable[[], None] = lambda: None
) -> RunScores:
    """Score the learned prior on the test tasks, before and after adaptation, and by number of shots."""
    dataset, count, samples = source.tasks("test"), config.evaluate.tasks, config.evaluate.samples
    points = {PERSISTENCE: comparison.reference(PERSISTENCE)}
    if has_coordinates(dataset.frames):
        points["smart persistence"] = comparison.reference(SMART_PERSISTENCE)
    adapted = of_learner(learner, samples=samples)
    few = {shots: f"adapted to {shots}" for shots in FEW_SHOTS if shots < dataset.k_shot}
    methods: dict[str, Forecaster] = {PRIOR: of_learner(learner, adapted=False, samples=samples)}
    methods |= {name: comparison.with_shots(adapted, shots) for shots, name in few.items()} | {ADAPTED: adapted}
    failures: list[str] = []
    total = comparison.score(dataset, count, methods, points, failures=failures, poll=poll, progress=False)
    if len(failures) == count:
        raise FloatingPointError(f"no task could be scored; the first: {failures[0]}")
    fewer = {shots: total.pop(name) for shots, name in few.items()}
    return RunScores(str(dataset.frames.attrs.get("units", "1")), dataset.k_shot, total, fewer, failures)


def finish_maps(source: SolarSource, end: LearnedRun) -> list[Path]:
    """Score the prior on test tasks, write scores and examples; return the pictures if matplotlib is installed."""
    scores = score_run(source, end.config, end.learner, poll=end.poll)
    return current_team().on_first(lambda: _write(source, end, scores))


def _write(source: SolarSource, end: LearnedRun, scores: RunScores) -> list[Path]:
    end.run.write_json(SCORES, scores.as_json())
    end.say(scores.table())
    examples = example_forecasts(source, end.config, end.learner)
    if examples:
        with written_when_complete(end.run.path / "examples.nc") as path:
            write_examples(path, examples)
    else:
        end.say("note: no maps, because none of the first forecasts is finite")
    end.run.note_saved("scores", end.step)
    if not examples or not canvas.has_matplotlib():  # a note says so where the other pictures are drawn
        return []
    picture = end.run.path / "forecast.png"
    forecast_figure(picture, examples[0])
    return [picture]


def example_forecasts(source: SolarSource, config: Config, learner: MetaLearner) -> list[ExampleForecast]:
    """Return adapted forecasts of the first query window of some test tasks, leaving out those that are not finite."""
    dataset = source.tasks("test")
    adapted = of_learner(learner, samples=config.evaluate.samples)
    examples = []
    for number in range(min(EXAMPLES, config.evaluate.tasks)):
        with suppress(FloatingPointError):  # the scores list such tasks
            examples.append(example_forecast(dataset, number, adapted))
    return examples
