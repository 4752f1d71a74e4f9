"""A build step of the documentation site: formulas become MathML, so that pages need no script and no network."""

import re
from html import unescape

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
"""What pymdownx.arithmatex makes of ``$...$`` and ``$$...$$``."""


def on_page_content(html: str, **_: object) -> str:
    """Return the page with every formula as MathML."""
    return FORMULA.sub(_mathml, html)


def _mathml(found: re.Match[str]) -> str:
    """Return one formula as MathML, inside the element that it was in."""
    tag, bracket, formula = found.groups()
    display = "block" if bracket == "[" else "inline"
    return f'<{tag} class="formula">{convert(unescape(formula).strip(), display=display)}</{tag}>'
