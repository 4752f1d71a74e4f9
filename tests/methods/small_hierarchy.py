"""Small tasks and a small network for tests of hierarchical inference."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import metaprior as mp

FAST: dict[str, Any] = {"epochs": 2, "local_steps": 2, "progress": False}


Data = dict[str, tuple[Tensor, Tensor]]


def waves(count: int, size: int = 6) -> Data:
    """The first ones of an endless row, in float64."""
    made = {}
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(size + number, 1, dtype=torch.float64, generator=generator)
        made[f"wave {number}"] = (x, (x[:, 0] + number).sin())
    return made


def mlp(width: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return mp.MLP(1, [width], 1).double()


def inference(folder: Path, **other: Any) -> mp.HierarchicalVI:
    settings: dict[str, Any] = {"module": mlp(), "likelihood": mp.Gaussian(), "store": folder, **other}
    return mp.HierarchicalVI(settings.pop("module"), settings.pop("likelihood"), **settings, standardize=False)


def fitted(folder: Path, tasks: int = 3, **other: Any) -> mp.HierarchicalVI:
    return inference(folder, **other).fit(waves(tasks), **FAST)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def known_theta(value: float = 0.0, size: int = 13) -> mp.WeightDistribution:
    mu = torch.full((size,), value, dtype=torch.float64)
    return mp.WeightDistribution(mu, torch.zeros_like(mu), {})
