"""Commands to go on with about a table of power: which can succeed, and files that are named after the table."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from metaprior.files import named_after

if TYPE_CHECKING:
    from metaprior.solar.sites.plant import Plant

WEEKS, LEADS = 26, 6
"""Weeks and lead times that ``metaprior sites backtest`` asks for unless told otherwise."""


def forecast_command(power: str | Path, options: Sequence[str] = (), *, page: bool = True) -> str:
    """Return the command that forecasts a table, with the options that tell how it is read, and maybe with a page."""
    written = ["--out", named_after(power, "forecast.csv")]
    written += ["--page", named_after(power, "forecast.html")] if page else []
    return shlex.join(["metaprior", "sites", "forecast", str(power), *options, *written])


def backtest_command(power: str | Path, options: Sequence[str] = ()) -> str:
    """Return the command that scores past forecasts of a table, with the options that tell how it is read."""
    page = ["--page", named_after(power, "backtest.html")]
    return shlex.join(["metaprior", "sites", "backtest", str(power), *options, *page])


def without_capacity(plants: Sequence["Plant"]) -> list[str]:
    """Return the names of plants whose capacity is not known, so that nothing can be forecast."""
    return [plant.name for plant in plants if plant.capacity is None and plant.unit != "share"]


def can_be_backtested(plants: Sequence["Plant"]) -> bool:
    """Return whether a backtest has anything to score: all capacities are known, and a record is long enough."""
    from metaprior.solar.sites.backtest.queries import DAYS, case_of

    if without_capacity(plants):
        return False
    return any(not isinstance(case_of(plant, DAYS, WEEKS, LEADS, "given"), str) for plant in plants)
