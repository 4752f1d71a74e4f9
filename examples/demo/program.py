"""The demo from beginning to end."""

import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import numpy as np

import metaprior as mp
from benchmarks.common.budget import Fitted, one_thread
from benchmarks.common.result import Row, text_table, versions
from examples.demo.contestants import Rival, adapted_prior, score_prior, train, train_and_score_rival
from examples.demo.world import Settings, World, simulated_world
from metaprior.report.page.content import PageContent
from metaprior.report.page.writing import write_page
from metaprior.solar.maps.comparison import Forecaster, context_of
from metaprior.solar.maps.forecast_file import write_forecast
from metaprior.solar.maps.report.content import page_content
from metaprior.solar.maps.report.example import ExampleForecast, example_forecast
from metaprior.solar.maps.report.figures import forecast_figure
from metaprior.solar.maps.report.story import StoryFacts
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.solar.value_units import units_text

DEFAULT = Settings()
OURS, UNADAPTED = "adapted prior", "prior, not adapted"
RIVAL, POOLED = "fine-tuned network", "network, not fine-tuned"
COLUMNS = 100
"""The width of text on the terminal."""
TITLE = "Irradiance in the next two hours, at places never seen before"


class Outcome(NamedTuple):
    """The scores of both processes, by shots."""

    prior: dict[int, LeadTimeScores]
    network: dict[int, LeadTimeScores]
    references: dict[str, LeadTimeScores]
    fitted: Fitted
    rival: Rival

    @property
    def scores(self) -> dict[str, LeadTimeScores]:
        """The scores by method, the adapted prior first."""
        most = max(self.prior)
        return {
            OURS: self.prior[most],
            UNADAPTED: self.prior[0],
            RIVAL: self.network[most],
            POOLED: self.network[0],
            **dict(reversed(self.references.items())),
        }


def run(out: Path, say: Callable[[str], None], settings: Settings = DEFAULT) -> None:
    """Simulate, train, adapt to unseen places and days, score, and write the report to a folder."""
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    with one_thread():
        world, learner, outcome = _learn(settings, say)
        forecaster = adapted_prior(learner, settings)
        examples = [example_forecast(world.test, number, forecaster) for number in range(settings.examples)]
        content = _content(world, settings, outcome, examples)
        learner.save(out / "prior")
        _write_forecast(out / "forecast.nc", world, forecaster)
    forecast_figure(out / "forecast.png", examples[0])
    write_page(out / "report.html", content)
    say("".join(f"\n{fill(paragraph, COLUMNS)}\n" for paragraph in content.story.split("\n\n")))
    say(f"{text_table(table(outcome.scores))}\n")
    say(f"{time.monotonic() - started:.0f} seconds. In {out}/: prior, forecast.nc, forecast.png and the report,")
    say(f"{(out / 'report.html').resolve()}")


