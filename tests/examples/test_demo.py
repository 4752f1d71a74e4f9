from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from benchmarks.solar.plain_network import Tuning
from examples.demo import Settings, run
from examples.demo.program import table
from examples.demo.world import World, simulated_world
from metaprior.methods.meta_learner import MetaLearner
from metaprior.solar.maps.forecast_file import read_forecast
from metaprior.solar.scores.lead_scores import LeadTimeScores

TINY = Settings(
    days=8,
    size=16,
    west=8,
    patch=8,
    width=2,
    levels=1,
    seconds=0.5,
    samples=2,
    shots=(1, 2),
    queries=2,
    tunings=(Tuning(1, 1e-5),),
    validation_tasks=1,
    test_tasks=2,
    examples=1,
)
METHODS = (
    "adapted prior",
    "prior, not adapted",
    "fine-tuned network",
    "network, not fine-tuned",
    "smart persistence",
    "persistence",
)


class Demo(NamedTuple):
    out: Path
    said: str


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    out = tmp_path_factory.mktemp("demo") / "new"
    said: list[str] = []
    run(out, said.append, TINY)
    return Demo(out, "\n".join(said))


@pytest.fixture(scope="module")
def world() -> World:
    return simulated_world(TINY, progress=False)


def test_it_prints_the_scores_and_where_the_report_is(demo: Demo) -> None:
    lines = demo.said.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("method"))
    assert lines[head].split("  ")[0] == "method"
    assert all(name in lines[head] for name in ("rmse", "crps", "coverage_90", "skill", "skill +30", "skill +120"))
    assert tuple(line.split("  ")[0] for line in lines[head + 2 : head + 8]) == METHODS
    assert lines[-1] == str((demo.out / "report.html").resolve())


def test_the_report_tells_the_story(demo: Demo) -> None:
    page = (demo.out / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    assert "simulated irradiance over the west of a map" in page
    assert all(f">{method}<" in page for method in METHODS)
    assert "No learning curve" not in page
    assert "No maps" not in page
    assert "No reliability figure" not in page


def test_the_forecast_is_a_picture_and_a_file(demo: Demo, world: World) -> None:
    assert (demo.out / "forecast.png").read_bytes().startswith(b"\x89PNG")
    windows = world.test.windows(0).query
    with read_forecast(demo.out / "forecast.nc") as forecast:
        assert forecast["mean"].shape == forecast["observed"].shape == (2, 4, 8, 8)
        assert forecast["mean"].attrs["units"] == "W m-2"
        assert set(forecast["forecast_reference_time"].values) == {world.test.reader.issued(one) for one in windows}
        np.testing.assert_array_equal(forecast["longitude"].values, world.test.reader.place(windows[0]).longitude)


def test_the_prior_can_be_loaded_and_adapted(demo: Demo, world: World) -> None:
    learner = MetaLearner.load(demo.out / "prior")
    task = world.test[0]
    assert learner.adapt(task.support).predict(task.query.x, samples=2).mean.shape == (2, 4, 8, 8)


def test_nothing_of_the_test_is_seen_before(world: World) -> None:
    for earlier, later in pairwise((world.pooled, world.validation, world.test)):
        assert earlier.days is not None
        assert later.days is not None
        assert later.days.first - earlier.days.stop >= np.timedelta64(1, "D")
    for seen in (world.pooled, world.validation):
        assert seen.frames["longitude"].max() < world.test.frames["longitude"].min()


def test_the_table_has_all_lead_times_and_the_skill_by_each() -> None:
    scores = LeadTimeScores([30, 60], value_range=1.0)
    targets = torch.zeros(1, 2, 16, 16, dtype=torch.float64)
    forecast = targets + torch.tensor([0.3, 0.4]).double()[:, None, None]
    scores.add(forecast, targets, task="a", references={"smart_persistence": targets + 0.5})
    (row,) = table({"flow": scores})
    assert list(row) == ["method", "rmse", "crps", "coverage_90", "skill", "skill +30", "skill +60"]
    assert row["coverage_90"] is None
    assert row["skill +30"] == pytest.approx(0.4)
    assert row["skill +60"] == pytest.approx(0.2)
    assert row["rmse"] == pytest.approx(np.sqrt(0.125))
