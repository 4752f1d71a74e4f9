"""Forecasts of the power of plants: a prior over plants, adapted to the days that a plant has recorded."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray

from metaprior.adaptation.context.settings import Context
from metaprior.checks import check_integer
from metaprior.forecasts import GaussianForecast
from metaprior.methods import MetaLearner
from metaprior.posterior import Predictive
from metaprior.runs.folder import RunFolder
from metaprior.runs.learned import learned
from metaprior.solar.sites.checks import count_doubts
from metaprior.solar.sites.findings import Findings
from metaprior.solar.sites.limits import PowerForecast, mixed, within_limits
from metaprior.solar.sites.network import SiteNetwork, base_quality
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.reading.reader import LONG_DAYS, plants_of
from metaprior.solar.sites.rows import Hours
from metaprior.solar.sites.weather import Use, usable_weather

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Quantiles of a forecast unless others are asked for."""
MOST_DAYS = 30
"""Days before the forecast that are read: more did not help on real plants."""
WITHOUT_BASE, MOST_HOURS = 6, 48
"""Hours that are forecast without a base forecast, and with one."""
MUCH = 0.25
"""Share of a record from which the user is warned that it is masked."""
JUDGED_AFTER, FIRST_TRUST, NO_TRUST, FULL_TRUST = 1.5, 0.7, 0.5, 2.0
"""A base forecast has the first trust until there are so many days n with it; then its skill (a correlation) times
sqrt(n) decides: no trust up to the one, full trust from the other on. Useless ones correlate with the power of a few
days by chance. Chosen on simulated plants with real ones in view: useless ones cost at most 1.5 % of RMSE from three
days on."""
DARK = 5e-4
"""Share of capacity at or below which an hour of the support days counts as dark."""
UNKNOWN_LIMIT = 1.5
"""Limit in estimated capacities of a plant whose record is short."""
LOW_SUN = 0.09
"""Sine of the sun's elevation, of 5 degrees, below which an hour that was dark so far stays dark."""
PRIOR = Path(__file__).parent / "prior"
POOLED = PRIOR / "pooled"
"""The prior of the package, and the network without adaptation beside which backtests show it."""


class SiteForecaster:
    """A prior over plants that gives forecasts of single ones, from their first day on.

    Args:
        learner: A trained learner of ``SiteNetwork``.
    """

    def __init__(self, learner: MetaLearner) -> None:
        self.learner = learner

    @classmethod
    def pretrained(cls, folder: str | Path = PRIOR) -> "SiteForecaster":
        """Return the prior of the package, or one of your own: the folder of a run, or what ``save`` wrote."""
        run = RunFolder(Path(folder))
        if run.prior.exists():
            return cls(learned(run)[1])
        return cls(MetaLearner.load(str(folder), module=SiteNetwork(), adaptation=Context()))

    def save(self, folder: str | Path) -> None:
        """Write the prior, for ``pretrained``."""
        self.learner.save(str(folder))

    def adapt(self, power: Any, *, days: int = MOST_DAYS, weather: Use = "auto") -> "AdaptedPlants":
        """Return forecasters of plants, adapted to up to ``days`` days at the end of their records.

        Args:
            power: A table as ``read_power`` takes it (a path or a data frame) or returns it, a plant, or several.
                Capacities must be known, records may be empty.
            days: Days to read; 0 leaves the prior as it is (the last hours of power are still read).
            weather: Whether columns of weather are read: "auto" for those that go on after the power, as forecasts do
                and measurements do not, "always" or "never".
        """
        check_integer("days", days, 0)
        plants, findings = plants_of(power)
        if findings is not None:
            _warn_of_masked(plants)
        adapted = {plant.name: AdaptedPlant(self.learner, plant, days, weather) for plant in plants}
        return AdaptedPlants(adapted, findings)


class Known(NamedTuple):
    """A plant's hours with the base forecast as its support days show it.

    Args:
        hours: The hours; a base forecast in a scale of its own is scaled.
        trust: Probability of the forecast with the base forecast, by its skill on the support days; the forecast
            without it has the rest.
        days: Support days with a base forecast.
        factor: What the base forecast was multiplied by.
    """

    hours: Hours
    trust: float
    days: float
    factor: float


