"""Write small pieces of HTML."""

import json
import math
from collections.abc import Mapping
from html import escape

from metaprior.text_table import finite_or_none


def note(text: str) -> str:
    """Return a paragraph that says what is missing from a page, and why."""
    return f'<p class="note">{escape(text)}</p>'


def figure(svg: str, caption: str) -> str:
    """Return a drawing with its caption, which is also read aloud."""
    drawing = svg.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def unit_span(unit: str) -> str:
    """Return a unit as it stands behind a label, or nothing."""
    return f' <span class="unit">{escape(unit)}</span>' if unit else ""


def json_element(name: str, value: object) -> str:
    """Return a script element with this id that holds JSON: NaN becomes null, and no text can end the element."""
    text = json.dumps(finite_or_none(value), allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{text}</script>'


def settings_list(settings: Mapping[str, object]) -> str:
    """Return names and values as a list, nested as the settings are."""
    entries = "".join(f"<dt>{escape(str(name))}</dt><dd>{_setting(value)}</dd>" for name, value in settings.items())
    return f'<dl class="settings">{entries}</dl>'


def _setting(value: object) -> str:
    if isinstance(value, Mapping):
        return settings_list(value) if value else "empty"
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value)) or "empty"
    if value is None:
        return "not set"
    if isinstance(value, float) and not math.isfinite(value):
        return "unknown"
    return escape(str(value))
