"""Write a page: the sections that every application has, and those that this one adds, in one HTML file."""

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from metaprior.checkpoint import write_file
from metaprior.report.canvas import pens_of
from metaprior.report.page import sections
from metaprior.report.page.content import PageContent, Section


def write_page(path: Path, content: PageContent) -> None:
    """Write the page as one file that needs no other; an existing file is replaced atomically."""
    pens = pens_of(content.methods)
    parts = [
        Section("Scores", sections.scores_section(content)),
        Section("Lead times", sections.lead_section(content, pens)),
        Section("Reliability", sections.reliability_section(content, pens)),
        Section("Learning curve", sections.shots_section(content, pens)),
        *content.sections,
        Section("Settings", sections.settings_section(content)),
    ]
    page = Template(_part("page.html")).substitute(
        title=escape(content.title),
        style="\n".join([_part("page.css"), *(part.style for part in parts if part.style)]),
        story=sections.story_section(content),
        links="".join(f'<a href="#{_anchor(part)}">{escape(part.title)}</a>' for part in parts),
        sections="".join(map(_section, parts)),
        script="\n".join([_part("page.js"), *(part.script for part in parts if part.script)]),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.encode())


def _part(name: str) -> str:
    return files("metaprior.report.page").joinpath(name).read_text(encoding="utf-8")


def _anchor(part: Section) -> str:
    return escape(part.title.lower().replace(" ", "-"))


def _section(part: Section) -> str:
    anchor, title = _anchor(part), escape(part.title)
    heading = f'<h2 id="{anchor}-title">{title}</h2>'
    return f'<section id="{anchor}" aria-labelledby="{anchor}-title">{heading}{part.body}</section>'
