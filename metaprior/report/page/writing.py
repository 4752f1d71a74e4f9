"""Write a page: the sections that every application has, and those that this one adds, in one HTML file."""

from pathlib import Path

from metaprior.checkpoint import write_file
from metaprior.report.canvas import pens_of
from metaprior.report.page import figures, tables
from metaprior.report.page.content import PageContent
from metaprior.report.page.templates import file_text, render

HERE = "metaprior.report.page"


def write_page(path: Path, content: PageContent) -> None:
    """Write the page as one file that needs no other; an existing file is replaced atomically."""
    pens = pens_of(content.methods)
    page = render(
        HERE,
        "page.html",
        content=content,
        style=file_text(HERE, "page.css"),
        script=file_text(HERE, "page.js"),
        cards=tables.cards(content.scores, content.units, content.ours),
        summary=tables.summary_columns(content.scores, content.units),
        by_lead=tables.lead_columns(content.scores, content.units),
        lead_times=figures.lead_figures(content, pens),
        reliability=figures.reliability_figures(content, pens),
        shots=figures.shots_figures(content, pens),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.encode())
