"""The page of a nowcast: which side of its maps is the north."""

from dataclasses import replace

import numpy as np
import pytest

from metaprior.solar.maps.nowcast.moments import Moments
from metaprior.solar.maps.nowcast.nowcasting import Nowcast, nowcast_archive
from metaprior.solar.maps.report.nowcast_page import directions, example_of
from tests.solar.maps.nowcast.small import moments, nowcaster


@pytest.fixture(scope="module")
def found() -> Nowcast:
    return nowcast_archive(moments().frames, forecaster=nowcaster(), checked=1)


def test_places_of_every_pixel_tell_the_north(found: Nowcast) -> None:
    frames = found.moments.frames
    latitude, longitude = np.meshgrid(frames.latitude, frames.longitude, indexing="ij")
    curved = frames.assign_coords(latitude=(("y", "x"), latitude + 0.01), longitude=(("y", "x"), longitude))
    shown = example_of(replace(found, moments=Moments(curved)), found.window, found.issued, "The forecast")
    assert shown.latitude is not None
    assert (np.diff(shown.latitude) > 0).all()


def test_axes_of_a_projection_tell_the_north_and_counted_rows_do_not(found: Nowcast) -> None:
    plain = found.moments.frames.drop_vars(("latitude", "longitude"))
    rows = np.arange(plain.shape[1])
    north, east = directions(Moments(plain.assign_coords(y=("y", 1e3 * rows, {"units": "m"}))))
    assert north is not None
    assert east is None
    assert directions(Moments(plain.assign_coords(y=rows))) == (None, None)
