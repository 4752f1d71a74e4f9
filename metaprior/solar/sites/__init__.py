"""Forecasts of single plants: tables of power, their checks, and what is known about each plant.

    from metaprior.solar.sites import read_power

    table = read_power("power.csv", zone="Europe/Berlin")
    print(table.findings)           # what was detected, changed, left out or is doubtful
    plant = table.plants[0]         # ``plant.usable``: power with NaN where it is doubtful

The names below are imported on first use: they need pandas and pvlib, ``pip install 'metaprior[solar]'``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metaprior.solar.sites.checks import DEFECTS, DOUBTS, check, count_doubts
    from metaprior.solar.sites.findings import Finding, Findings
    from metaprior.solar.sites.forecaster import SiteForecaster
    from metaprior.solar.sites.plant import Plant
    from metaprior.solar.sites.reading.reader import PowerTable, read_power

MODULES = {
    "checks": ("DEFECTS", "DOUBTS", "check", "count_doubts"),
    "findings": ("Finding", "Findings"),
    "forecaster": ("SiteForecaster",),
    "plant": ("Plant",),
    "reading.reader": ("PowerTable", "read_power"),
}
MODULE_OF = {name: module for module, names in MODULES.items() for name in names}

__all__ = [
    "DEFECTS",
    "DOUBTS",
    "Finding",
    "Findings",
    "Plant",
    "PowerTable",
    "SiteForecaster",
    "check",
    "count_doubts",
    "read_power",
]


def __getattr__(name: str) -> object:
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULE_OF[name]}"), name)
