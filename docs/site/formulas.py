"""A build step of the documentation site: formulas become MathML, so that pages need no script and no network."""

import re
from html import unescape

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
"""What pymdownx.arithmatex makes of ``$...$`` and ``$$...$$``."""
LEFT_BAR, RIGHT_BAR = "\ue000", "\ue001"
"""Stand for bars that open and close: the converter makes the same of them as of the bar of p(y|x)."""
BAR = '<mo form="{form}" stretchy="false">|</mo>'
UPRIGHT_LETTERS = re.compile(r'(?:<mi mathvariant="normal">[^<]</mi>){2,}')
FUNCTION_BEFORE_SYMBOL = re.compile(r"(<m[io]>(?:log|exp|min|max)</m[io]>)(?=<m(?:i|n|row|sup|sub|subsup|frac|sqrt)>)")
NESTED_OPERATOR = re.compile(r"<mo><mrow>(<mo>[^<]*</mo>)</mrow></mo>")
GROWING_BRACKET = re.compile(r'<mo (?=minsize="[^"]*" maxsize="[^"]*">)')


def on_page_content(html: str, **_: object) -> str:
    """Return the page with every formula as MathML."""
    return FORMULA.sub(_element, html)


def _element(found: re.Match[str]) -> str:
    """Return one formula as MathML, inside the element that it was in."""
    tag, bracket, formula = found.groups()
    display = "block" if bracket == "[" else "inline"
    return f'<{tag} class="formula">{mathml(unescape(formula).strip(), display)}</{tag}>'


def mathml(formula: str, display: str) -> str:
    """Return a LaTeX formula as MathML, with what the converter gets wrong for browsers put right."""
    formula = re.sub(r"\\lvert(?![a-z])", LEFT_BAR, re.sub(r"\\rvert(?![a-z])", RIGHT_BAR, formula))
    formula = re.sub(r"\\texttt\{([^}]*)\}", lambda found: found[0].replace(r"\_", "_"), formula)
    text = convert(formula, display=display).replace("<mi>&#x0007E;</mi>", "<mo>&#x223C;</mo>")
    for mark, form in ((LEFT_BAR, "prefix"), (RIGHT_BAR, "postfix")):
        text = text.replace(f"<mi>{mark}</mi>", BAR.format(form=form))
    text = UPRIGHT_LETTERS.sub(lambda found: f"<mi>{re.sub('<[^>]*>', '', found[0])}</mi>", text)
    text = FUNCTION_BEFORE_SYMBOL.sub(r'\1<mspace width="0.167em"/>', text)
    text = NESTED_OPERATOR.sub(r"\1", text)
    return GROWING_BRACKET.sub('<mo stretchy="true" symmetric="true" ', text)
