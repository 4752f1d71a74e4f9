"""What a page shows, checked at the door: maps to look at, rows of scores, and the run's settings."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaprior.text_table import Row

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Maps:
    """One forecast to look at, beside what happened: a window of one task.

    ``target``, ``mean`` and ``std`` are ``(L, H, W)``, one map for each lead time. ``samples`` are ``(S, L, H, W)``,
    each the mean plus std times the standardised errors of one support window (see ``maps_of``): no draws of the
    forecast, which says nothing about how pixels go together. ``inputs`` are the ``(I, H, W)`` frames that it saw.
    NaN is a value that nobody knows.
    ``issued`` is the ISO time of the last input frame, UTC unless it says otherwise; lead times are
    ``cadence_minutes`` apart. Row 0 is drawn on top, unless ``latitude`` (of the rows) says that it is in the south.
    In a page, a value takes 2.7 bytes: 256 x 256 maps of 4 lead times and 5 samples 6 MB.
    """

    name: str
    issued: str
    cadence_minutes: int
    target: Array
    mean: Array
    std: Array
    units: str
    samples: Array | None = None
    inputs: Array | None = None
    latitude: Array | None = None
    longitude: Array | None = None

    def __post_init__(self) -> None:
        _check_shapes(self)
        for name in ("target", "mean", "std", "samples", "inputs"):
            values = getattr(self, name)
            if values is not None and np.isinf(values).any():
                raise ValueError(f"maps {self.name!r}: {name} holds infinite values; give NaN for what is not known")
        if np.any(self.std < 0):
            raise ValueError(f"maps {self.name!r}: std goes down to {np.nanmin(self.std):.4g}; it cannot be negative")
        if self.cadence_minutes < 1:
            raise ValueError(f"maps {self.name!r}: cadence_minutes is {self.cadence_minutes}; give at least 1")
        _time(self)

    @property
    def lead_minutes(self) -> list[int]:
        """From the last input frame to each target."""
        return [int(self.cadence_minutes) * (step + 1) for step in range(len(self.target))]

    @property
    def issued_text(self) -> str:
        """When the last input frame was seen, as people write it."""
        return _time_text(_time(self))

    @property
    def valid_texts(self) -> list[str]:
        """When each target was seen."""
        return [_time_text(_time(self) + timedelta(minutes=lead)) for lead in self.lead_minutes]

    @property
    def error(self) -> Array:
        """Mean minus target: positive where the forecast is too high."""
        return np.asarray(self.mean, dtype=float) - self.target

    def north_up(self) -> "Maps":
        """The same maps with the north on top and the east on the right."""
        rows = slice(None, None, -1) if _runs(self.latitude, upward=True) else slice(None)
        columns = slice(None, None, -1) if _runs(self.longitude, upward=False) else slice(None)

        def turned(layer: Array | None) -> Array | None:
            return None if layer is None else layer[..., rows, columns]

        return Maps(
            name=self.name,
            issued=self.issued,
            cadence_minutes=self.cadence_minutes,
            target=self.target[..., rows, columns],
            mean=self.mean[..., rows, columns],
            std=self.std[..., rows, columns],
            units=self.units,
            samples=turned(self.samples),
            inputs=turned(self.inputs),
            latitude=None if self.latitude is None else self.latitude[rows],
            longitude=None if self.longitude is None else self.longitude[columns],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PageContent:
    """What a page tells; a part that is empty is left out with a note.

    ``story`` is plain text, paragraphs apart by an empty line. A row of ``scores`` has ``method``, ``lead_minutes``
    (a number, or ``"all"``) and measures by name, with their 95 % interval ``<measure>_low``, ``<measure>_high``; a row
    of ``learning_curve`` has ``method``, ``shots`` and the same. What is missing, None or NaN is shown as unknown.
    ``reliability`` has, for each method, pairs of an interval's level and the share of targets found inside.
    ``ours`` is the method to highlight, one of those in ``scores``.
    """

    title: str
    story: str
    units: str
    ours: str | None = None
    scores: list[Row] = field(default_factory=list)
    reliability: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    learning_curve: list[Row] = field(default_factory=list)
    maps: list[Maps] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_rows("scores", self.scores, "lead_minutes")
        _check_rows("learning_curve", self.learning_curve, "shots")
        known = list(dict.fromkeys(row["method"] for row in self.scores))
        if self.ours is not None and known and self.ours not in known:
            raise ValueError(f"ours is {self.ours!r}, which has no row in scores; there are {', '.join(known)}")

    @property
    def methods(self) -> list[str]:
        """All methods of all parts, the highlighted one first."""
        named = [row["method"] for row in [*self.scores, *self.learning_curve]]
        first = [] if self.ours is None else [self.ours]
        return list(dict.fromkeys([*first, *named, *self.reliability]))


def _check_shapes(maps: Maps) -> None:
    """All layers on the grid of the targets."""
    if maps.target.ndim != 3 or 0 in maps.target.shape:
        raise ValueError(
            f"maps {maps.name!r}: target has shape {maps.target.shape}; give (lead times, rows, columns), none 0"
        )
    leads, height, width = maps.target.shape
    expected: dict[str, tuple[int | None, ...]] = {
        "mean": (leads, height, width),
        "std": (leads, height, width),
        "samples": (None, leads, height, width),
        "inputs": (None, height, width),
        "latitude": (height,),
        "longitude": (width,),
    }
    for name, shape in expected.items():
        values = getattr(maps, name)
        if values is not None and not _fits(values.shape, shape):
            wanted = ", ".join("any number" if size is None else str(size) for size in shape)
            raise ValueError(
                f"maps {maps.name!r}: {name} has shape {values.shape}, target {maps.target.shape}; give ({wanted})"
            )


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        size == other or (other is None and size > 0) for size, other in zip(shape, wanted, strict=True)
    )


def _check_rows(name: str, rows: list[Row], key: str) -> None:
    """Every row says of what it is, once."""
    seen: set[tuple[str, object]] = set()
    for number, row in enumerate(rows):
        if missing := [wanted for wanted in ("method", key) if wanted not in row]:
            raise ValueError(f"{name}[{number}] lacks {' and '.join(missing)}; it has {', '.join(row) or 'nothing'}")
        of = (row["method"], row[key])
        if not isinstance(of[1], Real) and not (key == "lead_minutes" and of[1] == "all"):
            allowed = 'a number or "all"' if key == "lead_minutes" else "a number"
            raise ValueError(f"{name}[{number}]: {key} is {of[1]!r}; give {allowed}")
        if of in seen:
            raise ValueError(f"{name}[{number}]: {of[0]!r} has {key} {of[1]} twice; give one row for each")
        seen.add(of)


def _runs(coordinate: Array | None, *, upward: bool) -> bool:
    return coordinate is not None and len(coordinate) > 1 and bool((coordinate[-1] > coordinate[0]) == upward)


def _time(maps: Maps) -> datetime:
    try:
        time = datetime.fromisoformat(maps.issued)
    except ValueError:
        raise ValueError(
            f"maps {maps.name!r}: issued is {maps.issued!r}; give an ISO time such as 2026-02-11T03:00"
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _time_text(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
