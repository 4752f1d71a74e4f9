"""A world in words: what was drawn for it."""

from metaprior.solar.simulator.worlds.clouds import mean_displacements
from metaprior.solar.simulator.worlds.parameters import Layer, Sensor
from metaprior.solar.simulator.worlds.world import World
from metaprior.text_table import counted


def in_words(world: World) -> list[str]:
    """Return lines about the product and its view, each layer of clouds from the lowest, and the sensor."""
    layers = world.weather.layers
    of = f" of {len(layers)}" if len(layers) > 1 else ""
    clouds = [f"clouds, layer {number}{of}: {_layer(world, layer)}" for number, layer in enumerate(layers, 1)]
    return [_product(world), *clouds, f"sensor: {', '.join(_sensor(world.sensor))}"]


def _product(world: World) -> str:
    """Return what is measured, where and when."""
    view, size = world.weather.view, world.values.shape[-1]
    days, frames = world.times.shape
    where = f"a disk seen from {_degrees(view.longitude, 'EW')}" if view.disk else _place(world)
    return (
        f"{world.kind} in {world.sensor.units}, {where}; {counted(days, 'day')} of {frames} frames of {size} x {size} "
        f"pixels of {view.pixel_km:.3g} km, every {view.cadence} minutes from "
        f"{world.times[0, 0].astype('datetime64[m]')} UTC"
    )


def _place(world: World) -> str:
    view = world.weather.view
    known = "" if world.located else ", which the archive does not tell"
    return f"around {_degrees(view.latitude, 'NS')} {_degrees(view.longitude, 'EW')}{known}"


def _degrees(value: float, letters: str) -> str:
    return f"{abs(value):.0f} {letters[value < 0]}"


def _layer(world: World, layer: Layer) -> str:
    """Return what one layer looks like, and how it moves and lives."""
    steps = mean_displacements(world.weather, layer, world.times.shape[1])
    motion = f"{float(steps.norm(dim=-1).mean()):.2g} pixels a frame"
    parts = [
        f"{layer.texture} texture up to {_length(layer.outer_km)}",
        f"covers about {100 * layer.cover:.0f} %",
        f"moves {motion}" if any(layer.wind) else "stands still",
        f"waves of 30 km live {_hours(layer.lifetime)}",
    ]
    if layer.stretch > 1:
        parts.append(f"{layer.stretch**2:.2g} times as long as wide")
    if layer.cells:
        parts.append(f"{layer.cells} heaps a day that grow for up to {_hours(1.5 * layer.cell_hours)}")
    return ", ".join(parts)


def _length(kilometres: float) -> str:
    return f"{kilometres:.3g} km" if kilometres < 1000 else f"{kilometres:,.0f} km"


def _hours(hours: float) -> str:
    return f"{hours:.2g} h" if hours >= 1 else f"{60 * hours:.0f} min"


def _sensor(sensor: Sensor) -> list[str]:
    """Return what sets a sensor apart from a plain one."""
    told = [
        f"gamma {sensor.gamma:.2g}" if sensor.gamma != 1 else "",
        "inverted" if sensor.inverted else "",
        f"{sensor.bits} bits" if sensor.bits else "",
        f"darkens with the sun to the power {sensor.sun_exponent:.2g}" if sensor.sun_exponent else "",
        "darker at the limb" if sensor.limb else "",
        "clouds lit from one side" if sensor.shading else "",
        f"blur of {sensor.blur:.2g} pixels",
        f"frames off by {sensor.jitter:.2g} pixels" if sensor.jitter else "",
        f"brightness varies by {100 * sensor.flicker:.2g} %" if sensor.flicker else "",
        f"noise of {100 * sensor.noise:.2g} % of the range" if sensor.noise else "",
        "stripes" if sensor.striping else "",
        "blocks of compression" if sensor.blocks else "",
        "lines drawn over it" if sensor.overlay else "",
        "missing lines" if sensor.lines else "",
        "missing parts" if sensor.holes else "",
        "nothing by night" if sensor.night == "missing" and sensor.kind != "thermal" else "",
    ]
    return [text for text in told if text]
