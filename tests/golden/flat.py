"""Nested dictionaries and lists as entries by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tests.golden.digest import Entries


def flat(value: Any, prefix: str) -> Entries:
    """Return numbers and strings of nested dictionaries and lists by their path.

    Lists of numbers become tensors, lists of strings one string, and rows with the same keys columns.
    """
    if isinstance(value, dict):
        return {key: entry for name, part in value.items() for key, entry in flat(part, f"{prefix}/{name}").items()}
    if not isinstance(value, list):
        return {prefix: value}
    if _are_numbers(value):
        return {prefix: _tensor(value)}
    if all(isinstance(row, str) for row in value):
        return {prefix: ", ".join(value)}
    if all(isinstance(row, dict) and row.keys() == value[0].keys() for row in value):
        return {f"{prefix}/{name}": entry for name, entry in columns(value).items()}
    return {key: entry for number, part in enumerate(value) for key, entry in flat(part, f"{prefix}/{number}").items()}


def _are_numbers(value: Any) -> bool:
    """Whether these are numbers, also in lists of lists; None is a number that is not known."""
    if isinstance(value, list):
        return all(map(_are_numbers, value))
    return value is None or isinstance(value, int | float)


def _tensor(values: Any) -> torch.Tensor:
    def known(value: Any) -> Any:
        return [known(one) for one in value] if isinstance(value, list) else float("nan") if value is None else value

    return torch.tensor(known(values), dtype=torch.float64)


def columns(rows: Sequence[Mapping[str, Any]]) -> Entries:
    """Return a tensor or a string for each name in any of the rows; a row that lacks it has None there."""
    found: Entries = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        if all(isinstance(value, dict | list) for value in values):
            found |= flat(values, name)
        else:
            found[name] = _tensor(values) if _are_numbers(values) else ", ".join(map(str, values))
    return found
