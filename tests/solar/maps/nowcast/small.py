"""A small nowcaster and a small world to forecast."""

from functools import cache

import torch

from metaprior.solar.maps.nowcast.forecaster import Nowcaster
from metaprior.solar.maps.nowcast.moments import Moments
from metaprior.solar.maps.nowcast.network import NowcastNetwork
from metaprior.solar.simulator.worlds import World, draw_world


def nowcaster(networks: int = 2) -> Nowcaster:
    """Return untrained networks: at first they forecast mostly the moved frame."""
    torch.manual_seed(0)
    made = tuple(NowcastNetwork(4, 2).eval() for _ in range(networks))
    return Nowcaster(made, (1 / networks,) * networks, told=("not trained",))


@cache
def world(days: int = 4, frames: int = 10, size: int = 32) -> World:
    """Return a world with coordinates and daylight in all frames."""
    return draw_world(12, size=size, days=days, frames=frames, cadence=15, kind="irradiance")


def moments(**given: int) -> Moments:
    """Return the archive of the world."""
    return Moments(world(**given).to_frames())
