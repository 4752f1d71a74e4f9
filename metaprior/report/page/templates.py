"""Render the templates of pages: inserted text is escaped, and numbers in JSON are finite or null."""

import json
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from metaprior.text_table import finite_or_none

ENVIRONMENT = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
ENVIRONMENT.policies["json.dumps_function"] = lambda value, **_: json.dumps(finite_or_none(value), allow_nan=False)


def file_text(package: str, name: str) -> str:
    """Return the text of a file that lies beside the modules of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def render(package: str, name: str, **values: object) -> str:
    """Return the HTML of a template that lies beside the modules of a package."""
    return ENVIRONMENT.from_string(file_text(package, name)).render(values)
