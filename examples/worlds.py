"""Draw the pictures of the page about worlds: ``python -m examples.worlds docs/images``."""

import argparse
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from metaprior.checkpoint import write_file
from metaprior.noise import Noise
from metaprior.report.canvas import new_figure, png
from metaprior.solar.simulator.worlds import Sensor, Weather, World, draw_world
from metaprior.solar.simulator.worlds.parameters import Day, Ground, Layer, View
from metaprior.solar.simulator.worlds.world import observe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Image = NDArray[np.floating]
SIZE = 80
LARGER = 96
"""Pixels along each side of pictures of one parameter, and of the gallery."""
MISSING = "#e8a33d"
LEVELS = 32
"""Levels of grey: few of them keep the files small."""

VIEW = View(
    disk=False,
    latitude=45.0,
    longitude=10.0,
    pixel_km=6.0,
    cadence=10,
    day_of_year=172,
    start_minute=600,
    north_up=True,
    off_centre=(0.0, 0.0),
)
GROUND = Ground(
    land=0.02,
    scale_km=300.0,
    sea_albedo=0.05,
    land_albedo=0.1,
    contrast=0.1,
    bright=0.0,
    temperature=290.0,
    diurnal=10.0,
    relief=5.0,
)
LAYER = Layer(
    texture="plain",
    slope=3.2,
    outer_km=150.0,
    stretch=1.0,
    direction=0.6,
    swirl=0.0,
    cover=0.5,
    sharpness=4.0,
    plateau=0.3,
    depth=15.0,
    patchiness=0.0,
    lifetime=3.0,
    lifetime_power=0.7,
    smooth_in_time=True,
    wind=(10.0, 0.0),
    cells=0,
    cell_km=20.0,
    cell_hours=2.0,
    cooling=20.0,
)
DAY = Day(
    wind=(0.0, 0.0),
    cloudiness=0.0,
    growth=0.0,
    front=0.0,
    front_angle=0.5,
    front_place=0.0,
    front_speed=0.0,
    front_width=0.1,
    turning=0.0,
    rotation=0.0,
    divergence=0.0,
    shear=(0.0, 0.0),
    waviness=0.0,
    jet=0.0,
)
HIGH = replace(LAYER, texture="ridged", outer_km=300.0, stretch=1.5, cover=0.4, sharpness=2.0, depth=5.0, cooling=60.0)
HEAPS = replace(LAYER, texture="cellular", outer_km=50.0, cover=0.3, depth=25.0)
WEATHER = Weather(VIEW, GROUND, (LAYER,), (DAY,))
SENSOR = Sensor(
    kind="reflectance",
    sun_exponent=0.0,
    night="dark",
    night_sine=0.0,
    haze=0.02,
    limb=0.0,
    shading=0.0,
    blur=0.4,
    jitter=0.0,
    flicker=0.0,
    gamma=1.0,
    black=0.0,
    white=0.9,
    inverted=False,
    noise=0.0,
    striping=0.0,
    blocks=0.0,
    overlay=0.0,
    bits=0,
    gain=1.0,
    offset=0.0,
    units="1",
    lines=0.0,
    holes=0.0,
)
WHOLE = replace(VIEW, disk=True, latitude=0.0, pixel_km=13500 / SIZE, start_minute=680)
WIDE = replace(VIEW, pixel_km=60.0, start_minute=1040)
LOW = replace(VIEW, start_minute=1090)
"""A whole disk, a map so large that it is day in a part of it and night in another, and one under a low sun."""
DARK_GROUND = replace(
    WEATHER,
    ground=replace(GROUND, land=0.98, scale_km=200.0, land_albedo=0.06, contrast=0.15),
    layers=(replace(LAYER, cover=0.001),),
)


class Panel(NamedTuple):
    """A picture, and the value that it was drawn with."""

    label: str
    image: Image


class Row(NamedTuple):
    """Panels that differ in one parameter."""

    name: str
    panels: Sequence[Panel]


def seen(weather: Weather = WEATHER, sensor: Sensor = SENSOR, *, frames: int = 2) -> World:
    """Return the world of this weather through this sensor, always from the same random numbers."""
    generator = Noise(1).fork("pictures of worlds").generator()
    return observe(weather, sensor, size=SIZE, frames=frames, located=True, generator=generator)


def last(world: World) -> Image:
    """Return the last frame."""
    frame: Image = world.values[0, -1]
    return frame


