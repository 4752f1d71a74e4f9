import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from benchmarks.solar.plain_network import Tuning
from examples.demo import MapSettings, PlantSettings, Settings, run
from examples.demo.maps import World, simulated_world
from examples.demo.plants import interval_rows
from examples.demo.verdict import signed, worth
from metaprior.methods.meta_learner import MetaLearner
from metaprior.report.wording import Change
from metaprior.solar.maps.forecast_file import read_forecast
from metaprior.solar.sites import SiteForecaster
from metaprior.solar.sites.limits import PowerForecast

TINY = Settings(
    PlantSettings(plants=3, record_days=11, weeks=1, days=(0, 1, 3), told_days=1, training_plants=4, steps=10),
    MapSettings(
        days=8,
        size=16,
        west=8,
        patch=8,
        width=2,
        levels=1,
        warm_steps=3,
        meta_steps=1,
        network_steps=3,
        samples=2,
        shots=2,
        queries=2,
        tunings=(Tuning(1, 1e-5),),
        validation_tasks=1,
        test_tasks=2,
        examples=1,
    ),
)
ROWS = [
    ("plants, % of capacity", "prior of the package"),
    ("plants, % of capacity", "prior trained here"),
    ("plants, % of capacity", "network, fine-tuned"),
    ("plants, % of capacity", "smart persistence"),
    ("maps, W/m²", "prior trained here"),
    ("maps, W/m²", "network, fine-tuned"),
    ("maps, W/m²", "smart persistence"),
]


class Demo(NamedTuple):
    out: Path
    said: str


def told(out: Path) -> Demo:
    said: list[str] = []
    run(out, said.append, TINY)
    return Demo(out, "\n".join(said))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return told(tmp_path_factory.mktemp("demo") / "new")


@pytest.fixture(scope="module")
def world() -> World:
    return simulated_world(TINY.maps, progress=False)


def test_it_ends_with_one_table_a_sentence_for_each_part_and_the_page(demo: Demo) -> None:
    lines = demo.said.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("RMSE"))
    columns = re.split(r" {2,}", lines[head])
    assert columns == ["RMSE", "method", "no data", "1 days / 2 windows", "change", "95 % interval", "in 90 % band"]
    assert [tuple(re.split(r" {2,}", line)[:2]) for line in lines[head + 2 : head + 9]] == ROWS
    sentences = " ".join(lines[head + 9 :])
    assert "Plants: adapting to one day of a new plant " in sentences
    assert "Maps: adapting to two windows of a new place " in sentences
    assert "95 % intervals over 3 plants and 2 places" in sentences
    assert lines[-1].endswith(f"The page: {(demo.out / 'report.html').resolve()}")


def test_two_runs_print_the_same_and_write_the_same_page(demo: Demo, tmp_path: Path) -> None:
    again = told(tmp_path / "again")
    (first, second) = (
        re.sub(r"\d+ seconds\.", "", one.said.replace(str(one.out.resolve()), "").replace(str(one.out), ""))
        for one in (demo, again)
    )
    assert first == second
    assert (demo.out / "report.html").read_bytes() == (again.out / "report.html").read_bytes()


def test_the_page_opens_with_pictures_and_has_scores_reliability_and_maps(demo: Demo) -> None:
    page = (demo.out / "report.html").read_text(encoding="utf-8")
    titles = re.findall(r"<h2[^>]*>([^<]*)", page)
    assert titles == ["A new plant", "Error by days of data", "Reliability by days of data", "Maps", "Settings"]
    first = page[page.index("A new plant</h2>") : page.index("Error by days of data</h2>")]
    assert first.count("<svg") == 3 * len(TINY.plants.days)
    assert "<b>0 days of data</b>" in first
    assert 'class="note"' not in page
    assert "maps-data" in page or "application/json" in page


def test_what_is_written_can_be_used(demo: Demo, world: World) -> None:
    power = pd.read_csv(demo.out / "power.csv")
    assert power["site"].nunique() == 1
    adapted = SiteForecaster.pretrained(demo.out / "prior-plants").adapt(demo.out / "power.csv")
    assert len(adapted.predict(hours=2)) == 2
    learner, task = MetaLearner.load(demo.out / "prior-maps"), world.test[0]
    assert learner.adapt(task.support).predict(task.query.x, samples=2).mean.shape == (2, 4, 8, 8)
    assert (demo.out / "forecast.png").read_bytes().startswith(b"\x89PNG")
    with read_forecast(demo.out / "forecast.nc") as forecast:
        assert forecast["mean"].shape == forecast["observed"].shape == (2, 4, 8, 8)
        windows = world.test.windows(0).query
        assert set(forecast["forecast_reference_time"].values) == {world.test.reader.issued(one) for one in windows}


def test_nothing_of_the_test_maps_is_seen_before(world: World) -> None:
    for earlier, later in ((world.pooled, world.validation), (world.validation, world.test)):
        assert earlier.days is not None
        assert later.days is not None
        assert later.days.first - earlier.days.stop >= np.timedelta64(1, "D")
        assert earlier.frames["longitude"].max() < world.test.frames["longitude"].min()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change(-0.2, -0.3, -0.1), "pays"),
        (Change(0.2, 0.1, 0.3), "does harm"),
        (Change(-0.02, -0.05, 0.01), "makes no measurable difference"),
        (Change(-0.002, -0.004, -0.001), "is worth next to nothing"),
        (Change(0.0, -0.001, 0.001), "is worth next to nothing"),
    ],
)
def test_the_judgement_depends_on_the_interval(change: Change, words: str) -> None:
    assert worth(change) == words


def test_signs_are_shown_but_of_zero() -> None:
    assert [signed(share) for share in (-0.1564, 0.02, -0.0004, 0.0)] == ["-15.6 %", "+2.0 %", "0.0 %", "0.0 %"]


def test_intervals_count_the_hours_inside() -> None:
    quantiles = np.linspace(0.05, 0.95, 19)[:, None].repeat(4, axis=1)
    power = np.array([0.04, 0.3, 0.5, 0.96])
    rows = interval_rows(power, PowerForecast(quantiles.mean(0), quantiles))
    assert [row["level"] for row in rows] == pytest.approx(np.arange(0.9, 0.05, -0.1))
    assert rows[0]["inside"] == 0.5
    assert rows[-1]["inside"] == 0.25
    assert rows[0]["width"] == pytest.approx(90)
