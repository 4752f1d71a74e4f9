"""The applications of this package: tasks with files, scores and commands of their own.

An application is a module that adds the settings of its tasks to ``metaprior.runs.sources.TASKS`` when it is imported,
and whose ``add_commands(app)`` adds its commands to the command line. A line here is all that makes it known.
"""

from importlib import import_module
from types import ModuleType

MODULES = ["metaprior.solar.maps.application"]


def applications() -> list[ModuleType]:
    """Import all applications and return their modules."""
    return [import_module(name) for name in MODULES]
