"""Weather as a base forecast: which columns are what, their units, what is learned from support days, and no leaks."""

from dataclasses import replace

import numpy as np
import pytest

from metaprior.solar.sites.backtest import adapted, backtest, baseline
from metaprior.solar.sites.column_names import weather_kind
from metaprior.solar.sites.forecaster import FIRST_TRUST, SiteForecaster
from metaprior.solar.sites.forecasting import UNKNOWN, USELESS, base_notes, forecast_table
from metaprior.solar.sites.plant import BASE, Plant
from metaprior.solar.sites.reading.columns import find_columns
from metaprior.solar.sites.reading.reader import read_power
from metaprior.solar.sites.rows import Hours
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from metaprior.solar.sites.weather import (
    SIGMA,
    TAU,
    learned_base,
    other_weather,
    usable_weather,
    weather_notes,
    weather_source,
    with_base,
)
from tests.solar.sites.tables import long_frame, sunny_power

DAY = 24


@pytest.fixture(scope="module")
def plant() -> Plant:
    """An hourly plant in shares, with the irradiance that it had."""
    fleet = simulate_fleet(1, 16, seed=3, start="2024-06-01")
    hours = fleet.plants[0].share().hourly()
    return replace(hours, future={"ghi": fleet.ghi[0].astype(np.float64)})


