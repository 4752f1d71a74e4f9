"""Random numbers as an argument: identified by their purpose, never stored, and replayed from their index."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Noise:
    """Standard normal noise, a pure function of (seed, task, step, sample).

    The same four numbers give the same noise on the same kind of device and the same release of torch, in any order
    and in any process, and no other random generator is used. Different numbers give independent streams. (On the CPU
    torch seeds its generator with 32 bits, so any two indices coincide with probability 2**-32.)
    """

    seed: int = 0
    task: int = 0
    step: int = 0
    sample: int = 0

    def at(self, *, task: int | None = None, step: int | None = None, sample: int | None = None) -> "Noise":
        """Return the noise at another index; what is not given stays."""
        given = {"task": task, "step": step, "sample": sample}
        return replace(self, **{name: index for name, index in given.items() if index is not None})

    def fork(self, purpose: str) -> "Noise":
        """Return an independent stream for another purpose (shuffling, held-out samples), derived from this one."""
        return replace(self, seed=self._digest(purpose) >> 1)

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """Return a new torch generator for this index."""
        return torch.Generator(device).manual_seed(self._digest("noise") & 0xFFFF_FFFF)

    def normal(self, like: Tensor) -> Tensor:
        """Return noise of the shape, type and device of ``like``."""
        generator = self.generator(like.device)
        return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)

    def in_parts(self, like: Tensor, parts: Iterable[slice]) -> Iterator[Tensor]:
        """Iterate over the parts of ``normal(like)``, a vector, in order; on the CPU it is never held whole.

        Parts cover the vector, begin at multiples of 16, and the last one has at least 16 numbers (or is the only one).
        """
        if like.device.type != "cpu":  # other devices draw other numbers where they draw fewer at once
            whole = self.normal(like)
            yield from (whole[part] for part in parts)
            return
        generator = self.generator()
        for part in parts:
            yield torch.randn(part.stop - part.start, dtype=like.dtype, generator=generator)

    def normals(self, like: Tensor, samples: range) -> Tensor:
        """Return noise for several samples, stacked: row i is ``self.at(sample=samples[i]).normal(like)``."""
        return torch.stack([self.at(sample=sample).normal(like) for sample in samples])

    def _digest(self, purpose: str) -> int:
        key = f"{purpose}/{self.seed}/{self.task}/{self.step}/{self.sample}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


def task_generator(source: str, seed: int, index: int) -> torch.Generator:
    """Return the random generator of one task, a function of the source's name, the seed and the index alone."""
    return Noise(seed).fork(source).at(task=index).generator()


def uniform(low: float, high: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return numbers drawn uniformly between low and high."""
    return low + (high - low) * torch.rand(shape, generator=generator)