@dataclass(frozen=True, eq=False, repr=False)
class AdaptedPlant:
    """The forecaster of one plant. Nothing is trained: a new hour of power costs as much as a forecast."""

    learner: MetaLearner
    plant: Plant
    days: int = MOST_DAYS
    weather: Use = "auto"

    def update(self, later: Plant) -> "AdaptedPlant":
        """Return the forecaster with the power of later hours, of a record that may overlap with the present one.

        Raises:
            ValueError: One of the records has a known zone, the other has not, or they do not fit together.
        """
        if len(later) and later.zone_known != self.plant.zone_known:
            stated = "no zone" if self.plant.zone_known else "a zone"
            raise ValueError(
                f"the later record of {self.plant.name} has {stated}, unlike the present one. Try "
                "update(read_power(later, zone=...)) with the zone of the first table."
            )
        return replace(self, plant=self.plant.followed_by(later))

    def __repr__(self) -> str:
        """Return name, capacity and length of the record."""
        return f"AdaptedPlant({self.plant!r}, up to {self.days} days)"

    @cached_property
    def hours(self) -> Hours:
        """The plant's hours, and the sun over the next two days."""
        return Hours.of(usable_weather(self.plant, self.weather), hours_ahead=MOST_HOURS)

    def index(self, time: np.datetime64) -> int:
        """Return the number of the hour of the record that begins at ``time``."""
        return int((time - self.hours.first[0].astype("datetime64[h]")) / np.timedelta64(1, "h"))

    def _begin(self, end: int) -> int:
        """Return the first hour of the support that ends before hour ``end``."""
        return max(0, end - 24 * self.days)

    def limit(self, end: int) -> float:
        """Return the largest share of capacity of a forecast: 1, or what was recorded above it before hour ``end``.

        A capacity that was estimated from less than ``LONG_DAYS`` is no limit yet: ``UNKNOWN_LIMIT``.
        """
        recorded = self.hours.power[0, :end]
        short = self.plant.capacity_estimated and len(self.plant) * self.plant.step < 24 * 3600 * LONG_DAYS
        return max(UNKNOWN_LIMIT if short else 1.0, float(recorded[np.isfinite(recorded)].max(initial=0.0)))

    def forecast(
        self, issue: NDArray[np.int64], lead: NDArray[np.int64], levels: Sequence[float], *, end: int | None = None
    ) -> PowerForecast:
        """Return forecasts in shares of capacity.

        Args:
            issue: Hours of the record at whose begin forecasts are issued, (N,).
            lead: 1 for the hour that begins then, (N,).
            levels: Of the quantiles.
            end: Hour before which the support days end; the first time of issue if not given.
        """
        end = int(issue.min()) if end is None else end
        known = self.known_at(end)
        hours, trust = known.hours, known.trust
        if not np.isfinite(hours.base[0, issue + lead - 1]).any():
            trust = 0.0
        without = hours.without_base()
        found = self._predicted(hours if trust else without, issue, lead, end)
        if 0.0 < trust < 1.0:
            found = mixed(self._predicted(without, issue, lead, end), found, trust)
        return self.limited(found, issue, lead, levels, end)

    def limited(
        self,
        found: GaussianForecast,
        issue: NDArray[np.int64],
        lead: NDArray[np.int64],
        levels: Sequence[float],
        end: int,
    ) -> PowerForecast:
        """Return a forecast within the limits of the plant, which is zero at night; arguments as in ``forecast``."""
        then = issue + lead - 1
        dark = self.hours.dark_hours(self._begin(end), end, at_most=DARK)
        night = dark[(self.hours.first[0] + then) % 24]
        if self.hours.place[0]:
            sun_is_low = self.hours.sun[0, then, 0] < LOW_SUN
            night = (self.hours.clear[0, then] <= 0) | (night & sun_is_low)
        return within_limits(found, tuple(levels), night, self.limit(end))

    def known_at(self, end: int) -> Known:
        """Return what the days before ``end`` tell about the base forecast; weather may teach it."""
        begin = self._begin(end)
        learned = self.hours.with_learned_base(begin, end)
        factor = learned.base_factor(begin, end)
        hours = learned.with_base_times(factor)
        days, base_days, skill = base_quality(hours.support(0, begin, end))
        if not np.isfinite(hours.base).any() or (days >= JUDGED_AFTER and base_days < 1):
            trust = 0.0
        elif base_days < JUDGED_AFTER:
            trust = FIRST_TRUST
        else:
            trust = float(np.clip((skill * base_days**0.5 - NO_TRUST) / (FULL_TRUST - NO_TRUST), 0.0, 1.0))
        return Known(hours, trust, base_days, factor)

    def _predicted(self, hours: Hours, issue: NDArray[np.int64], lead: NDArray[np.int64], end: int) -> GaussianForecast:
        """Return the forecasts that the days before ``end`` adapt, without the plant's limits."""
        support = hours.support(0, self._begin(end), end)
        present = bool(torch.isfinite(support.y).any())
        posterior: Predictive = self.learner.adapt(support) if present else self.learner.prior_predictive()
        found = posterior.predict(torch.from_numpy(hours.query_rows(0, issue, lead)), samples=2)
        assert isinstance(found, GaussianForecast)
        return found

    def predict(self, at: object = None, *, hours: int = 6, levels: Sequence[float] = LEVELS) -> pd.DataFrame:
        """Return the forecast of the next hours, a row for each.

        Args:
            at: Time of issue, UTC unless it has a zone, rounded down to a full hour, since nothing after it is read;
                the end of the record by default. At most 30 days after it, and any time for a plant without a record.
            hours: Hours to forecast: up to 6, or up to 48 where there is a base forecast or weather for them.
            levels: Of the quantiles.

        Returns:
            Columns ``site, issued, time, lead_hours, mean, q05, ..., unit, stamp``. Power is the mean of an hour in the
            plant's unit; ``time`` is the begin or the end of the hour, as ``stamp`` says and as stamps of the plant's
            table are. Times are in UTC, and without a zone where that of the stamps is not known.

        Raises:
            ValueError: ``at`` is outside of the record, or hours beyond the sixth have no base forecast.
        """
        return AdaptedPlants({self.plant.name: self}).predict(at, hours=hours, levels=levels)

    def frame(self, issue: int, hours: int, levels: Sequence[float]) -> pd.DataFrame:
        """Return the forecast that is issued at an hour of the record, as ``predict`` does."""
        lead = np.arange(1, hours + 1)
        found = self.forecast(np.full(hours, issue), lead, levels)
        issued = (self.hours.first[0] + issue).astype("datetime64[h]")
        begin = issued + lead - 1
        time = begin + np.timedelta64(1 if self.plant.stamp == "end" else 0, "h")
        zone = "UTC" if self.plant.zone_known else None
        capacity = self.plant.capacity if self.plant.unit != "share" else self.plant.capacity or 1.0
        assert capacity is not None
        columns = {
            "site": self.plant.name,
            "issued": pd.Timestamp(issued, tz=zone),
            "time": pd.DatetimeIndex(time.astype("datetime64[ns]"), tz=zone),
            "lead_hours": lead,
            "mean": capacity * found.mean,
        }
        quantiles = {
            quantile_name(level): capacity * values for level, values in zip(levels, found.quantiles, strict=True)
        }
        return pd.DataFrame({**columns, **quantiles, "unit": self.plant.unit, "stamp": self.plant.stamp})

    def reach_of_base(self, issue: int, hours: int) -> int:
        """Return for how many of so many hours after the time of issue there is a base forecast without a gap."""
        known = np.isfinite(self.known_at(issue).hours.base[0, issue : issue + hours])
        return int(np.append(known, False).argmin())

    def issued(self, at: object) -> tuple["AdaptedPlant", int]:
        """Return the forecaster of a record that goes on to the time of issue ``at``, and the hour of it."""
        last: int = self.hours.power.shape[1]
        if at is None:
            return self, last
        if not self.plant.zone_known and pd.Timestamp(at).tz is not None:
            raise ValueError(
                f"at must have no zone, as the stamps of the table have none, got {str(at)!r}. Try zone= to "
                "state theirs."
            )
        hour = full_hour(at)
        issue = self.index(hour)
        if issue > last if len(self.plant) else issue != 0:
            if issue <= last + 24 * MOST_DAYS or not len(self.plant):
                return replace(self, plant=self.plant.until(hour)).issued(hour)
        elif issue >= 0:
            return self, issue
        first, end = (pd.Timestamp((self.hours.first[0] + i).astype("datetime64[h]")) for i in (0, last))
        raise ValueError(
            f"at must lie within the record of {self.plant.name}, {first} to {end} UTC, or up to {MOST_DAYS} days "
            f"after it, got {pd.Timestamp(hour)}. Try update(later) with newer power first."
        )


