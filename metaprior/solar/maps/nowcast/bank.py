"""A bank of simulated worlds on disk, from which windows are drawn for training without waiting for the simulator."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from metaprior.progress import track
from metaprior.solar.maps.nowcast.inputs import INPUTS, LEADS, LEAST_LIGHT, Known

SIZE, DAYS, FRAMES = 128, 3, 10
"""Pixels, days and frames of each day of a world in the bank."""
COARSE = 4
"""The sun's elevation is smooth: every so many pixels are kept."""
WITHOUT_SUN, WITHOUT_DAYS = 0.25, 0.4
"""Shares of the windows of located worlds without the sun, and of all windows without earlier days."""
LEAST_PRESENT, LEAST_CONTRAST = 0.05, 0.02
"""Least share of the last frame that is there, and its least standard deviation in shares of the world's."""
LOW_SUN, USUAL_SHARE = 2.0, 0.5
"""Change of light within a window from which the sun counts as low, and the share of the other windows that is kept:
where the sun is low forecasts are hardest, and there are few such windows."""
LENGTH = INPUTS + LEADS


class Batch(NamedTuple):
    """Windows: input frames (N, I, H, W), targets (N, L, H, W), what is known beside them, minutes between frames."""

    frames: Tensor
    targets: Tensor
    known: Known
    minutes: Tensor

    def each(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """Return windows all of whose maps were changed by a function."""
        known = Known(*map(function, self.known))
        return Batch(function(self.frames), function(self.targets), known, self.minutes)

    def part(self, block: Sequence[slice]) -> "Batch":
        """Return the part in these rows and columns."""
        return self.each(lambda maps: maps[..., block[0], block[1]])


@dataclass(frozen=True)
class Bank:
    """The worlds in a folder, each standardised, because half precision has no room for every unit."""

    folder: Path
    worlds: int

    @cached_property
    def values(self) -> NDArray[np.float16]:
        """Standardised values (worlds, days, frames, size, size)."""
        return self._array("values", (self.worlds, DAYS, FRAMES, SIZE, SIZE), np.float16)

    @cached_property
    def sine(self) -> NDArray[np.float16]:
        """Sines of the sun's elevation on a coarse grid."""
        return self._array("sine", (self.worlds, DAYS, FRAMES, SIZE // COARSE, SIZE // COARSE), np.float16)

    @cached_property
    def facts(self) -> NDArray[np.floating]:
        """Mean, scale, minutes between frames, and whether coordinates are known (worlds, 4); 0 if not drawn yet."""
        return self._array("facts", (self.worlds, 4), np.float64)

    def _array(self, name: str, shape: tuple[int, ...], dtype: type) -> NDArray[np.floating]:
        path = self.folder / f"{name}.npy"
        if path.exists():
            stored: NDArray[np.floating] = np.lib.format.open_memmap(path, mode="r+")
            if stored.shape != shape:
                raise ValueError(f"{path} must hold {shape}, got {stored.shape}. Try another folder, or remove it")
            return stored
        made: NDArray[np.floating] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        return made

    def draw(self, seed: int, *, processes: int = 2, progress: bool = True) -> None:
        """Draw the worlds that are not in the folder yet: world i is that of ``seed + i``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = np.flatnonzero(self.facts[:, 1] == 0).tolist() if self.values.size and self.sine.size else []
        context = get_context("spawn")
        with ProcessPoolExecutor(processes, context, _open_in_worker, (self.folder, self.worlds, seed)) as pool:
            drawn = pool.map(_store, missing, chunksize=8)
            for _ in track(drawn, "drawing worlds", unit="worlds", total=len(missing), show=progress):
                pass

    def batches(self, *, size: int, crop: int, seed: int, first: int = 0) -> Iterator[Batch]:
        """Yield random windows, without end; batch i is a function of the seed and i."""
        self._check(crop)
        number = first
        while True:
            rng = np.random.default_rng((seed, number))
            yield _stacked([self._window(crop, rng) for _ in range(size)])
            number += 1

    def _check(self, crop: int) -> None:
        """Raise ValueError unless windows of this size can be read from worlds that have been drawn."""
        if crop % COARSE or not COARSE <= crop <= SIZE:
            raise ValueError(f"crop must be a multiple of {COARSE} from {COARSE} to {SIZE}, got {crop}")
        if missing := int((self.facts[:, 1] == 0).sum()):
            raise ValueError(f"{missing} of {self.worlds} worlds of {self.folder} are not drawn yet. Try draw")

    def _window(self, crop: int, rng: np.random.Generator) -> Batch:
        """Return a random window of a random world whose last frame shows something."""
        while True:
            world, day = int(rng.integers(self.worlds)), int(rng.integers(DAYS))
            start = int(rng.integers(FRAMES - LENGTH + 1))
            if not self._has_low_sun(world, day, start) and rng.random() > USUAL_SHARE:
                continue
            window = self._any_window(world, day, start, crop, rng)
            last = window.frames[-1][window.frames[-1].isfinite()]
            contrast = LEAST_CONTRAST * float(self.facts[world, 1])
            if len(last) >= LEAST_PRESENT * crop**2 and float(last.std()) > contrast:
                return window

    def _has_low_sun(self, world: int, day: int, start: int) -> bool:
        """Return whether the light of the whole map changes much within a window."""
        sine = self.sine[world, day, start : start + LENGTH].astype(np.float32).clip(0)
        light = sine.mean((1, 2)) + LEAST_LIGHT
        return bool(light.max() > LOW_SUN * light.min())

    def _any_window(self, world: int, day: int, start: int, crop: int, rng: np.random.Generator) -> Batch:
        """Return a random part of a window of a world, turned and mirrored at random."""
        y, x = (COARSE * int(rng.integers((SIZE - crop) // COARSE + 1)) for _ in range(2))
        times = slice(start, start + LENGTH)
        place = slice(y, y + crop), slice(x, x + crop)
        mean, scale, minutes, located = self.facts[world].tolist()
        turns, mirrored = int(rng.integers(4)), bool(rng.integers(2))

        def turned(values: NDArray[np.floating]) -> NDArray[np.float32]:
            values = np.rot90(values, turns, (-2, -1))
            return np.ascontiguousarray(values[..., ::-1] if mirrored else values, np.float32)

        def read(days: int | list[int]) -> NDArray[np.float32]:
            stored = turned(self.values[world, days][..., times, place[0], place[1]])
            return stored * np.float32(scale) + np.float32(mean)

        values = torch.from_numpy(read(day))
        sine = torch.full_like(values, torch.nan)
        if located and rng.random() >= WITHOUT_SUN:
            grid = slice(y // COARSE, (y + crop) // COARSE), slice(x // COARSE, (x + crop) // COARSE)
            coarse = torch.from_numpy(turned(self.sine[world, day][times, grid[0], grid[1]]))
            sine = F.interpolate(coarse[None], size=(crop, crop), mode="bilinear", align_corners=False)[0]
        others = [other for other in range(DAYS) if other != day]
        count = 0 if rng.random() < WITHOUT_DAYS else int(rng.integers(1, DAYS))
        typical, darkest = torch.full_like(values, torch.nan), torch.full_like(values[0], torch.nan)
        if count:
            chosen = sorted(rng.choice(others, count, replace=False).tolist())
            typical, darkest = typical_of(torch.from_numpy(read(chosen)))
        known = Known(sine, typical, darkest)
        return Batch(values[:INPUTS], values[INPUTS:], known, torch.tensor(minutes))


def typical_of(days: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of several days (D, T, H, W) at each time, and the least value of all; NaN where none is."""
    present = days.isfinite()
    typical = days.nanmean(0)
    least = torch.where(present, days, torch.full_like(days, torch.inf)).amin((0, 1))
    return typical, torch.where(least.isfinite(), least, torch.full_like(least, torch.nan))


def _stacked(windows: list[Batch]) -> Batch:
    frames = torch.stack([one.frames for one in windows])
    targets = torch.stack([one.targets for one in windows])
    minutes = torch.stack([one.minutes for one in windows])
    known = Known(*(torch.stack(parts) for parts in zip(*(one.known for one in windows), strict=True)))
    return Batch(frames, targets, known, minutes)


def _open_in_worker(folder: Path, worlds: int, seed: int) -> None:
    """Open the bank in a process that draws worlds for it."""
    global _opened
    torch.set_num_threads(1)
    _opened = Bank(folder, worlds), seed


def _store(number: int) -> None:
    """Draw one world and write it into the bank."""
    from metaprior.solar.simulator.worlds import draw_world

    bank, seed = _opened
    world = draw_world(seed + number, size=SIZE, days=DAYS, frames=FRAMES)
    mean, scale = float(np.nanmean(world.values)), float(np.nanstd(world.values))
    bank.values[number] = (world.values - mean) / scale
    size = SIZE // COARSE
    bank.sine[number] = world.sine.reshape(DAYS, FRAMES, size, COARSE, size, COARSE).mean((3, 5))
    bank.facts[number] = (mean, scale, world.cadence, world.located)


_opened: tuple[Bank, int]
"""The bank of a process that draws worlds, and the seed of its first one."""
