"""Columns of a table as inputs, targets, group labels and times.

A table is a pandas or polars data frame, an Arrow table, a mapping from names to columns, a structured array, or a 2-D
array (whose columns are called 0, 1, 2, ...). No data frame library is imported here.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metaprior.errors import NotFinite
from metaprior.tasks.task import Examples

Array = npt.NDArray[Any]
Column = Hashable
Columns = Column | Sequence[Column]
NAMED_AT_MOST = 20


class Table:
    """One interface to all kinds of tables: names, and a column as an array with the rows on its first axis."""

    def __init__(self, table: Any) -> None:
        self.names, self._read = _access(table)
        index = [name for name in getattr(getattr(table, "index", None), "names", ()) if name is not None]
        self._index = index if hasattr(table, "reset_index") else []

    def column(self, name: Column, role: str) -> Array:
        """Return a column, with None and other marks of missing values in columns of numbers as NaN."""
        if (count := self.names.count(name)) != 1:
            shown = ", ".join(map(repr, self.names[:NAMED_AT_MOST])) + ", ..." * (len(self.names) > NAMED_AT_MOST)
            remedy = "Try table.reset_index()." if name in self._index else f"Columns are {shown}."
            raise ValueError(f"{role}: there {'are several columns' if count else 'is no column'} {name!r}. {remedy}")
        return _array(self._read(name))


def _access(table: Any) -> tuple[list[Any], Callable[[Any], Any]]:
    """Return the names of a table's columns, and how one of them is read."""
    if isinstance(table, Mapping):
        return list(table), table.__getitem__
    if isinstance(table, np.ndarray) and table.dtype.names:
        return list(table.dtype.names), table.__getitem__
    if isinstance(table, np.ndarray | Tensor) and table.ndim == 2:
        return list(range(table.shape[1])), lambda name: table[:, name]
    lazy = hasattr(table, "collect")
    names = None if lazy else getattr(table, "column_names", None) or getattr(table, "columns", None)  # Arrow, others
    if names is None or not hasattr(table, "__getitem__"):
        raise TypeError(
            "table must be a data frame, a mapping from names to columns, a structured array or a 2-D array, got "
            f"{type(table).__name__}" + ". Try table.collect()." * lazy
        )
    return list(names), table.__getitem__


def _array(column: Any) -> Array:
    if isinstance(column, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(column), np.nan, column.data)
    if isinstance(column, Tensor):
        return column.detach().cpu().numpy()
    array: Array = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if array.dtype != object:
        return array
    values = [np.nan if missing(value) else value for value in array.tolist()]
    numbers = [value for value in values if value == value]
    plain = np.array(values if all(isinstance(value, int | float | np.number) for value in numbers) else array)
    return plain if plain.ndim == array.ndim else array


