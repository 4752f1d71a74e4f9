"""The page of a nowcast: its maps, what was assumed, how far to trust it, and scores of earlier moments."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metaprior.report.page.content import PageContent, Section
from metaprior.report.page.writing import write_page
from metaprior.solar.maps.archives.coordinates import is_projected
from metaprior.solar.maps.nowcast.backtest import OURS
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.moments import Moments
from metaprior.solar.maps.nowcast.nowcasting import Nowcast
from metaprior.solar.maps.report.content import maps_section
from metaprior.solar.maps.report.example import ExampleForecast, along
from metaprior.solar.maps.windows import utc
from metaprior.solar.value_units import units_text

Coordinates = NDArray[np.floating]
LARGEST = 360
"""Pixels of a side of the maps on the page; larger frames are thinned."""


def write_nowcast_page(path: Path, found: Nowcast) -> None:
    """Write the page of a forecast; the last earlier moment is shown beside what happened."""
    frames = found.moments.frames
    name = str(frames.attrs.get("long_name", frames.name or "frames"))
    until = utc(found.valid[-1])
    story = f"Issued {utc(found.issued)}, for {len(found.valid)} maps until {until}."
    examples = [example_of(found, found.window, found.issued, "The forecast")]
    if found.checked is not None:
        past = found.checked.times[-1]
        window = found.moments.batch(int(np.flatnonzero(found.moments.times == past)[0]))
        examples.append(example_of(found, window, past, f"Check: as if issued {utc(past)}"))
    content = PageContent(
        title=f"Nowcast of {name}",
        story=f"{story} {_sentences(found.trusted)}",
        units=units_text(str(frames.attrs.get("units", ""))),
        ours=OURS,
        scores=[] if found.checked is None else found.checked.rows(),
        sections=[
            maps_section(examples)._replace(leads=True),
            Section("What was assumed", _list(found.assumed)),
        ],
    )
    write_page(path, content)


def example_of(found: Nowcast, window: Batch, issued: np.datetime64, name: str) -> ExampleForecast:
    """Return the forecast of a window as a page shows it."""
    forecast = found.forecaster.predict(window)
    step = max(1, int(np.ceil(max(found.moments.shape) / LARGEST)))
    thin = (..., slice(None, None, step), slice(None, None, step))
    north, east = directions(found.moments)
    return ExampleForecast(
        name=name,
        issued=str(issued.astype("datetime64[s]")),
        cadence_minutes=max(1, round(found.moments.minutes)),
        target=window.targets[0].numpy()[thin],
        mean=forecast.mean[0].numpy()[thin],
        std=forecast.std[0].numpy()[thin],
        inputs=window.frames[0].numpy()[thin],
        units=units_text(str(found.moments.frames.attrs.get("units", ""))),
        latitude=None if north is None else north[::step],
        longitude=None if east is None else east[::step],
    )


def directions(moments: Moments) -> tuple[Coordinates | None, Coordinates | None]:
    """Return numbers of the rows that grow to the north, and of the columns that grow to the east, where known."""
    place, frames = moments.place, moments.frames
    if place is not None:
        return along(place.latitude, 1), along(place.longitude, 0)
    y, x = (
        frames[name].values if name in frames.coords and is_projected(name, frames[name].variable) else None
        for name in ("y", "x")
    )
    return y, x


def _sentences(lines: Sequence[str]) -> str:
    return " ".join(f"{line[0].upper()}{line[1:]}." for line in lines)


def _list(lines: Sequence[str]) -> str:
    entries = "".join(f"<li>{escape(line[0].upper() + line[1:])}.</li>" for line in lines)
    return f'<ul class="read">{entries}</ul>'
