"""Write the section of a page in which maps can be explored."""

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import get_args

from metaprior.report.page.content import Section
from metaprior.report.page.html import json_element, note
from metaprior.solar.maps.report.colours import Kind, colour_table
from metaprior.solar.maps.report.embedding import embedded
from metaprior.solar.maps.report.example import ExampleForecast
from metaprior.solar.maps.report.figures import forecast_png


def maps_section(examples: Sequence[ExampleForecast]) -> Section:
    """Return the section, with a static picture of the first example for paper and for browsers without scripts."""
    if not examples:
        return Section("Maps", note("No maps: no example forecast was given."))
    first = examples[0]
    caption = (
        f"{first.name}, issued {first.issued_text}: target, mean, uncertainty (std) and error (mean − target) "
        f"at all lead times, in {first.units}."
    )
    picture = base64.b64encode(forecast_png(first)).decode("ascii")
    body = Template(_part("maps.html")).substitute(picture=picture, caption=escape(caption))
    colours = {kind: colour_table(kind) for kind in get_args(Kind)}
    data = json_element("maps-data", {"colours": colours, "examples": [embedded(one) for one in examples]})
    return Section("Maps", body + data, style=_part("maps.css"), script=_part("maps.js"))


def _part(name: str) -> str:
    return files("metaprior.solar.maps.report").joinpath(name).read_text(encoding="utf-8")
