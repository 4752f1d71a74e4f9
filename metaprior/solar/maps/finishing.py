"""What a run on frames adds to its end: scores by lead time, maps to look at, a picture."""

from pathlib import Path

from metaprior.report import canvas
from metaprior.runs.finish import write_whole
from metaprior.runs.sources import LearnedRun
from metaprior.solar.maps.report.figures import forecast_figure
from metaprior.solar.maps.solar_examples import example_maps, write_examples
from metaprior.solar.maps.solar_scores import SCORES, SolarScores, score_run
from metaprior.solar.maps.sources import SolarSource
from metaprior.team import current_team


def finish_maps(source: SolarSource, end: LearnedRun) -> list[Path]:
    """Score the prior on test tasks, write its scores and maps; return the pictures, where what draws is installed."""
    scores = score_run(source, end.config, end.learner, poll=end.poll)
    return current_team().on_first(lambda: _write(source, end, scores))


def _write(source: SolarSource, end: LearnedRun, scores: SolarScores) -> list[Path]:
    end.run.write_json(SCORES, scores.as_json())
    end.say(scores.table())
    examples = example_maps(source, end.config, end.learner)
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