KINDS = {
    "irradiance": ("GHI", "poa_global", "shortwave_radiation", "ssrd", "Globalstrahlung", "ghi_forecast", "dswrf"),
    "clouds": ("Cloud Cover", "tcc", "clouds", "total_cloud_cover", "Bewölkung", "cloud", "Bedeckungsgrad"),
    "other": ("AmbientTemp", "RH2M", "Cloud.Ceiling", "dni", "cloud_cover_low", "Außentemperatur", "uv_index"),
    None: (
        *("ssrdc", "ghi_cs", "toa_incident_solar_radiation", "GHI_uncert (%)", "shortwave_radiation_sum", "ghi_lag1"),
        *("poa_irradiance_rear", "Global_active_power", "ghi10", "ghi_observed", "Modultemperatur", "WR_Temperatur"),
        *("inv1_temp", "battery_temperature", "window_open", "terrain_factor", "template_id", "Cloud Type", "hour"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_told_apart_by_whole_words(kind: str | None) -> None:
    assert {name: weather_kind(name) for name in KINDS[kind]} == dict.fromkeys(KINDS[kind], kind)


def test_a_wide_table_has_plants_with_names_like_weather() -> None:
    names = ["time", "Windsor", "Rainford", "Hull", "Globalstrahlung", "ghi10", "temp"]
    assert find_columns(names, names[1:], {}).plants == ["Windsor", "Rainford", "Hull"]


def test_the_column_with_most_values_then_the_best_name_counts(plant: Plant) -> None:
    full, half = plant.future["ghi"], np.where(np.arange(len(plant)) < 200, plant.future["ghi"], np.nan)
    for future, wanted in (
        ({"ghi": full, "poa": full}, ("poa",)),
        ({"ghi": full, "poa": half}, ("ghi",)),
        ({"ghi": full, "ghi_station_north": full}, ("ghi",)),
        ({"ghi": np.full(len(plant), np.nan), "clouds": half}, ("clouds",)),
        ({"ssrd": full.reshape(-1, DAY).cumsum(1).ravel(), "humidity": half}, ("humidity",)),
    ):
        source = weather_source(replace(plant, future=future))
        assert source is not None
        assert source.names == wanted
    assert weather_source(replace(plant, future={BASE: full, "ghi": full})) is None


def test_irradiance_is_a_base_forecast_in_any_unit(plant: Plant) -> None:
    watts = plant.future["ghi"]
    found = [with_base(replace(plant, future={"ghi": watts * factor})).future[BASE] for factor in (1.0, 1e-3, 3600.0)]
    for base in found:
        np.testing.assert_allclose(base, watts / 1000, rtol=1e-12)
    spoilt = np.where(np.arange(len(watts)) == 30, 99999.0, watts)
    base = with_base(replace(plant, future={"ghi": spoilt})).future[BASE]
    assert np.isnan(base[30])
    np.testing.assert_allclose(np.delete(base, 30), np.delete(watts, 30) / 1000, rtol=1e-12)


def test_cloud_cover_dims_the_clear_sky_where_the_place_is_known(plant: Plant) -> None:
    clear = Hours.of(plant).clear[0]
    cover = np.tile([0.0, 0.5, 1.0, np.nan], 96)
    for factor in (1.0, 8.0, 100.0):
        base = with_base(replace(plant, future={"cloud_cover": factor * cover})).future[BASE]
        np.testing.assert_allclose(base, clear[:384] * (1 - 0.75 * cover**3.4), rtol=1e-4, atol=1e-6)
    nowhere = replace(plant, latitude=None, future={"cloud_cover": cover})
    assert with_base(nowhere) is nowhere
    assert other_weather(nowhere) is not None
    own = replace(plant, future={BASE: cover, "ghi": plant.future["ghi"]})
    assert with_base(own) is own


def test_a_learned_base_is_the_posterior_mean_of_the_other_days() -> None:
    rng = np.random.default_rng(0)
    weather, sky = rng.normal(5, 2, (6 * DAY, 2)), np.tile(np.clip(np.sin(np.arange(DAY) / 4), 0, None), 6)
    power = sky * (0.6 + 0.1 * (weather[:, 0] - 5)) + rng.normal(0, 0.02, 6 * DAY)
    begin, end = DAY, 4 * DAY
    found = learned_base(power, sky, weather, begin, end)
    lit = np.flatnonzero(sky > 0.02)
    hours = lit[(lit >= begin) & (lit < end)]
    z = (weather - weather[hours].mean(0)) / weather[hours].std(0)
    inputs = np.c_[np.ones(len(z)), np.clip(z, -3, 3)] * sky[:, None]

    def weights(own: np.ndarray) -> np.ndarray:
        # a flat prior of w0 and noise of variance SIGMA^2, by brute force: rows of the prior are further observations
        rows = np.r_[inputs[own], np.diag([1e-3**0.5, SIGMA / TAU, SIGMA / TAU])]
        return np.linalg.lstsq(rows, np.r_[power[own], 0, 0, 0], rcond=None)[0]

    after = lit[lit >= end]
    np.testing.assert_allclose(found[after], np.clip(inputs[after] @ weights(hours), 0, 1.5), rtol=1e-4, atol=1e-6)
    day = hours[hours // DAY == 2]
    wanted = inputs[day] @ weights(hours[hours // DAY != 2])
    np.testing.assert_allclose(found[day], np.clip(wanted, 0, 1.5), rtol=1e-4, atol=1e-6)
    assert np.isnan(found[:begin]).all()
    changed = power.copy()
    changed[end:], changed[:begin] = 0.9, np.nan
    np.testing.assert_array_equal(learned_base(changed, sky, weather, begin, end), found)


@pytest.mark.parametrize("case", ["one day", "constant", "gaps"])
def test_too_little_weather_teaches_nothing_wrong(case: str) -> None:
    rng = np.random.default_rng(1)
    sky, weather = np.full(8 * DAY, 0.5), rng.normal(size=(8 * DAY, 2))
    power = 0.3 + 0.05 * weather[:, 0]
    if case == "one day":
        assert np.isnan(learned_base(power, sky, weather, 6 * DAY, 7 * DAY)).all()
        return
    weather[:, 1] = 3.0 if case == "constant" else np.where(rng.random(8 * DAY) < 0.8, np.nan, weather[:, 1])
    found = learned_base(power, sky, weather, 0, 7 * DAY)
    assert np.isfinite(found).all()
    assert np.corrcoef(found[7 * DAY :], power[7 * DAY :])[0, 1] > 0.99


def test_readings_at_some_hours_alone_are_enough(forecaster: SiteForecaster, plant: Plant) -> None:
    brightest = np.argsort(plant.power.reshape(-1, DAY).mean(0))[-6:]
    read = np.isin(np.arange(len(plant)) % DAY, brightest)
    humidity = np.where(read, 100 * (1 - plant.power), np.nan)
    sparse = replace(plant, power=np.where(read, plant.power, np.nan), future={"humidity": humidity})
    one = forecaster.adapt(sparse)[plant.name]
    known = replace(one, weather="always").known_at(10 * DAY)
    assert np.isfinite(known.hours.base[0, :384][read]).mean() > 0.9
    assert known.trust > 0.5


def test_trust_follows_the_skill_on_the_support_days(forecaster: SiteForecaster, plant: Plant) -> None:
    rng = np.random.default_rng(2)
    end, queries = 14 * DAY, (np.full(6, 14 * DAY + 6), np.arange(1, 7))
    noise = np.where(plant.power > 0, rng.random(len(plant)), 0.0)
    ended = np.where(np.arange(len(plant)) < end, plant.power, np.nan)
    perfect, useless, past, bare = (
        forecaster.adapt(replace(plant, future=future))[plant.name]
        for future in ({BASE: plant.power}, {BASE: noise}, {BASE: ended}, {})
    )
    assert [one.known_at(end).trust for one in (perfect, useless, bare)] == [1.0, 0.0, 0.0]
    assert (perfect.known_at(0).trust, useless.known_at(DAY).trust) == (FIRST_TRUST, FIRST_TRUST)
    wanted, found, other, without = (
        one.forecast(*queries, (0.05, 0.95), end=end) for one in (bare, useless, perfect, past)
    )
    for same in (found, without):  # one without values ahead changes nothing either
        np.testing.assert_array_equal(same.mean, wanted.mean)
        np.testing.assert_array_equal(same.quantiles, wanted.quantiles)
    assert (other.mean != wanted.mean).any()
    issue = perfect.plant.start + np.timedelta64(end, "h")
    told = "the base forecast counts for 100%, by its skill on the last days"
    assert base_notes({"a": useless, "b": perfect}, issue) == [f"a: {USELESS}", f"b: {told}"]
    ahead = forecaster.adapt(replace(plant, future={BASE: np.where(np.isnan(ended), plant.power, np.nan)}))
    assert ahead[plant.name].known_at(end).trust == 0.0
    assert base_notes(ahead.plants, issue) == [UNKNOWN]


@pytest.mark.parametrize("factor", [1e-3, 0.1, 30.0, 1e3])
def test_a_base_forecast_off_scale_is_scaled_by_the_support_days(
    forecaster: SiteForecaster, plant: Plant, factor: float
) -> None:
    end, queries = 14 * DAY, (np.full(6, 14 * DAY + 6), np.arange(1, 7))
    known = plant.power * np.random.default_rng(0).uniform(0.9, 1.1, len(plant))
    scale = float(np.dot(known[:end], plant.power[:end]) / np.dot(known[:end], known[:end]))
    own, other = (
        forecaster.adapt(replace(plant, future={BASE: known * times}))[plant.name].forecast(*queries, (0.5,), end=end)
        for times in (scale, factor)
    )
    np.testing.assert_allclose(own.mean, other.mean, rtol=1e-3, atol=1e-5)


def test_weather_counts_column_by_column_if_it_goes_on_after_the_power(plant: Plant) -> None:
    shorter = replace(plant, power=plant.power[:-30], doubt=plant.doubt[:-30])
    ghi = plant.future["ghi"]
    measured = np.where(np.arange(len(ghi)) < len(shorter) + 2, ghi, np.nan)
    for given, use, kept, told in (
        (plant, "auto", set(), "ends with the power"),
        (plant, "always", {"ghi"}, "is used"),
        (shorter, "auto", {"ghi"}, "is used"),
        (shorter, "never", set(), None),
        (replace(plant, future={}), "auto", set(), None),
        (replace(shorter, future={"poa": measured, "ghi": ghi, BASE: ghi}), "auto", {"ghi", BASE}, "ends with"),
        (replace(shorter, future={"poa": measured, "temp": ghi}), "auto", {"temp"}, "'poa'"),
        (replace(shorter, future={"poa": ghi, "ghi": ghi, "gti": ghi}), "never", set(), None),
    ):
        assert set(usable_weather(given, use).future) == kept  # type: ignore[arg-type]
        notes = weather_notes(given, use)  # type: ignore[arg-type]
        assert notes == [] if told is None else any(told in note for note in notes)


def test_irradiance_that_accumulates_is_named(plant: Plant) -> None:
    summed = plant.future["ghi"].reshape(-1, DAY).cumsum(1).ravel()
    notes = weather_notes(replace(plant, future={"ssrd": summed}), "always")
    assert notes == ["'ssrd' accumulates over the day and is not used. Try its differences"]


def test_a_forecast_of_the_past_reads_no_measured_weather(forecaster: SiteForecaster, plant: Plant) -> None:
    bare = replace(plant, future={})
    at = plant.start + np.timedelta64(10 * DAY + 8, "h")
    own, other = (forecaster.adapt(one).predict(at, hours=6) for one in (plant, bare))
    np.testing.assert_array_equal(own["mean"], other["mean"])


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("ghi",), "'ghi' is used as a base forecast"),
        (("clouds", "wind"), "'clouds' times the clear sky is used as a base forecast"),
        (("wind",), "a base forecast is learned from 'wind', from 2 days of power on"),
    ],
)
def test_the_user_is_told_how_weather_is_used(plant: Plant, names: tuple[str, ...], told: str) -> None:
    assert str(weather_source(replace(plant, future=dict.fromkeys(names, plant.power)))) == told


def test_a_backtest_scales_irradiance_by_hand_too(forecaster: SiteForecaster, plant: Plant) -> None:
    methods = {"prior": adapted(forecaster), "scaled": baseline("scaled base")}
    result = backtest(plant, forecaster, days=(3,), weeks=1, methods=methods, weather="always")
    assert result.methods == ["prior", "scaled"]
    assert any("too good" in note for note in result.notes)
    without = backtest(plant, forecaster, days=(3,), weeks=1, methods=methods)
    assert without.methods == ["prior"]


def test_a_day_ahead_needs_weather_for_it(forecaster: SiteForecaster) -> None:
    power = sunny_power(days=12, step=3600)
    ghi = np.where(np.arange(len(power)) < 11.5 * DAY, 10 * power, 700.0)
    power[10 * DAY :] = np.nan
    frame = long_frame(power, step=3600, ghi=ghi, latitude=48.0, longitude=9.0)
    found = forecast_table(forecaster, read_power(frame), hours=24)
    assert len(found.frame) == 24
    assert "'ghi' is used as a base forecast" in found.notes
    frame["ghi"] = frame["ghi"].where(np.isfinite(power))
    with pytest.raises(ValueError, match="hours must be at most 6 where there is no base forecast"):
        forecast_table(forecaster, read_power(frame), hours=24)