def full_hour(at: object) -> np.datetime64:
    """Return a time, UTC unless it has a zone, rounded down to a full hour."""
    moment = pd.Timestamp(at)
    moment = moment.tz_convert("UTC").tz_localize(None) if moment.tz is not None else moment
    return np.datetime64(moment.floor("h").to_datetime64(), "h")


def quantile_name(level: float) -> str:
    """Return the name of the column of a quantile: q05, q97.5."""
    return f"q{100 * level:0{2 if 100 * level < 10 else 1}g}"


@dataclass(frozen=True, eq=False, repr=False)
class AdaptedPlants:
    """Forecasters of several plants, by name; ``findings`` is what was found in their table, if one was read."""

    plants: Mapping[str, AdaptedPlant]
    findings: Findings | None = None

    def __getitem__(self, name: str) -> AdaptedPlant:
        return self.plants[name]

    def __repr__(self) -> str:
        """Return the number and the names of the plants."""
        names = ", ".join(list(self.plants)[:5]) + ", ..." * (len(self.plants) > 5)
        return f"AdaptedPlants({len(self.plants)} plants: {names})"

    def update(self, later: Any) -> "AdaptedPlants":
        """Return the forecasters with later power of some of the plants, as ``SiteForecaster.adapt`` takes it."""
        given, findings = plants_of(later)
        unknown = [one.name for one in given if one.name not in self.plants]
        if unknown:
            raise ValueError(f"later power must be of {', '.join(self.plants)}, got {', '.join(unknown)}. Try adapt.")
        return AdaptedPlants(
            {**self.plants, **{one.name: self.plants[one.name].update(one) for one in given}}, findings
        )

    def predict(self, at: object = None, *, hours: int = 6, levels: Sequence[float] = LEVELS) -> pd.DataFrame:
        """Return the forecasts of all plants in one frame, as ``AdaptedPlant.predict`` gives them."""
        check_integer("hours", hours, 1)
        if hours > MOST_HOURS:
            raise ValueError(f"hours must be at most {MOST_HOURS}, got {hours}")
        issued = [plant.issued(at) for plant in self.plants.values()]
        _check_horizon(issued, hours)
        frames = [plant.frame(issue, hours, levels) for plant, issue in issued]
        if not all(plant.plant.zone_known for plant, _ in issued):
            frames = [
                frame.assign(**{name: frame[name].dt.tz_localize(None) for name in ("issued", "time")})
                for frame in frames
            ]
        return pd.concat(frames, ignore_index=True)


