"""``python -m tests.devices NAME ...`` prints one line of JSON for each scenario."""

import json
import os
import sys
import traceback
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten_with_path

from tests.devices.mirror import MIRROR, MirrorTensor, mirror_device
from tests.devices.scenarios import SCENARIOS


def numbers_of(result: Any) -> dict[str, Tensor]:
    """Return the tensors of a result by their place in it, on the CPU."""
    flat, _ = tree_flatten_with_path(result)
    named = {"".join(map(str, path)): torch.as_tensor(value) for path, value in flat}
    return {name: value.host if isinstance(value, MirrorTensor) else value for name, value in named.items()}


def difference(found: Tensor, expected: Tensor) -> float:
    if found.shape != expected.shape:
        return float("inf")
    found, expected = (value.detach().double() for value in (found, expected))
    same = (found == expected) | (found.isnan() & expected.isnan())
    off = torch.where(same, 0.0, (found - expected).abs())
    size = torch.where(expected.isfinite(), expected.abs(), 0.0)
    return float(off.max() / max(1e-3, float(size.max()))) if off.numel() else 0.0


def run(name: str) -> dict[str, Any]:
    try:
        scenario = SCENARIOS[name]
        expected = numbers_of(scenario(torch.device("cpu")).result)
        with mirror_device():
            done = scenario(MIRROR)
            found = numbers_of(done.result)
        differences = {name: difference(value, expected[name]) for name, value in found.items()}
        return {"error": "", "differences": differences, "events": [asdict(e) for e in done.events.found]}
    except Exception:
        return {"error": traceback.format_exc(), "differences": {}, "events": []}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        sys.stdout.write(json.dumps({"name": name, **run(name)}) + "\n")
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread of autograd for the device may abort an interpreter that is shutting down
