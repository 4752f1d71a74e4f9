from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from benchmarks.adaptation import picture
from benchmarks.adaptation.ways import CLOSED_FORM
from examples import worlds
from examples.demo import PlantSettings
from examples.pictures import fitted_band, futures_of_simulator, new_plant, simulated_futures


def test_the_pictures_of_the_documentation_can_be_drawn(tmp_path: Path) -> None:
    fitted_band(tmp_path / "band.png", observations=32, epochs=1)
    futures_of_simulator(tmp_path / "futures.png", size=8, continuations=2)
    picture.of_way(tmp_path / "way.png", CLOSED_FORM, seconds=0.1, validation_tasks=2)
    few = PlantSettings(plants=2, record_days=6, weeks=1, days=(0, 1), told_days=1)
    new_plant(tmp_path / "plant.png", settings=few, days=(0, 1))
    for name in ("band", "futures", "way", "plant"):
        assert imread(tmp_path / f"{name}.png").std() > 0.05


def test_the_pictures_of_worlds_can_be_drawn(tmp_path: Path) -> None:
    worlds.gallery(tmp_path / "gallery.png", range(2), columns=2)
    worlds.parameters(tmp_path / "weather.png", worlds.weather_rows()[-1:], columns=1)
    worlds.parameters(tmp_path / "sensor.png", worlds.sensor_rows()[-2:])
    for name in ("gallery", "weather", "sensor"):
        assert imread(tmp_path / f"{name}.png").std() > 0.05


@pytest.mark.parametrize("shape", [(1, 3, 6, 6), (4, 2, 6, 6)])
def test_futures_of_another_shape_are_invalid(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"continued must have shape \(2 or more, 3, 6, 6\), as observed has, got"):
        simulated_futures(
            Path("unused.png"), observed=np.ones((3, 6, 6)), continued=np.ones(shape), minutes=30, units="K", title="t"
        )
