"""Sun and light on the panels, against pvlib called for one plant at a time."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pvlib import atmosphere, clearsky, iam, irradiance, solarposition, tracking

from metaprior.solar.sites.simulator.light import Daylight, daylight_of, light_on_panels, sun_of
from metaprior.solar.sites.simulator.parameters import PlantParameters, draw_parameters

START = np.datetime64("2023-05-10T00:00:00")
STEP, COUNT = 900, 96
TIMES = pd.DatetimeIndex(START + (np.arange(COUNT) + 0.5) * np.timedelta64(STEP, "s"), tz="UTC")
PLACES = [(48.0, 11.0), (-33.0, 151.0), (5.0, -75.0), (65.0, 25.0)]


def plain(latitude: float, longitude: float, **changes: object) -> PlantParameters:
    """Return a plant without anything that shades it."""
    drawn = draw_parameters(0, ["maritime"], np.random.default_rng(0), (latitude, longitude))
    unshaded = {"horizon": (0.0,) * 12, "tree_height": 0.0, "ground_cover": 0.0, "kind": "ground"}
    return replace(drawn, **(unshaded | {"share": (1.0,), "tilt": (30.0,), "azimuth": (170.0,)} | changes))


def daylight(*plants: PlantParameters) -> Daylight:
    start = np.repeat(START, len(plants))
    sun = sun_of(start, STEP, COUNT, [p.latitude for p in plants], [p.longitude for p in plants])
    turbidity = np.full((len(plants), COUNT), 3.0, np.float32)
    return daylight_of(sun, turbidity, np.array([p.climate.altitude for p in plants]))


def light(plant: PlantParameters) -> tuple[Daylight, np.ndarray]:
    day = daylight(plant)
    return day, light_on_panels([plant], day, day.clear, np.ones_like(day.clear))[1]


@pytest.mark.parametrize(("latitude", "longitude"), PLACES)
def test_the_sun_is_where_pvlib_sees_it(latitude: float, longitude: float) -> None:
    sun = sun_of(np.array([START]), STEP, COUNT, [latitude], [longitude])
    seen = solarposition.get_solarposition(TIMES, latitude, longitude)
    np.testing.assert_allclose(sun.elevation[0], seen["elevation"], atol=0.01)
    up = np.asarray(seen["elevation"] > 5)
    azimuth = np.degrees(np.arctan2(sun.east[0], sun.north[0])) % 360
    np.testing.assert_allclose(azimuth[up], seen["azimuth"][up], atol=0.1)


def test_plants_with_different_starts_see_their_own_sun() -> None:
    starts = np.array([START, START + np.timedelta64(3, "D")])
    both = sun_of(starts, STEP, COUNT, [48.0, 48.0], [11.0, 11.0]).elevation
    alone = sun_of(starts[1:], STEP, COUNT, [48.0], [11.0]).elevation
    np.testing.assert_array_equal(both[1], alone[0])


@pytest.mark.parametrize("kind", ["ground", "tracking"])
@pytest.mark.parametrize(("latitude", "longitude"), PLACES)
def test_light_on_unshaded_panels_is_that_of_pvlib(kind: str, latitude: float, longitude: float) -> None:
    plant = plain(latitude, longitude, kind=kind, ground_cover=0.4 if kind == "tracking" else 0.0)
    day = daylight(plant)
    effective, total = light_on_panels([plant], day, day.clear, np.ones_like(day.clear))
    times = TIMES[day.lit[0]]
    seen = solarposition.get_solarposition(times, latitude, longitude)
    zenith, azimuth = seen["zenith"].to_numpy(), seen["azimuth"].to_numpy()
    extra = irradiance.get_extra_radiation(times.day_of_year.to_numpy())
    airmass = atmosphere.get_absolute_airmass(
        atmosphere.get_relative_airmass(zenith, "kastenyoung1989"), atmosphere.alt2pres(plant.climate.altitude)
    )
    clear = clearsky.ineichen(zenith, airmass, 3.0, plant.climate.altitude, extra)["ghi"]
    parts = irradiance.erbs_driesse(clear, zenith, dni_extra=extra)
    surface = {"surface_tilt": plant.tilt[0], "surface_azimuth": plant.azimuth[0]}
    if kind == "tracking":
        surface = tracking.singleaxis(zenith, azimuth, 0, plant.azimuth[0], plant.max_angle, gcr=0.4)
    tilt, facing = surface["surface_tilt"], surface["surface_azimuth"]
    expected = irradiance.get_total_irradiance(
        tilt,
        facing,
        zenith,
        azimuth,
        parts["dni"],
        clear,
        parts["dhi"],
        dni_extra=extra,
        model="haydavies",
        albedo=plant.climate.albedo,
    )
    high = zenith < 85
    np.testing.assert_allclose(day.clear[high], clear[high], rtol=2e-3)
    np.testing.assert_allclose(total[high], expected["poa_global"][high], rtol=1e-2, atol=2)
    angle = irradiance.aoi(tilt, facing, zenith, azimuth)
    inside = expected["poa_direct"] * iam.ashrae(angle) + 0.95 * expected["poa_diffuse"]
    np.testing.assert_allclose(effective[high], inside[high], rtol=1e-2, atol=3)


def test_strings_add_up_by_their_shares() -> None:
    east, west = plain(48, 11, azimuth=(90.0,)), plain(48, 11, azimuth=(270.0,))
    both = plain(48, 11, share=(0.3, 0.7), tilt=(30.0, 30.0), azimuth=(90.0, 270.0))
    np.testing.assert_allclose(light(both)[1], 0.3 * light(east)[1] + 0.7 * light(west)[1], rtol=1e-4)


def test_plants_do_not_change_each_other() -> None:
    plants = [
        plain(48, 11),
        plain(-20, 40, kind="tracking"),
        plain(10, 0, share=(0.5, 0.5), tilt=(5, 9), azimuth=(0, 90)),
    ]
    day = daylight(*plants)
    together = light_on_panels(plants, day, day.clear, np.ones_like(day.clear))[1]
    np.testing.assert_array_equal(together, np.concatenate([light(plant)[1] for plant in plants]))


def test_a_hill_hides_the_sun_and_little_else() -> None:
    hill = plain(48, 11, azimuth=(90.0,), horizon=tuple(20.0 if 2 <= i <= 4 else 0.0 for i in range(12)))
    day, shaded = light(hill)
    sunny = light(plain(48, 11, azimuth=(90.0,)))[1]
    behind = (day.azimuth > 70) & (day.azimuth < 110) & (day.zenith > 75) & (day.zenith < 85)
    west = day.azimuth > 190
    assert behind.any()
    assert (shaded[behind] < 0.75 * sunny[behind]).all()
    np.testing.assert_allclose(shaded[west], sunny[west], rtol=0.05)


def test_trees_shade_more_in_leaf() -> None:
    tree = plain(48, 11, tree_azimuth=180.0, tree_width=40.0, tree_height=70.0, tree_opacity=0.9, tree_foliage=0.8)
    day = daylight(tree)
    bare, leafy = (light_on_panels([tree], day, day.clear, np.full_like(day.clear, leaves))[1] for leaves in (0.0, 1.0))
    noon = np.abs(day.azimuth - 180) < 15
    assert (leafy[noon] < 0.6 * bare[noon]).all()
    np.testing.assert_array_equal(leafy[day.azimuth < 150], bare[day.azimuth < 150])


def test_rows_shade_each_other_at_low_sun() -> None:
    """With the sun at the profile angle h, the lit share of the beam is sin h / (cover sin(h + tilt))."""
    rows, one_row = (plain(0, 0, azimuth=(90.0,), tilt=(40.0,), ground_cover=cover) for cover in (0.6, 0.0))
    day, shaded = light(rows)
    free = light(one_row)[1]
    height = np.arctan2(day.up, day.east)  # in the plane across the rows, which face east
    lit = np.minimum(np.sin(height) / (0.6 * np.sin(height + np.radians(40))), 1)
    morning = (day.azimuth < 110) & (day.zenith < 86)
    low = morning & (lit < 0.9)
    assert low.any()
    assert (shaded[low] < free[low]).all()
    np.testing.assert_allclose(shaded[morning & (lit == 1)], free[morning & (lit == 1)], rtol=1e-5)
    parts = irradiance.erbs_driesse(day.clear, day.zenith, dni_extra=day.extraterrestrial)
    beam = parts["dni"] * (day.east * np.sin(np.radians(40)) + day.up * np.cos(np.radians(40)))
    np.testing.assert_allclose((free - shaded)[low], (beam * (1 - lit))[low], rtol=1e-2)