def _check_horizon(issued: Sequence[tuple[AdaptedPlant, int]], hours: int) -> None:
    """Raise ValueError if hours beyond the sixth have no base forecast; warn if one is there and is not trusted."""
    if hours <= WITHOUT_BASE:
        return
    reach = {one.plant.name: one.reach_of_base(issue, hours) for one, issue in issued}
    short = [name for name, count in reach.items() if count < hours]
    if short:
        named = ", ".join(f"{name} ({reach[name]} h)" for name in short[:5]) + ", ..." * (len(short) > 5)
        raise ValueError(
            f"hours must be at most {WITHOUT_BASE} where there is no base forecast for them, got {hours}. Base "
            f"forecasts that end earlier: {named}. Try hours={WITHOUT_BASE}, or add a column to the table, with rows "
            "for the hours to come: 'base' with a forecast in the unit of the power, or weather such as 'ghi'."
        )
    useless = [one.plant.name for one, issue in issued if not one.known_at(issue).trust]
    if useless:
        warnings.warn(
            f"hours beyond the next {WITHOUT_BASE} know nothing of the weather, as no base forecast is trusted "
            f"({', '.join(useless)}): they are what the plant usually gives",
            stacklevel=3,
        )


def _warn_of_masked(plants: Sequence[Plant]) -> None:
    for plant in plants:
        counts = count_doubts(plant)
        share = sum(counts.values()) / max(len(plant), 1)
        if share > MUCH:
            reason = max(counts, key=counts.__getitem__)
            warnings.warn(
                f"{share:.0%} of the power of {plant.name} is masked as doubtful, most of it as {reason!r}. The "
                "findings of the table say why and what to try",
                stacklevel=3,
            )
