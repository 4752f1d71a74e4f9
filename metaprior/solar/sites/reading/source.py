"""Open what a user hands in as a table: a CSV or Parquet file, or a data frame.

Text files are read as they are found in the wild: separated by commas, semicolons or tabs, with or without a byte order
mark, compressed or not, with or without titles above the header. Lines that have a wrong number of fields are left out
and listed; they are kept as empty rows, so that the number of a row is the number of its line.
"""

import csv
import gzip
import io
import warnings
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.solar.sites.findings import NO_ROWS, Rows
from metaprior.solar.sites.reading.columns import role_of
from metaprior.solar.sites.reading.number_texts import may_have_thousands, numbers

PARQUET = (".parquet", ".pq")
TEXT_ROLES = ("site", "time", "date")
SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of .xlsx and .ods files, and of .xls files."""
SAVE_AS_CSV = "Try to save it as CSV in your spreadsheet program (File, Save as), or to hand in pandas.read_excel(...)."
TITLE_LINES = 20
"""Lines among which the header is searched."""


@dataclass(frozen=True)
class Source:
    """A table and how its rows are counted.

    Args:
        frame: The table.
        name: Name of the file without endings; names a plant where the table does not.
        first_row: Number of the first row as the user counts.
        row_word: "line" of a file or "row" of a frame.
        decimal_comma: Whether "1,5" may be a number.
        remarks: What was noticed while opening, with the rows concerned.
    """

    frame: pd.DataFrame
    name: str = "plant"
    first_row: int = 0
    row_word: str = "row"
    decimal_comma: bool = True
    remarks: list[tuple[str, str, Rows]] = field(default_factory=list)


def open_source(table: Any, named: Collection[str] = ()) -> Source:
    """Return a path, a pandas or polars data frame, an Arrow table or a mapping of columns as a ``Source``.

    Args:
        table: The table.
        named: Names of columns that the user states, by which a header below titles is recognised.

    Raises:
        TypeError: It is none of these.
        FileNotFoundError: There is no such file.
        ValueError: The file cannot be read as a table.
    """
    if isinstance(table, str | Path):
        return _open_file(Path(table), named)
    if isinstance(table, pd.DataFrame):
        frame = table
    elif isinstance(table, pd.Series):
        frame = table.to_frame(table.name if table.name is not None else "power")
    elif hasattr(table, "collect"):  # a lazy frame of polars
        return open_source(table.collect())
    elif hasattr(table, "get_columns"):  # polars: column by column, because its to_pandas needs pyarrow
        frame = pd.DataFrame({column.name: _polars_column(column) for column in table.get_columns()})
    elif hasattr(table, "to_pandas"):
        frame = table.to_pandas()
    elif isinstance(table, Mapping):
        frame = pd.DataFrame(dict(table))
    else:
        raise TypeError(
            "power must be a path of a CSV or Parquet file or a data frame of pandas or polars, got "
            f"{type(table).__name__}. Try pandas.DataFrame(...)."
        )
    return Source(_without_index(frame))


def _polars_column(column: Any) -> pd.Series:
    """Return a column of polars; its to_numpy forgets the time zone."""
    values = column.to_numpy()
    if values.ndim != 1:
        raise TypeError(f"column {column.name!r} must hold one number, text or time in each row, got {column.dtype}")
    values = pd.Series(values)
    zone = getattr(column.dtype, "time_zone", None)
    return values if zone is None else values.dt.tz_localize("UTC").dt.tz_convert(zone)


def _without_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose named or dated index levels are columns."""
    levels = [
        frame.index.get_level_values(i)
        for i, name in enumerate(frame.index.names)
        if name is not None or isinstance(frame.index.get_level_values(i), pd.DatetimeIndex)
    ]
    columns = {
        name: level for level in levels if (name := level.name if level.name is not None else "time") not in frame
    }
    frame = frame.reset_index(drop=True)
    frame.columns = [str(name) for name in frame.columns]
    return pd.concat([pd.DataFrame(columns), frame], axis=1) if columns else frame


def _open_file(path: Path, named: Collection[str]) -> Source:
    name = path.name.split(".")[0] or "plant"
    if not path.is_file():
        raise FileNotFoundError(f"{path} must be a CSV or Parquet file, and there is no such file")
    if path.suffix.lower() in PARQUET:
        return Source(_without_index(_read_parquet(path)), name, 1, "row")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix.lower() == ".gz" else path.read_bytes()
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} must be a complete gzip file, and it is damaged ({error})") from error
    if data.startswith(SPREADSHEETS):
        raise ValueError(f"{path} must be a CSV or Parquet file, and it is a spreadsheet. {SAVE_AS_CSV}")
    data = data.rstrip(b"\r\n \t")
    if not data:
        raise ValueError(f"{path} must be a table with a header, and it is empty")
    return _read_text(data, path, name, named)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"Parquet files need pyarrow ({path}). Try: pip install 'metaprior[parquet]'", name="pyarrow"
        ) from error
    except Exception as error:  # pyarrow has errors of its own, which cannot be named without it
        raise ValueError(f"{path} must be a Parquet file, and it cannot be read ({error})") from error


