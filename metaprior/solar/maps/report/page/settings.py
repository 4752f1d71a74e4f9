"""Nested settings as nested lists."""

import math
from collections.abc import Mapping
from html import escape


def settings_list(settings: Mapping[str, object]) -> str:
    """Names and values, sections inside sections."""
    entries = "".join(f"<dt>{escape(str(name))}</dt><dd>{_value(value)}</dd>" for name, value in settings.items())
    return f'<dl class="settings">{entries}</dl>'


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return settings_list(value) if value else "empty"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value)) or "empty"
    if value is None:
        return "not set"
    if isinstance(value, float) and not math.isfinite(value):
        return "unknown"
    return escape(str(value))