def over_time(world: World) -> Image:
    """Return the middle row of each frame, one below the other."""
    rows: Image = world.values[0, :, SIZE // 2]
    return rows


def of_layer(label: str, *, slices: bool = False, **changes: object) -> Panel:
    """Return a panel of a layer with these changes: its last frame, or a slice over time."""
    weather = replace(WEATHER, layers=(replace(LAYER, **changes),))  # type: ignore[arg-type]
    return Panel(label, over_time(seen(weather, frames=SIZE // 2)) if slices else last(seen(weather)))


def of_layers(label: str, *layers: Layer) -> Panel:
    """Return a panel of several layers."""
    return Panel(label, last(seen(replace(WEATHER, layers=layers))))


def of_day(label: str, **changes: object) -> Panel:
    """Return a panel of a day with these changes."""
    return Panel(label, last(seen(replace(WEATHER, days=(replace(DAY, **changes),)))))  # type: ignore[arg-type]


def of_sensor(label: str, *, view: View = VIEW, **changes: object) -> Panel:
    """Return a panel of a sensor with these changes; clouds are larger on larger maps."""
    layer = replace(LAYER, outer_km=25 * view.pixel_km)
    weather = replace(WEATHER, view=view, layers=(layer,))
    return Panel(label, last(seen(weather, replace(SENSOR, **changes))))  # type: ignore[arg-type]


def of_still_clouds(label: str, **changes: object) -> Panel:
    """Return a panel of a sensor with these changes over time, of clouds that stand still."""
    still = replace(WEATHER, layers=(replace(LAYER, wind=(0.0, 0.0), lifetime=10.0),))
    return Panel(label, over_time(seen(still, replace(SENSOR, **changes), frames=SIZE // 2)))  # type: ignore[arg-type]


def of_dark_ground(label: str, bits: int) -> Panel:
    """Return a panel of the darkest part of the range, over ground without clouds, of so many bits."""
    sensor = replace(SENSOR, gamma=2.2, bits=bits)
    return Panel(label, 80 * last(seen(DARK_GROUND, sensor)))


def weather_rows() -> list[Row]:
    """Return what single parameters of the weather do."""
    return [
        Row("wind, over time", [of_layer(f"{u} m/s", slices=True, wind=(float(u), 0.0)) for u in (0, 5, 15)]),
        Row("lifetime, over time", [of_layer(f"{h} h", slices=True, lifetime=h) for h in (0.3, 2.0, 10.0)]),
        Row("texture", [of_layer(name, texture=name) for name in ("plain", "ridged", "cellular")]),
        Row("slope", [of_layer(str(s), slope=s) for s in (2.2, 3.2, 4.2)]),
        Row("outer scale", [of_layer(f"{km} km", outer_km=float(km)) for km in (50, 150, 600)]),
        Row("stretch", [of_layer(str(s), stretch=s) for s in (1.0, 1.35, 2.0)]),
        Row("swirl", [of_layer(str(s), swirl=s) for s in (0.0, 0.05, 0.2)]),
        Row("cover", [of_layer(str(c), cover=c) for c in (0.1, 0.5, 0.9)]),
        Row("sharpness", [of_layer(str(s), sharpness=s) for s in (1.5, 4.0, 15.0)]),
        Row("plateau", [of_layer(str(p), plateau=p) for p in (0.0, 0.4, 0.8)]),
        Row("patchiness", [of_layer(str(p), patchiness=p) for p in (0.001, 0.4, 0.9)]),
        Row("cells", [of_layer(str(n), cells=n, cell_km=50.0, cover=0.15) for n in (0, 20, 59)]),
        Row("layers", [of_layers("1", LAYER), of_layers("2", LAYER, HIGH), of_layers("3", LAYER, HIGH, HEAPS)]),
        Row("front", [of_day(label, front=b) for label, b in (("0", 1e-6), ("1", 1.0), ("-2", -2.0))]),
    ]


def sensor_rows() -> list[Row]:
    """Return what single parameters of the sensor do."""
    return [
        Row("gamma", [of_sensor(str(g), gamma=g) for g in (0.4, 1.0, 2.2)]),
        Row("clipping at white", [of_sensor(str(w), white=w) for w in (1.05, 0.8, 0.6)]),
        Row("noise", [of_sensor(str(n), noise=n) for n in (0.0, 0.01, 0.03)]),
        Row("blur (pixels)", [of_sensor(str(b), blur=b) for b in (0.35, 0.6, 1.2)]),
        Row("bits, brightened", [of_dark_ground("all", 0), of_dark_ground("10", 10), of_dark_ground("8", 8)]),
        Row(
            "inverted",
            [of_sensor("no"), of_sensor("yes", inverted=True), of_sensor("gamma 2.2", inverted=True, gamma=2.2)],
        ),
        Row(
            "missing",
            [
                of_sensor("nothing"),
                of_sensor("lines 0.03", lines=0.03),
                of_sensor("a part", holes=1.0),
            ],
        ),
        Row("blocks", [of_sensor(str(b), blocks=b) for b in (0.0, 0.2, 0.45)]),
        Row("jitter, over time", [of_still_clouds(f"{j} pixels", jitter=j) for j in (0.0, 0.3, 1.0)]),
        Row("flicker, over time", [of_still_clouds(str(f), flicker=f) for f in (0.0, 0.02, 0.04)]),
        Row(
            "terminator",
            [
                of_sensor("index by day", view=WIDE, kind="index", night="missing", night_sine=0.1, white=1.0),
                of_sensor("power 0.5", view=WIDE, sun_exponent=0.5, white=0.5),
                of_sensor("power 1.2", view=WIDE, sun_exponent=1.2, white=0.5),
            ],
        ),
        Row("limb", [of_sensor(str(e), view=WHOLE, limb=e, sun_exponent=0.5) for e in (0.0, 0.2, 0.4)]),
        Row("shading, low sun", [of_sensor(str(s), view=LOW, shading=s) for s in (0.0, 0.5, 1.0)]),
        Row(
            "overlay, stripes",
            [
                of_sensor("lines 0.5", overlay=0.5),
                of_sensor("lines 1", overlay=1.0),
                of_sensor("stripes 0.01", striping=0.01),
            ],
        ),
    ]


def parameters(path: Path, rows: Sequence[Row], *, columns: int = 2, side: float = 1.0) -> None:
    """Draw rows of panels beside each other; write a PNG."""
    count = len(rows[0].panels)
    lines = -(-len(rows) // columns)
    figure = new_figure(columns * (count * side + 0.45), lines * (side + 0.27), dpi=110)
    for part, block in enumerate(figure.subfigures(1, columns, squeeze=False, wspace=0.02)[0]):
        shown = rows[part * lines : (part + 1) * lines]
        grid = block.subplots(lines, count, squeeze=False)
        for line, row in zip(grid, shown, strict=False):
            for axes, panel in zip(line, row.panels, strict=True):
                draw(axes, panel)
            line[0].set_ylabel(row.name, fontsize=8)
        for line in grid[len(shown) :]:
            for axes in line:
                axes.set_axis_off()
    save_small(figure, path)


def draw(axes: "Axes", panel: Panel, limits: tuple[float, float] = (0.0, 1.0)) -> None:
    """Draw one picture in greys; missing values are orange."""
    from matplotlib import colormaps

    greys, (low, high) = colormaps["gray"].resampled(LEVELS), limits
    axes.imshow(panel.image, cmap=greys, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.set(xticks=[], yticks=[], facecolor=MISSING)
    axes.set_title(panel.label, fontsize=8, pad=2)


def save_small(figure: "Figure", path: Path) -> None:
    """Write a PNG of few colours, which is a third of the usual size."""
    from PIL import Image as Picture

    picture, file = Picture.open(io.BytesIO(png(figure))).convert("RGB"), io.BytesIO()
    picture.quantize(48, dither=Picture.Dither.NONE).save(file, "PNG", optimize=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, file.getvalue())


def gallery(path: Path, seeds: Sequence[int] = range(12), *, columns: int = 4) -> None:
    """Draw one frame of each of several worlds; write a PNG."""
    lines = -(-len(seeds) // columns)
    figure = new_figure(columns * 1.75, lines * 2.1, dpi=110)
    for axes, seed in zip(figure.subplots(lines, columns, squeeze=False).flat, seeds, strict=True):
        world = draw_world(seed, size=LARGER, days=1, frames=4)
        view, shown = world.weather.view, max(world.values[0], key=lambda frame: float(np.nanstd(frame)))
        label = f"{world.kind}{', disk' if view.disk else ''}\n{world.cadence} min, {view.pixel_km:.2g} km"
        draw(axes, Panel(label, shown), (float(np.nanmin(shown)), float(np.nanmax(shown))))
    save_small(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the pictures into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures are written")
    folder = parser.parse_args(arguments).folder
    torch.set_num_threads(1)
    gallery(folder / "worlds-gallery.png")
    parameters(folder / "worlds-weather.png", weather_rows())
    parameters(folder / "worlds-sensor.png", sensor_rows())


if __name__ == "__main__":
    main()
