"""The forecaster of plants: units, limits, night, updates, and times that are refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from metaprior.solar.sites.forecaster import LEVELS, UNKNOWN_LIMIT, SiteForecaster, quantile_name
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.reading.reader import read_power
from metaprior.solar.sites.rows import Hours
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from metaprior.solar.sites.simulator.writing import power_table


@pytest.fixture(scope="module")
def plants() -> list[Plant]:
    return simulate_fleet(3, 10, seed=1, start="2024-06-01").plants


def test_a_forecast_is_a_tidy_frame_in_the_plants_unit(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    frame = forecaster.adapt(plants).predict(hours=6)
    quantile_names = [f"q{100 * x:02.0f}" for x in LEVELS]
    expected = ["site", "issued", "time", "lead_hours", "mean", *quantile_names, "unit", "stamp"]
    assert list(frame.columns) == expected
    assert set(frame["unit"]) == {"kW"}
    assert len(frame) == 18
    first = frame[frame.site == plants[0].name]
    assert (first.issued == pd.Timestamp("2024-06-11", tz="UTC")).all()
    assert first.time.iloc[0] == first.issued.iloc[0]
    quantiles = frame[quantile_names].to_numpy()
    assert (np.diff(quantiles, axis=1) >= 0).all()
    assert (quantiles >= 0).all()
    for plant in plants:
        most = max(plant.capacity or 0.0, np.nanmax(plant.power))
        assert (frame[frame.site == plant.name][quantile_names] <= most * (1 + 1e-6)).all(axis=None)


def test_units_change_nothing_but_the_numbers(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    plant = plants[0]
    assert plant.capacity is not None
    watts = replace(plant, unit="W", power=1000 * plant.power, capacity=1000 * plant.capacity)
    own, other = (forecaster.adapt(one).predict(hours=3)["mean"] for one in (plant, watts))
    np.testing.assert_allclose(1000 * own, other, rtol=1e-5)


def test_night_is_zero_with_a_place_and_without(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    for plant in plants:
        for known in (plant, replace(plant, latitude=None, longitude=None)):
            frame = forecaster.adapt(known)[plant.name].frame(240, 24, LEVELS)
            dark = plant.hourly().power.reshape(10, 24).max(0)[frame.time.dt.hour] <= 0
            dark &= Hours.of(plant, hours_ahead=24).clear[0, 240:264] < 0.02
            assert dark.any()
            assert not frame.loc[dark, ["mean", "q95"]].to_numpy().any()
            assert frame["mean"].max() > 0


def test_an_update_is_as_if_the_record_had_been_longer(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    plant, noon = plants[1], np.datetime64("2024-06-08T12:00")
    earlier = forecaster.adapt(plant.between(None, noon))
    updated = earlier.update(plant.between(noon, None))
    pd.testing.assert_frame_equal(updated.predict(), forecaster.adapt(plant).predict())
    at_noon = forecaster.adapt(plant).predict(at=noon)
    pd.testing.assert_frame_equal(at_noon, earlier.predict())


def test_capacity_alone_is_enough(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    new = plants[0].between(np.datetime64("2030-01-01"), None)
    assert len(new) == 0
    frame = forecaster.adapt(new).predict(hours=6)
    assert len(frame) == 6
    assert np.isfinite(frame["mean"]).all()


def test_a_time_outside_of_the_record_is_refused(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    adapted = forecaster.adapt(plants[0])
    with pytest.raises(ValueError, match=r"at must lie within the record of plant_0, .* Try update"):
        adapted.predict(at="2025-01-01")
    local = adapted.predict(at=pd.Timestamp("2024-06-05T14:00", tz="Asia/Seoul"))
    assert local.issued.iloc[0] == pd.Timestamp("2024-06-05T05:00", tz="UTC")


def test_saved_priors_are_loaded(forecaster: SiteForecaster, plants: list[Plant], tmp_path: object) -> None:
    forecaster.save(str(tmp_path))
    again = SiteForecaster.pretrained(str(tmp_path)).adapt(plants[0]).predict()
    pd.testing.assert_frame_equal(again, forecaster.adapt(plants[0]).predict())


def test_a_time_after_the_record_is_a_gap(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    late = forecaster.adapt(plants[0]).predict(at="2024-06-12T09:00")
    gap = replace(plants[0], power=np.pad(plants[0].power, (0, 33), constant_values=np.nan), doubt=np.zeros(273, "u1"))
    pd.testing.assert_frame_equal(late, forecaster.adapt(gap).predict())


def test_tables_paths_and_frames_are_read(forecaster: SiteForecaster, plants: list[Plant], tmp_path: Path) -> None:
    frame = power_table(plants)
    frame.to_csv(tmp_path / "power.csv", index=False)
    table = read_power(frame)
    predicted = [forecaster.adapt(one).predict() for one in (frame, table, tmp_path / "power.csv", table.plants)]
    for other in predicted[1:]:
        pd.testing.assert_frame_equal(predicted[0], other)
    assert forecaster.adapt(table).findings is table.findings


def test_quantiles_are_named_by_their_percent() -> None:
    assert [quantile_name(level) for level in (0.025, 0.05, 0.07, 0.5, 0.975)] == ["q2.5", "q05", "q07", "q50", "q97.5"]


def test_an_update_with_another_clock_or_another_plant_is_refused(
    forecaster: SiteForecaster, plants: list[Plant]
) -> None:
    adapted = forecaster.adapt(plants[0])
    with pytest.raises(ValueError, match=r"has no zone, unlike the present one.*zone="):
        adapted.update(replace(plants[0], zone_known=False))
    with pytest.raises(ValueError, match=r"later power must be of plant_0, got plant_1"):
        adapted.update(plants[1])
    assert repr(adapted) == "AdaptedPlants(1 plants: plant_0)"
    assert len(repr(adapted[plants[0].name])) < 200


def test_an_estimated_capacity_of_a_short_record_is_no_limit(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    for estimated, limit in ((True, UNKNOWN_LIMIT), (False, 1.0)):
        plant = replace(plants[0], capacity_estimated=estimated, capacity=2 * np.nanmax(plants[0].power))
        assert forecaster.adapt(plant)[plant.name].limit(240) == limit


def test_times_are_begins_or_ends_as_those_of_the_table(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    frame = power_table(plants[:1])
    end = frame.assign(time=frame["time"] + pd.Timedelta("1h"))
    own = forecaster.adapt(read_power(frame, stamps="begin")).predict()
    other = forecaster.adapt(read_power(end, stamps="end")).predict()
    assert (set(own["stamp"]), set(other["stamp"])) == ({"begin"}, {"end"})
    assert (other["time"] - own["time"] == pd.Timedelta("1h")).all()
    assert other["time"].iloc[0] == end["time"].iloc[-1] + pd.Timedelta("1h")  # goes on where the table ends
    np.testing.assert_array_equal(own["mean"], other["mean"])
    assert (own["issued"] == other["issued"]).all()


def test_times_have_no_zone_where_that_of_the_stamps_is_not_known(
    forecaster: SiteForecaster, plants: list[Plant]
) -> None:
    naive = replace(plants[0], zone_known=False)
    adapted = forecaster.adapt([naive, plants[1]])
    assert adapted[naive.name].predict()["time"].dt.tz is None
    assert adapted.predict()["issued"].dt.tz is None
    assert str(adapted[plants[1].name].predict()["time"].dt.tz) == "UTC"
    with pytest.raises(ValueError, match="at must have no zone"):
        adapted.predict(at="2024-06-05T14:00Z")


def test_an_issue_between_full_hours_reads_nothing_after_it(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    adapted = forecaster.adapt(plants[0])
    pd.testing.assert_frame_equal(adapted.predict(at="2024-06-08T12:40"), adapted.predict(at="2024-06-08T12:00"))


def test_more_than_six_hours_need_a_base_forecast_and_its_skill(
    forecaster: SiteForecaster, plants: list[Plant]
) -> None:
    adapted = forecaster.adapt(plants)
    for refused in (adapted, adapted[plants[0].name]):
        with pytest.raises(ValueError, match=r"hours must be at most 6 .* no base forecast .*plant_0 \(0 h\)"):
            refused.predict(hours=7)
    hours = len(plants[0]) + 48
    noise = np.where(np.arange(hours) % 24 < 12, np.random.default_rng(0).random(hours), 0.0)
    useless = forecaster.adapt(replace(plants[0], future={"base": noise}))
    with pytest.warns(UserWarning, match=r"hours beyond the next 6 know nothing of the weather, .* \(plant_0\)"):
        assert len(useless.predict(hours=24)) == 24


def test_a_record_that_is_mostly_masked_warns(forecaster: SiteForecaster, plants: list[Plant]) -> None:
    table = read_power(power_table(plants[:1]))
    doubt = np.where(np.arange(len(table.plants[0])) < 100, 4, 0).astype(np.uint8)
    masked = replace(table, plants=[replace(table.plants[0], doubt=doubt)])
    with pytest.warns(UserWarning, match="42% of the power of plant_0 is masked as doubtful, most of it as 'spike'"):
        forecaster.adapt(masked)
    forecaster.adapt(table)
