"""Summaries of entries that survive the rounding of another CPU, and exact ones for a single machine.

A number is stored with six significant digits. A tensor is stored as its shape, its first values, its sum, its L2 norm
and its projection on a fixed pseudo-random unit vector; those are compared relative to the norm, because a sum of many
numbers may be close to zero.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Entry = Tensor | float | str | bool | None
Entries = dict[str, Entry]
Digest = Any
"""What JSON can hold: a number, a string, None, or the summaries of a tensor by name."""

SIGNIFICANT = 6
FIRST = 3
"""Values of a tensor that are stored as they are."""
FLOAT64, FLOAT32 = 1e-5, 1e-4
"""Relative tolerances. Runs of ``metaprior train`` compute in float32: rounding errors of 1e-7 of another CPU are
amplified by Adam, whose first steps divide each gradient by its own size."""
FLOORS = {FLOAT64: 1e-9, FLOAT32: 1e-6}
"""Absolute tolerance beside the relative one: for what is zero but for rounding."""


def digest(value: Entry) -> Digest:
    """Return the summary of an entry."""
    if isinstance(value, Tensor | np.ndarray):
        return _digest_of_tensor(value)
    if isinstance(value, bool | str | int) or value is None:
        return value
    return _rounded(float(value))


def _digest_of_tensor(value: Tensor | np.ndarray) -> dict[str, Any]:
    array = np.asarray(torch.as_tensor(value).detach().cpu()).astype(np.float64)
    flat = array.reshape(-1)
    finite = np.isfinite(flat)
    found: dict[str, Any] = {"shape": list(array.shape), "first": [_rounded(x) for x in flat[:FIRST].tolist()]}
    if not finite.all():
        found["not finite"] = int((~finite).sum())
        flat = np.where(finite, flat, 0.0)
    if len(flat) > FIRST:
        found |= {
            "sum": _rounded(float(flat.sum())),
            "norm": _rounded(float(np.linalg.norm(flat))),
            "projection": _rounded(float(flat @ _direction(len(flat)))),
        }
    return found


def _direction(size: int) -> np.ndarray:
    """Return a unit vector of this size whose entries are hashes of their positions: the same on every machine."""
    mask = np.uint64(0xFFFF_FFFF)
    mixed = (np.arange(1, size + 1, dtype=np.uint64) * np.uint64(2654435761)) & mask
    for _ in range(2):
        mixed = ((mixed ^ (mixed >> np.uint64(16))) * np.uint64(0x45D9F3B)) & mask
    entries = mixed.astype(np.float64) / 2**31 - 1
    unit: np.ndarray = entries / np.linalg.norm(entries)
    return unit


def _rounded(value: float) -> float | str:
    """Return the number with six significant digits; JSON has no infinities, so those are strings."""
    return float(f"{value:.{SIGNIFICANT - 1}e}") if math.isfinite(value) else str(value)


def differences(found: Mapping[str, Digest], expected: Mapping[str, Digest], tolerance: float) -> list[str]:
    """Return a line for each entry that is missing, new, or further from the expected one than the tolerance."""
    lines = [f"{name}: is missing" for name in expected.keys() - found.keys()]
    lines += [f"{name}: is new" for name in found.keys() - expected.keys()]
    for name in sorted(found.keys() & expected.keys()):
        if not _same(found[name], expected[name], tolerance):
            lines.append(f"{name}: {found[name]}, expected {expected[name]}")
    return lines


def _same(found: Digest, expected: Digest, tolerance: float) -> bool:
    if not isinstance(found, dict) or not isinstance(expected, dict):
        return _close(found, expected, tolerance, 0.0)
    if found.keys() != expected.keys() or found["shape"] != expected["shape"]:
        return False
    count = math.prod(expected["shape"])
    numbers = [x for x in expected["first"] if not isinstance(x, str)]
    norm = expected.get("norm", math.hypot(*numbers) if numbers else 0.0)
    scales = {"sum": norm * math.sqrt(count), "norm": norm, "projection": norm, "not finite": 0.0}
    return all(
        _close(found[name], expected[name], tolerance, scales[name]) for name in scales if name in found
    ) and all(
        _close(one, other, tolerance, norm / math.sqrt(max(1, count)))
        for one, other in zip(found["first"], expected["first"], strict=True)
    )


def _close(found: Digest, expected: Digest, tolerance: float, scale: float) -> bool:
    exact = (str, bool, int, type(None))
    if isinstance(expected, exact) or isinstance(found, exact):
        return bool(found == expected)
    return bool(abs(found - expected) <= tolerance * max(abs(expected), scale) + FLOORS[tolerance])


def exact_digest(value: Entry) -> str:
    """Return the SHA-256 of the type, shape and every bit of an entry."""
    if isinstance(value, Tensor | np.ndarray):
        array = np.ascontiguousarray(torch.as_tensor(value).detach().cpu().numpy())
        content = f"{array.dtype} {array.shape} ".encode() + array.tobytes()
    else:
        content = repr(value).encode()
    return hashlib.sha256(content).hexdigest()


def read(path: Path) -> dict[str, dict[str, Digest]]:
    """Return the digests in a file: case -> entry -> digest."""
    content: dict[str, dict[str, Digest]] = json.loads(path.read_text(encoding="utf-8"))
    return content


def write(path: Path, digests: Mapping[str, Mapping[str, Digest]]) -> None:
    """Write digests to a file, sorted, with one entry on each line."""
    cases = []
    for case, entries in sorted(digests.items()):
        lines = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(entries.items())]
        cases.append(f"  {json.dumps(case)}: {{\n" + ",\n".join(lines) + "\n  }")
    path.write_text("{\n" + ",\n".join(cases) + "\n}\n", encoding="utf-8")