def _learn(settings: Settings, say: Callable[[str], None]) -> tuple[World, mp.MetaLearner, Outcome]:
    """Train the prior, and the plain network in a process beside it: both take about the same time."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as beside:
        pending = beside.submit(train_and_score_rival, settings)
        say(f"Weather: {settings.days} days on {settings.size} x {settings.size} pixels.")
        world = simulated_world(settings, progress=True)
        say(
            f"Training: {settings.seconds:.0f} seconds on the west of the map; beside it, in another process, a plain "
            "network for the same time."
        )
        learner, fitted = train(settings, world, meta_share=settings.meta_share)
        shots = ", ".join(map(str, settings.shots))
        say(f"Adapting to {settings.test_tasks} places in the east, on later days, from {shots} windows.")
        prior = score_prior(learner, settings, world)
        say("Waiting for the plain network." if not pending.done() else "The plain network is ready.")
        rival = pending.result()
    network = {shots: LeadTimeScores.from_json(one) for shots, one in rival.by_shots.items()}
    references = {name: LeadTimeScores.from_json(one) for name, one in rival.references.items()}
    return world, learner, Outcome(prior, network, references, fitted, rival)


def table(scores: Mapping[str, LeadTimeScores]) -> list[Row]:
    """Return scores over all lead times, and the skill over smart persistence by lead time (rounded, never -0)."""
    rows = []
    for method, one in scores.items():
        by_lead = {row["lead"]: row for row in one.rows()}
        row: Row = {"method": method}
        row |= {name: by_lead["all"].get(name) for name in ("rmse", "crps", "coverage_90")}
        row |= {
            f"skill {'' if lead == 'all' else f'+{lead}'}".strip(): round(by_lead[lead]["skill_smart_persistence"], 4)
            + 0.0
            for lead in ("all", *one.lead_minutes)
        }
        rows.append(row)
    return rows


def learning_curve(outcome: Outcome) -> list[Row]:
    """Return the scores of the prior and of the network over all lead times, by shots."""
    return [
        {"method": method, "shots": shots, **one.row()}
        for method, found in ((OURS, outcome.prior), (RIVAL, outcome.network))
        for shots, one in found.items()
    ]


def _content(world: World, settings: Settings, outcome: Outcome, examples: list[ExampleForecast]) -> PageContent:
    return page_content(
        title=TITLE,
        ours=OURS,
        scores=outcome.scores,
        facts=_facts(world, settings, outcome),
        units=units_text(world.test.frames.attrs["units"]),
        learning_curve=learning_curve(outcome),
        examples=examples,
        settings=_shown_settings(settings, outcome),
    )


def _shown_settings(settings: Settings, outcome: Outcome) -> dict[str, object]:
    return {
        "demo": {**asdict(settings), "tunings": [str(tuning) for tuning in settings.tunings]},
        "training of the prior": _shown_training(outcome.fitted),
        "training of the network": {**_shown_training(outcome.rival.fitted), "fine-tuning": outcome.rival.tuning},
        "versions": versions(),
    }


def _shown_training(fitted: Fitted) -> dict[str, object]:
    return {**fitted._asdict(), "seconds": round(fitted.seconds, 1)}


def _facts(world: World, settings: Settings, outcome: Outcome) -> StoryFacts:
    fitted, days = outcome.fitted, world.test.days
    assert days is not None
    assert world.pooled.days is not None
    assert world.validation.days is not None
    return StoryFacts(
        trained_on=(
            f"{world.pooled.days.count} days of simulated irradiance over the west of a map, every half-hour at pixels "
            f"of 5.6 km: {fitted.warm_start} steps on windows from everywhere, then {fitted.meta_steps} meta-steps on "
            f"{world.validation.days.count} later days, in {fitted.seconds:.0f} seconds on one core"
        ),
        tested_on=(
            f"patches of {settings.patch} x {settings.patch} pixels in the east of the map, on {days.count} later days"
        ),
        shots=settings.shots[-1],
        unadapted=UNADAPTED,
        rival=RIVAL,
        rival_is=(
            "the same network without a prior, trained for the same time on the same frames and fine-tuned on the same "
            f"windows ({outcome.rival.tuning}, chosen on other tasks)"
        ),
        remarks=["These are a few minutes of training on simulated weather: they show the steps, not the limit."],
    )


def _write_forecast(path: Path, world: World, forecaster: Forecaster) -> None:
    """Write the forecasts of all query windows of the first test task in order of time."""
    task, context = world.test[0], context_of(world.test.reader, world.test.windows(0).query)
    forecast = context.decoded(forecaster(task, 0))
    order = np.argsort(context.issued)
    write_forecast(
        path,
        type(forecast)(forecast.means[:, order], forecast.scales[:, order]),
        issued=context.issued[order],
        cadence=world.test.frames.attrs["cadence"],
        like=world.test.reader.block(context.windows[0]),
        observed=context.targets[order],
        overwrite=True,
        progress=False,
    )
