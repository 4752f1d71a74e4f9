"""What a network without adaptation gives: one for all plants, and the same network fine-tuned on the support days.

The pooled network is a ``SiteNetwork`` that was trained without support days. Fine-tuning goes on with its training on
the forecasts that could have been issued in the support days: all weights, by Adam, as most people would do it.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from metaprior.methods import MetaLearner
from metaprior.solar.sites.backtest.methods import LEVELS, Method, by_week
from metaprior.solar.sites.backtest.queries import DAY, Case, Ints
from metaprior.solar.sites.forecaster import DARK, SiteForecaster
from metaprior.solar.sites.limits import PowerForecast
from metaprior.solar.sites.network import LIKELIHOOD, SiteNetwork, SupportProfile
from metaprior.solar.sites.rows import Hours
from metaprior.tasks.task import Examples

POOLED, TUNED = "pooled network", "pooled network, fine-tuned"
Tuning = tuple[int, float]
"""Steps of Adam, and their learning rate."""
AS_IT_IS: Tuning = (0, 0.0)
TUNINGS: dict[int, Tuning] = {1: (30, 1e-4), 3: (30, 3e-4), 7: (30, 3e-4), 14: (100, 3e-4), 30: (300, 3e-4)}
"""By number of support days, as ``benchmarks/sites`` chose them for the packaged network on simulated plants."""
BATCH = 256
"""Forecasts in a step of fine-tuning."""


def pooled(forecaster: SiteForecaster) -> Method:
    """Return the method of a network that reads no support days: its forecasts are those of 0 days."""
    as_it_is = fine_tuned(forecaster, {})
    return lambda case, days: as_it_is(case, 0)


def fine_tuned(forecaster: SiteForecaster, tunings: Mapping[int, Tuning] = TUNINGS) -> Method:
    """Return the method of a pooled network whose weights are all fine-tuned on the support days of each week.

    It learns from forecasts of the hours that were lit, issued in the support days with what they had before; the loss
    is that of its training. Base forecast, night and limits are those of the adapted prior.

    Args:
        forecaster: The pooled network.
        tunings: Steps and learning rate by number of support days; in between, those of the next lower number, and
            without any the network as it is.
    """

    def method(case: Case, days: int) -> PowerForecast:
        plant = forecaster.adapt(case.plant, days=days, weather="always")[case.plant.name]
        tuning = tunings[max(known)] if (known := [count for count in tunings if count <= days]) else AS_IT_IS

        def forecast(issue: Ints, lead: Ints, origin: int) -> PowerForecast:
            hours = plant.known_at(origin).hours
            support = _lit_forecasts(hours, origin - DAY * days, origin, case.leads)
            module = _tuned(forecaster.learner, support, tuning)
            with torch.no_grad():
                outputs = module(torch.from_numpy(hours.query_rows(0, issue, lead)), torch.zeros(SupportProfile.size))
            found = LIKELIHOOD.forecast(outputs.expand(2, -1, -1), {})
            return plant.limited(found, issue, lead, LEVELS, origin)

        return by_week(case, forecast)

    return method


def _lit_forecasts(hours: Hours, begin: int, end: int, leads: int) -> Examples:
    """Return all forecasts of lit hours of the support that could have been issued in it."""
    lit = ~hours.dark_hours(begin, end, at_most=DARK)
    power = hours.power.copy()
    power[:, :begin] = np.nan  # a plant that was connected then
    issue, lead = (part.ravel() for part in np.meshgrid(np.arange(begin, end), np.arange(1, leads + 1), indexing="ij"))
    then = issue + lead - 1
    chosen = then < end
    chosen[chosen] = np.isfinite(power[0, then[chosen]]) & lit[(hours.first[0] + then[chosen]) % DAY]
    return replace(hours, power=power).query(0, issue[chosen], lead[chosen])


def _tuned(learner: MetaLearner, support: Examples, tuning: Tuning) -> SiteNetwork:
    """Return the network after fine-tuning."""
    module = SiteNetwork()
    module.load_state_dict({name: value.clone() for name, value in learner.theta_.plain.items()})
    steps, lr = tuning
    if not len(support.x) or not steps:
        return module
    features = module.features(support.x, torch.zeros(SupportProfile.size))
    draw = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(module.parameters(), lr=lr)
    for _ in range(steps):
        some = torch.randint(len(support.x), (min(BATCH, len(support.x)),), generator=draw)
        outputs = module.from_features(features[some])
        optimizer.zero_grad()
        LIKELIHOOD.elementwise_nll(outputs, support.y[some], {}).mean().backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    return module
