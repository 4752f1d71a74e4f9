"""What a run on frames writes at its end: scores by lead time, example forecasts, a picture."""

from pathlib import Path

from metaprior.methods.meta_learner import MetaLearner
from metaprior.report import canvas
from metaprior.runs.config import Config
from metaprior.runs.finish import write_whole
from metaprior.runs.sources import LearnedRun
from metaprior.solar.maps.comparison import of_learner
from metaprior.solar.maps.examples_file import write_examples
from metaprior.solar.maps.report.example import ExampleForecast, example_forecast
from metaprior.solar.maps.report.figures import forecast_figure
from metaprior.solar.maps.run_scores import SCORES, RunScores, score_run
from metaprior.solar.maps.source import SolarSource
from metaprior.team import current_team

EXAMPLES = 4
"""Test tasks of which one forecast is kept."""


def finish_maps(source: SolarSource, end: LearnedRun) -> list[Path]:
    """Score the prior on test tasks, write scores and examples; return the pictures if matplotlib is installed."""
    scores = score_run(source, end.config, end.learner, poll=end.poll)
    return current_team().on_first(lambda: _write(source, end, scores))


def _write(source: SolarSource, end: LearnedRun, scores: RunScores) -> list[Path]:
    end.run.write_json(SCORES, scores.as_json())
    end.say(scores.table())
    examples = example_forecasts(source, end.config, end.learner)
    if examples:
        write_whole(end.run.path / "examples.nc", lambda path: write_examples(path, examples))
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
    adapted = of_learner(learner, steps=config.inner.steps, samples=config.evaluate.samples)
    examples = []
    for number in range(min(EXAMPLES, config.evaluate.tasks)):
        try:
            examples.append(example_forecast(dataset, number, adapted))
        except FloatingPointError:  # the scores list such tasks
            continue
    return examples