def missing(value: object) -> bool:
    """Return whether a value marks a missing one: None, NaN, NaT or the NA of a data frame library."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


@dataclass(frozen=True)
class Choice:
    """The columns of a table that make examples; ``features=None`` are all that have no other role (``others``).

    With ``real=True`` integer targets are real numbers, and no class labels.
    """

    target: Columns
    features: Columns | None = None
    time: Column | None = None
    others: tuple[Column, ...] = ()
    real: bool = False

    def resolved(self, table: Table) -> "Choice":
        """Return the same choice with the features by name; raise for columns that have two roles."""
        targets, taken = _listed(self.target), {*_listed(self.target), *self.others, self.time}
        if self.features is None:
            features = [name for name in table.names if name not in taken]
        else:
            features = _listed(self.features)
        if not targets or not features:
            role = "features" if targets else "target"
            raise ValueError(f"{role} must name at least one column, got none")
        if twice := [name for name in features if name in targets]:
            raise ValueError(f"columns cannot be features and target, got {twice!r} as both")
        return replace(self, features=features)

    def examples(self, table: Table) -> Examples:
        """Return x in float32 and y in float32 or, for integer targets, int64; missing targets are NaN."""
        chosen = self.resolved(table)
        features = {name: table.column(name, "features") for name in _listed(chosen.features)}
        targets = {name: table.column(name, "target") for name in _listed(self.target)}
        for role, columns in (("feature", features), ("target", targets)):
            for name, column in columns.items():
                _refuse_other_than_numbers(column, name, role, automatic=self.features is None)
        _refuse(features, "feature", np.isfinite, "missing or infinite", "Fill them, or leave those rows out.")
        _refuse(targets, "target", lambda column: ~np.isinf(column), "infinite", "NaN marks a missing target.")
        x, y = _joined(features, "features").astype(np.float32), _joined(targets, "target")
        if len(x) != len(y):
            raise ValueError(f"columns must have one length, got {len(x)} rows of features and {len(y)} of targets")
        whole = y.dtype.kind in "iub" and not self.real
        examples = Examples(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64 if whole else np.float32)))
        return examples if whole else self.with_real_targets(examples)

    def with_real_targets(self, examples: Examples) -> Examples:
        """Return examples with targets in float32: (N,) of one target by name, (N, C) of a list, as forecasts are."""
        y = examples.y.float()
        return Examples(examples.x, y[:, None] if y.ndim == 1 and isinstance(self.target, list | tuple) else y)

    def times(self, table: Table) -> Tensor | None:
        """Return the rank of every row's time, equal for equal times; None if there is no time column."""
        if self.time is None:
            return None
        column = table.column(self.time, "time")
        if count := sum(map(missing, column.tolist())):
            raise ValueError(f"time column {self.time!r} has {count} missing values. Leave those rows out.")
        try:
            values = _times(column)
            return torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"time column {self.time!r} must hold numbers, dates or ISO 8601 text, got {column[0]!r}. Try "
                "pandas.to_datetime(column)."
            ) from error


def _times(column: Array) -> Array:
    """Return times that can be sorted; text is read as ISO 8601."""
    if column.dtype.kind in "US" or (len(column) and isinstance(column[0], str)):
        return np.array([datetime.fromisoformat(str(value)) for value in column.tolist()], dtype=object)
    return column


def group_labels(table: Table, group: Column) -> list[Hashable]:
    """Return the group of every row; raise for rows without one."""
    labels = plain_labels(table.column(group, "group"))
    if count := sum(map(missing, labels)):
        raise ValueError(f"group column {group!r} has {count} missing values of {len(labels)}. Leave those rows out.")
    return labels


def plain_labels(labels: Array) -> list[Hashable]:
    """Return the elements of an array as Python objects; dates stay dates."""
    dates = labels.dtype.kind == "M"  # nanoseconds would become integers
    return list((labels.astype("datetime64[us]") if dates else labels).tolist())


def _listed(columns: Columns | None) -> list[Any]:
    return list(columns) if isinstance(columns, list | tuple) else [columns]


def _refuse_other_than_numbers(column: Array, name: Column, role: str, *, automatic: bool) -> None:
    if column.dtype.kind in "fiub":
        return
    text = column.dtype.kind in "US" or any(isinstance(value, str) for value in column.ravel()[:100].tolist())
    remedy = f"numpy.unique(table[{name!r}], return_inverse=True)[1] numbers its values." if text else "Convert it."
    if role == "feature" and automatic:
        remedy = f"{remedy} features=[...] names the columns to take."
    kind = "text" if text else str(column.dtype)
    raise TypeError(f"{role} column {name!r} must hold numbers, got {kind}. {remedy}")


def _refuse(columns: Mapping[Any, Array], role: str, valid: Callable[[Any], Any], what: str, remedy: str) -> None:
    counts = {name: int((~valid(column)).sum()) for name, column in columns.items()}
    if bad := [f"{name!r} ({count} of {columns[name].size})" for name, count in counts.items() if count]:
        raise NotFinite(f"{role} columns have {what} values: {', '.join(bad)}. {remedy}")


def _joined(columns: Mapping[Any, Array], role: str) -> Array:
    """Return columns side by side; a single target, or a single column with several axes, as it is."""
    arrays = list(columns.values())
    if len(arrays) == 1 and (role == "target" or arrays[0].ndim > 1):
        return arrays[0]
    if len(shapes := {array.shape for array in arrays}) > 1 or any(array.ndim != 1 for array in arrays):
        raise ValueError(f"columns of {role} must be 1-D and of one length, or a single array; got {sorted(shapes)}")
    return np.stack(arrays, 1)
