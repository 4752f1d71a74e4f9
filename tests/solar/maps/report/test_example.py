import math
from typing import Any

import numpy as np
import pytest
import torch

from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.comparison import SMART_PERSISTENCE, context_of
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.report.example import example_forecast
from metaprior.solar.maps.units import ClearSkyIndex
from metaprior.solar.simulator import simulate
from metaprior.tasks.task import Task
from tests.solar.maps.report.invented import example


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": np.zeros((4, 4))}, r"example 'x': target must have shape .*, got \(4, 4\)"),
        ({"std": np.zeros((4, 32, 41))}, r"std must have shape \(4, 32, 40\) .*, got \(4, 32, 41\)"),
        ({"samples": np.zeros((4, 32, 40))}, r"samples must have shape \(any number, 4, 32, 40\)"),
        ({"latitude": np.zeros(3)}, r"latitude must have shape \(32\) .*, got \(3,\)"),
        ({"std": np.full((4, 32, 40), -0.5)}, "std must not be negative, got -0.5"),
        ({"mean": np.full((4, 32, 40), np.inf)}, "mean must be finite, got infinite values"),
        ({"issued": "yesterday"}, "issued must be an ISO time such as 2026-02-11T03:00, got 'yesterday'"),
        ({"cadence_minutes": 0}, "cadence_minutes must be at least 1, got 0"),
    ],
)  # fmt: skip
def test_examples_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        example("x", **given)


def test_times_are_told_in_utc() -> None:
    assert example(issued="2026-02-11T23:45+01:00").time_text(90) == "2026-02-12 00:15 UTC"
    assert example(issued="2026-02-11T03:00:00.000000000").time_text(0) == "2026-02-11 03:00 UTC"


def test_north_is_on_top() -> None:
    maps = example(leads=1, height=3, width=2)
    south_first = example(
        leads=1, height=3, width=2, latitude=np.array([1.0, 2.0, 3.0]), longitude=np.array([9.0, 8.0])
    )
    turned = south_first.north_up()
    assert turned.target == pytest.approx(maps.target[:, ::-1, ::-1])
    assert turned.latitude == pytest.approx([3, 2, 1])
    assert turned.longitude == pytest.approx([8, 9])
    assert maps.north_up().target == pytest.approx(maps.target)


@pytest.fixture(scope="module")
def dataset() -> MetaSolarPredictionDataset:
    frames = simulate(days=3, size=12, progress=False)
    return MetaSolarPredictionDataset(frames, k_shot=3, k_query=2, patch=8, period_days=2, units=ClearSkyIndex())


def held(task: Task, number: int) -> GaussianForecast:
    """The last frame in the network's numbers, plus or minus 0.3 and 0.4: std 0.5."""
    last = task.query.x[:, 3:4].expand_as(task.query.y)
    apart = 0.3 / math.sqrt(2)
    return GaussianForecast(torch.stack([last - apart, last + apart]), torch.full((2, 1, 1, 1, 1), 0.4))


def test_maps_are_in_the_frames_own_units(dataset: MetaSolarPredictionDataset) -> None:
    maps, windows = example_forecast(dataset, 1, held, window=1), dataset.windows(1).query
    context = context_of(dataset.reader, windows)
    block = dataset.reader.block(windows[1])
    torch.testing.assert_close(torch.from_numpy(maps.mean), context.references[SMART_PERSISTENCE][1])
    np.testing.assert_allclose(maps.std, (0.5 * context.scale[1]).expand(4, 8, 8).numpy(), rtol=1e-5)
    np.testing.assert_array_equal(maps.target, block[4:].values)
    assert maps.inputs is not None
    np.testing.assert_array_equal(maps.inputs, block[:4].values)
    np.testing.assert_array_equal(maps.latitude, block["latitude"].values)
    np.testing.assert_array_equal(maps.longitude, block["longitude"].values)
    assert np.datetime64(maps.issued) == block["time"].values[3]
    assert (maps.units, maps.cadence_minutes) == ("W/m²", 30)
    assert maps.name == f"{block['latitude'].mean():.1f}° N, {block['longitude'].mean():.1f}° E"


def test_samples_of_maps_repeat_the_errors_of_the_support_windows(dataset: MetaSolarPredictionDataset) -> None:
    maps, support = example_forecast(dataset, 1, held), dataset[1].support
    errors = (support.y - support.x[:, 3:4]) / 0.5
    assert maps.samples is not None
    np.testing.assert_allclose(maps.samples, maps.mean + maps.std * errors.numpy(), rtol=1e-4, atol=1e-3)


def test_places_without_coordinates_are_named_by_their_task() -> None:
    frames = simulate(days=3, size=12, progress=False).drop_vars(("latitude", "longitude"))
    plain = MetaSolarPredictionDataset(frames, k_shot=2, k_query=1, patch=8, by="place")
    maps = example_forecast(plain, 0, held)
    assert maps.name.startswith("task 0 at row")
    assert maps.latitude is None
