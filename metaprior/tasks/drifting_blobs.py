r"""Synthetic frames to forecast: soft blobs that drift, grow or fade, with parameters that differ between tasks.

Frame $t$ of a sequence, at pixel $p$ of a torus (what leaves at one edge returns at the other),

$$\tau_t(p) = g\,e^{r(t - t_0)} \sum_b a_b \exp\big(-|p - c_b - v t|^2 / 2 w^2\big),\qquad
  \mathrm{frame}_t(p) = 2\,(1 - e^{-\tau_t(p)}) - 1 + s\,\epsilon,$$

with $t_0$ the last input frame: the brightness of a cloud of optical depth $\tau$, from -1 (nothing) to 1 (opaque).
The task says velocity $v$, gain $g$, growth $r$, width $w$ and noise $s$; an example has its own blobs, centres $c_b$
and depths $a_b$, and a velocity that differs a little from the task's.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.checks import check_counts
from metaprior.noise import task_generator, uniform
from metaprior.tasks.task import Task, check_index

BLOBS = 3
DEPTHS = (0.5, 1.5)
VELOCITIES = (-1.5, 1.5)
VELOCITY_JITTER = 0.05
GAINS = (0.5, 1.5)
GROWTHS = (-0.15, 0.15)
WIDTHS = (0.08, 0.16)
LOG_NOISES = (math.log(0.005), math.log(0.05))


@dataclass(frozen=True)
class Weather:
    """Parameters of one task: velocity in pixels a frame (down, right), and four numbers.

    ``gain`` multiplies the depth of all blobs at the last input frame, ``growth`` is its rate a frame, ``width`` a
    blob's standard deviation in pixels and ``noise`` that of a pixel's value.
    """

    velocity: tuple[float, float]
    gain: float
    growth: float
    width: float
    noise: float


def optical_depth(centres: Tensor, depths: Tensor, width: float, size: int) -> Tensor:
    """Return a sum of Gaussian blobs on a torus: centres (..., blobs, 2), depths (..., blobs) -> (..., size, size)."""
    offset = torch.arange(size) - centres[..., None]  # (..., blobs, 2, size)
    nearest = (offset + size / 2).remainder(size) - size / 2
    rows, columns = torch.exp(-(nearest**2) / (2 * width**2)).unbind(-2)
    return (depths[..., None] * rows).mT @ columns


@dataclass(frozen=True)
class DriftingBlobs:
    """Endless tasks: forecast ``target_len`` frames from ``input_len`` frames, with the ``Weather`` of the task.

    x is (k, input_len, size, size) and y (k, target_len, size, size), both about -1 to 1.

    Args:
        size: Pixels along each side of a frame.
        input_len: Number of frames to see.
        target_len: Number of frames to forecast.
        k_shot: Support examples of a task.
        k_query: Query examples of a task.
        seed: Seed of all draws.
    """

    size: int = 16
    input_len: int = 4
    target_len: int = 2
    k_shot: int = 5
    k_query: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(**{name: value for name, value in vars(self).items() if name != "seed"})

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index, 0 or more."""
        weather, generator = self.weather(index)
        frames = self._sequences(weather, generator)
        x, y = frames.split([self.input_len, self.target_len], 1)
        return Task.split(x.contiguous(), y.contiguous(), self.k_shot, f"drifting blobs {index}")

    def weather(self, index: int) -> tuple[Weather, torch.Generator]:
        """Return the parameters of the task with this index, and the generator that drew them, for the rest of it."""
        check_index(index)
        generator = task_generator("drifting blobs", self.seed, index)
        down, right = uniform(*VELOCITIES, (2,), generator).tolist()
        between = torch.rand(4, generator=generator).tolist()
        ranges = (GAINS, GROWTHS, WIDTHS, LOG_NOISES)
        gain, growth, width, log_noise = (
            low + (high - low) * u for (low, high), u in zip(ranges, between, strict=True)
        )
        return Weather((down, right), gain, growth, width * self.size, math.exp(log_noise)), generator

    def _sequences(self, weather: Weather, generator: torch.Generator) -> Tensor:
        """Return independent sequences (k_shot + k_query, input_len + target_len, size, size)."""
        count = self.k_shot + self.k_query
        times = torch.arange(self.input_len + self.target_len)
        start = uniform(0.0, self.size, (count, 1, BLOBS, 2), generator)
        velocity = torch.tensor(weather.velocity) + VELOCITY_JITTER * torch.randn(count, 1, 1, 2, generator=generator)
        strength = weather.gain * torch.exp(weather.growth * (times - (self.input_len - 1)))
        depths = strength[:, None] * uniform(*DEPTHS, (count, 1, BLOBS), generator)  # (count, times, blobs)
        centres = start + velocity * times[:, None, None]  # (count, times, blobs, 2)
        depth = optical_depth(centres, depths, weather.width, self.size)
        return 1 - 2 * torch.exp(-depth) + weather.noise * torch.randn(depth.shape, generator=generator)
