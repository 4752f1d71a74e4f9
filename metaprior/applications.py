"""The applications: tasks with files, scores and commands of their own.

An application is a module that adds the settings of its tasks to ``metaprior.runs.sources.TASKS`` when it is imported,
and whose ``add_commands(app)`` adds its commands to the command line. A line in ``MODULES`` makes one of this package
known. Applications of other packages are named by an entry point of the group ``metaprior.applications``, or by the
environment variable ``METAPRIOR_APPLICATIONS`` (modules, separated by commas).
"""

import os
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

MODULES = ["metaprior.solar.maps.application", "metaprior.solar.sites.application", "metaprior.explore.application"]
GROUP = "metaprior.applications"
VARIABLE = "METAPRIOR_APPLICATIONS"


def applications() -> list[ModuleType]:
    """Import all applications and return their modules."""
    named = os.environ.get(VARIABLE, "").replace(",", " ").split()
    return [import_module(name) for name in dict.fromkeys([*MODULES, *_installed(), *named])]


@cache
def _installed() -> tuple[str, ...]:
    """Return the modules of other packages; looking through all of them takes time, so it is done once."""
    return tuple(entry.value for entry in entry_points(group=GROUP))
