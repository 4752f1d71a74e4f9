"""Write a page: the sections that every application has, and those that this one adds, in one HTML file."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined

from metaprior.checkpoint import write_file
from metaprior.report.canvas import pens_of
from metaprior.report.page import figures, tables
from metaprior.report.page.content import PageContent
from metaprior.text_table import finite_or_none

HERE = "metaprior.report.page"


def file_text(package: str, name: str) -> str:
    """Return the text of a file that lies beside the modules of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


# Inserted text is escaped, and numbers in JSON are finite or null. Templates import from those of this package.
ENVIRONMENT = Environment(
    loader=FunctionLoader(lambda name: file_text(HERE, name)),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.policies["json.dumps_function"] = lambda value, **_: json.dumps(finite_or_none(value), allow_nan=False)


def render(package: str, name: str, **values: object) -> str:
    """Return the HTML of a template that lies beside the modules of a package."""
    return ENVIRONMENT.from_string(file_text(package, name)).render(values)


def table_html(caption: str, columns: Sequence[tables.Column], *, ours: str | None = None) -> str:
    """Return the HTML of a table for a section of an application; the row of ``ours`` is highlighted."""
    return _fragment("table", caption, columns, ours, "")


def figures_html(group: figures.Figures) -> str:
    """Return the HTML of figures with their key for a section of an application."""
    return _fragment("figures", group)


def _fragment(name: str, *arguments: object) -> str:
    """Return the HTML of a macro of ``fragments.html``."""
    return str(getattr(ENVIRONMENT.get_template("fragments.html").module, name)(*arguments))


def write_page(path: Path, content: PageContent) -> None:
    """Write the page as one file that needs no other; an existing file is replaced atomically."""
    pens, several = pens_of(content.methods), len({row["shots"] for row in content.learning_curve}) > 1
    summary = tables.summary_columns(content.scores, content.units)
    by_lead = tables.lead_columns(content.scores, content.units)
    drawn = {
        "Lead times": figures.measure_figures(content, pens, content.scores, "lead_minutes"),
        "Reliability": figures.reliability_figures(content, pens),
        "Learning curve": figures.measure_figures(content, pens, content.learning_curve if several else (), "shots"),
    }
    shown = [*(["Scores"] if summary or by_lead else []), *(title for title, group in drawn.items() if group.figures)]
    page = render(
        HERE,
        "page.html",
        content=content,
        style=file_text(HERE, "page.css"),
        script=file_text(HERE, "page.js"),
        cards=tables.cards(content.scores, content.units, content.ours),
        titles=_titles(content, shown),
        summary=summary,
        by_lead=by_lead,
        marks=tables.marks([*summary, *(column for columns in by_lead.values() for column in columns)]),
        drawn=drawn,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.encode())


def _titles(content: PageContent, shown: Sequence[str]) -> list[str]:
    """Return the titles of all sections in their order; ``shown`` are those that every application may have."""
    first = [part.title for part in content.sections if part.leads]
    others = [part.title for part in content.sections if not part.leads]
    return [*first, *shown, *others, *(["Settings"] if content.settings else [])]