def _read_text(data: bytes, path: Path, name: str, named: Collection[str]) -> Source:
    remarks: list[tuple[str, str, Rows]] = []
    encoding = "utf-8-sig"
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        encoding = "latin-1"
        remarks.append(("encoding", "the file is not UTF-8 and was read as Latin-1", NO_ROWS))
    titles = _title_lines(data, encoding, named)
    if titles:
        *above, data = data.split(b"\n", titles)
        count = f"{titles} lines above it were" if titles > 1 else "line above it was"
        told = f"the header is line {titles + 1}; the {count} left out, as {above[0].decode(encoding).strip()!r}"
        remarks.append(("titles", told, NO_ROWS))
    separator, header = _fields(data.split(b"\n", 1)[0].decode(encoding))
    if len(set(header)) < len(header):
        raise ValueError(
            f"{path} must have different names in its header, got {', '.join(header)}. Delete lines above the header "
            "if there are any."
        )
    lines = data.count(b"\n")
    options: dict[str, Any] = {"sep": separator, "encoding": encoding, "header": None, "names": header, "skiprows": 1}
    options |= {"index_col": False, "skip_blank_lines": False}
    texts = {column: "category" for column in header if role_of(column) in TEXT_ROLES}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(io.BytesIO(data), dtype=texts, low_memory=False, **options)
    except pd.errors.EmptyDataError:
        frame = pd.DataFrame(columns=header)
    except (pd.errors.ParserError, pd.errors.ParserWarning, ValueError):
        frame = None
    if frame is None or len(frame) != lines:
        frame, bad = _line_by_line(data.decode(encoding), header, separator)
        remarks.append(
            ("bad lines", f"{len(bad)} lines do not have {len(header)} fields and were left out", np.asarray(bad))
        )
    else:
        frame = _with_thousands_as_text(frame, data, options)
    return Source(frame, name, titles + 2, "line", separator != ",", remarks)


def _fields(line: str) -> tuple[str, list[str]]:
    """Return the sign that separates the fields of a header, and the fields."""
    separator = max(",;\t", key=line.count)
    return separator, [entry.strip() for entry in next(csv.reader([line], delimiter=separator), [])]


def _title_lines(data: bytes, encoding: str, named: Collection[str]) -> int:
    """Return the number of lines above the header: the first line with a name of times, or all names that are stated.

    It is 0 where no line has that, or where the line below has another number of fields.
    """
    lines = [line.decode(encoding).rstrip("\r") for line in data.split(b"\n", TITLE_LINES + 1)[: TITLE_LINES + 1]]
    fields = [_fields(line)[1] for line in lines]
    for number, names in enumerate(fields[:TITLE_LINES]):
        stated = bool(named) and set(named) <= set(names)
        if stated or any(role_of(name) in ("time", "date") for name in names):
            below = fields[number + 1] if number + 1 < len(fields) else names
            return number if len(names) > 1 and len(below) == len(names) else 0
    return 0


def _with_thousands_as_text(frame: pd.DataFrame, data: bytes, options: dict[str, Any]) -> pd.DataFrame:
    """Return the table with columns as texts whose points may separate thousands, which are not decimals."""
    floats = [name for name in frame.columns if frame[name].dtype.kind == "f"]
    suspects = [name for name in floats if may_have_thousands(frame[name].to_numpy())]
    if not suspects:
        return frame
    texts = pd.read_csv(io.BytesIO(data), dtype=str, usecols=suspects, keep_default_na=False, **options)
    read = {name: numbers(texts[name], decimal_comma=options["sep"] != ",") for name in suspects}
    chosen = [name for name, found in read.items() if len(found.thousands) or len(found.ambiguous)]
    return frame.assign(**{name: texts[name] for name in chosen})


def _line_by_line(text: str, header: list[str], separator: str) -> tuple[pd.DataFrame, list[int]]:
    """Return a frame of text with an empty row for each line that has a wrong number of fields, and these rows."""
    rows: list[list[str]] = []
    bad: list[int] = []
    for number, line in enumerate(text.split("\n")[1:]):
        try:
            fields = next(csv.reader([line.rstrip("\r")], delimiter=separator, strict=True), [])
        except csv.Error:
            fields = []
        if len(fields) != len(header):
            fields = [""] * len(header)
            bad.append(number)
        rows.append(fields)
    return pd.DataFrame(rows, columns=header, dtype=object), bad
