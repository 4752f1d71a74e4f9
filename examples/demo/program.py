"""The demo from beginning to end."""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from textwrap import fill

import numpy as np
import torch

from benchmarks.common.budget import one_thread
from examples.demo import maps, page, plants
from examples.demo.maps import MapOutcome
from examples.demo.plants import PlantOutcome
from examples.demo.settings import MapSettings, PlantSettings, Settings
from examples.demo.verdict import basis, days_table, sentences, table
from metaprior.report.page.writing import write_page
from metaprior.report.wording import counted
from metaprior.solar.maps.comparison import Forecaster, context_of, of_learner
from metaprior.solar.maps.forecast_file import write_forecast
from metaprior.solar.maps.report.example import example_forecast
from metaprior.solar.maps.report.figures import forecast_figure
from metaprior.solar.sites.simulator.writing import write_power
from metaprior.text_table import text_table

DEFAULT = Settings()
COLUMNS = 100
"""The width of text on the terminal."""
Say = Callable[[str], None]


def run(out: Path, say: Say, settings: Settings = DEFAULT) -> None:
    """Run both parts, print the table and a sentence for each, and write the page to a folder.

    A second process scores and trains what can be done beside. Both have one thread, and trainings a number of steps,
    so every run of the same version on the same machine prints the same numbers.
    """
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    say("Two parts, about three minutes on two cores. Plants and weather are simulated; nothing is downloaded.")
    with (
        one_thread(),
        ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
        ) as beside,
    ):
        others = beside.submit(plants.score_others, settings.plants)
        rival = beside.submit(maps.train_and_score_rival, settings.maps)
        of_plants = _plants(settings.plants, others, say)
        of_maps = _maps(settings.maps, rival, say)
        say("\nDrawing the page.")
        _write(out, settings, of_plants, of_maps)
    say(f"\n{text_table(table(of_plants, of_maps))}\n")
    for sentence in [*sentences(of_plants, of_maps), basis(of_plants, of_maps)]:
        say(f"{fill(sentence, COLUMNS)}\n")
    command = f"metaprior sites forecast {out}/power.csv --sites {out}/power_sites.csv --page {out}/forecast.html"
    say(f"Next, a forecast of one of the plants: {command}")
    say(f"{time.monotonic() - started:.0f} seconds. The page: {(out / 'report.html').resolve()}")


def _plants(settings: PlantSettings, others: "Future[plants.Scored]", say: Say) -> PlantOutcome:
    say(
        f"\nPart 1, a new plant: forecasts of {counted(settings.plants, 'plant')} that no training has seen.\n"
        f"A small prior learns from {settings.training_plants:,} simulated plants: {settings.steps:,} steps, about a "
        "minute. Beside it, a second\nprocess scores the prior of the package, smart persistence, and one network for "
        "all, as it is and fine-tuned."
    )
    trained = plants.train(settings, progress=True)
    say("The small prior forecasts the same plants.")
    scored = plants.score_trained(settings, trained)
    outcome = PlantOutcome(plants.fleet_of(settings), plants.joined([others.result(), scored]), trained, settings)
    say("The prior of the package, which is not trained again, by days of a plant's data:\n")
    say(text_table(days_table(outcome)))
    return outcome


def _maps(settings: MapSettings, rival: "Future[maps.Rival]", say: Say) -> MapOutcome:
    say(
        f"\nPart 2, maps: {settings.days} days of irradiance on {settings.size} x {settings.size} pixels. The package "
        "has no prior for maps yet:\n"
        f"one learns from the west of the map, {settings.warm_steps} steps, about a minute; beside it, a plain network."
    )
    world = maps.simulated_world(settings, progress=True)
    learner = maps.train(settings, world, progress=True)
    places, windows = counted(settings.test_tasks, "place"), counted(settings.shots, "window")
    say(f"It adapts to {places} in the east, on later days, from {windows} each.")
    scores = maps.score_prior(learner, settings, world, progress=True)
    if not rival.done():
        say("Waiting for the plain network.")
    return maps.outcome_of(world, learner, scores, rival.result())


def _write(out: Path, settings: Settings, of_plants: PlantOutcome, of_maps: MapOutcome) -> None:
    """Write the page, both priors, the power of one plant, and the forecast of one place as a file and a picture."""
    forecaster = of_learner(of_maps.learner, samples=settings.maps.samples)
    test = of_maps.world.test
    examples = [example_forecast(test, number, forecaster) for number in range(settings.maps.examples)]
    write_page(out / "report.html", page.content(settings, of_plants, of_maps, examples))
    forecast_figure(out / "forecast.png", examples[0])
    _write_forecast(out / "forecast.nc", of_maps, forecaster)
    _write_power(out / "power.csv", of_plants)
    of_plants.trained.save(out / "prior-plants")
    of_maps.learner.save(out / "prior-maps")


def _write_power(path: Path, outcome: PlantOutcome) -> None:
    """Write the power of the plant that the page shows first, for ``metaprior sites``."""
    of_fleet = zip(outcome.fleet.plants, outcome.fleet.parameters, strict=True)
    ((plant, parameters),) = [(plant, own) for plant, own in of_fleet if plant.name == outcome.typical]
    write_power([plant], [parameters], path, overwrite=True)


def _write_forecast(path: Path, outcome: MapOutcome, forecaster: Forecaster) -> None:
    """Write the forecasts of all query windows of the first test task in order of time."""
    test = outcome.world.test
    context = context_of(test.reader, test.windows(0).query)
    forecast = context.decoded(forecaster(test[0], 0))
    order = np.argsort(context.issued)
    write_forecast(
        path,
        type(forecast)(forecast.means[:, order], forecast.scales[:, order]),
        issued=context.issued[order],
        cadence=test.frames.attrs["cadence"],
        like=test.reader.block(context.windows[0]),
        observed=context.targets[order],
        overwrite=True,
        progress=False,
    )
