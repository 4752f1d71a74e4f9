import numpy as np
import pytest
import torch

from metaprior.forecasts import GaussianForecast
from metaprior.solar import sun
from metaprior.solar.maps.baselines import persistence, smart_persistence
from metaprior.solar.maps.comparison import PERSISTENCE, SMART_PERSISTENCE, Context, context_of
from metaprior.solar.maps.units import ClearSkyIndex, Units, has_coordinates
from tests.solar.maps.tiny_archive import HALF_HOUR, LATITUDE, LONGITUDE, archive, dataset


def context(*, coordinates: bool = True, units: Units | None = None) -> tuple[Context, np.ndarray]:
    """Of the first task's query windows, and the values that were read for it by hand."""
    source = dataset(archive(3, coordinates=coordinates), units=units)
    windows = source.windows(0).query
    values = source.frames.values
    blocks = [values[w.start : w.start + 4, w.y : w.y + 6, w.x : w.x + 6] for w in windows]
    return context_of(source.reader, windows), np.stack(blocks)


def test_frames_are_in_their_own_units_and_issued_with_the_last_input() -> None:
    found, blocks = context()
    np.testing.assert_array_equal(found.inputs, blocks[:, :2])
    np.testing.assert_array_equal(found.targets, blocks[:, 2:])
    starts = np.array([window.start for window in found.windows])
    np.testing.assert_array_equal(found.issued, archive(3)["time"].values[starts] + HALF_HOUR)


@pytest.mark.parametrize("units", [None, ClearSkyIndex()])
def test_decoded_targets_are_the_frames(units: Units | None) -> None:
    source = dataset(archive(3), units=units)
    found, targets = context_of(source.reader, source.windows(0).query), source[0].query.y
    forecast = GaussianForecast(targets.expand(2, *targets.shape), torch.full((1, 1, 1, 1, 1), 0.5))
    decoded = found.decoded(forecast)
    torch.testing.assert_close(decoded.mean, found.targets, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(decoded.aleatoric, (0.5 * found.scale).expand_as(found.targets))


def test_references_are_persistence_and_where_the_sun_is_known_smart_persistence() -> None:
    found, blocks = context()
    assert set(found.references) == {PERSISTENCE, SMART_PERSISTENCE}
    values = torch.from_numpy(blocks)
    assert torch.equal(found.references[PERSISTENCE], persistence(values[:, :2], 2))
    issued, leads = found.issued, found.issued[:, None] + np.arange(1, 3) * HALF_HOUR
    for number, window in enumerate(found.windows):
        place = LATITUDE[window.y : window.y + 6], LONGITUDE[window.x : window.x + 6]
        now = torch.tensor(sun.clear_sky(issued[number : number + 1], *place)).float()
        then = torch.tensor(sun.clear_sky(leads[number], *place)).float()[None]
        expected = smart_persistence(values[number : number + 1, :2], now, then)[0]
        torch.testing.assert_close(found.references[SMART_PERSISTENCE][number], expected)


def test_persistence_of_the_clear_sky_index_is_smart_persistence_in_watts() -> None:
    source = dataset(archive(3), units=ClearSkyIndex())
    found, x = context_of(source.reader, source.windows(0).query), source[0].query.x
    held = found.loc + found.scale * x[:, 1:2]  # channel 1 is the last of two input frames
    torch.testing.assert_close(held, found.references[SMART_PERSISTENCE], rtol=1e-5, atol=1e-3)


def test_daylight_has_a_value_for_every_target_pixel() -> None:
    found, blocks = context(coordinates=False)
    np.testing.assert_array_equal(found.daylight, blocks[:, 2:] > sun.DARK_SHARE * 1100)
    by_sun, _ = context()
    assert by_sun.daylight.shape == by_sun.targets.shape
    assert bool(by_sun.daylight.all()), "windows are in daylight, whatever the values"


def test_without_coordinates_there_is_persistence_alone() -> None:
    found, _ = context(coordinates=False)
    assert set(found.references) == {PERSISTENCE}
    assert has_coordinates(archive(1))
    assert not has_coordinates(archive(1, coordinates=False))
