"""Plain networks, nothing Bayesian about them."""

from typing import Any

from torch import nn

from metaprior.models.conv4 import Conv4
from metaprior.models.mlp import MLP
from metaprior.models.unet import BayesianUNet, UNet

__all__ = ["MLP", "BayesianUNet", "Conv4", "UNet", "describe", "rebuild"]

KINDS: dict[str, type[nn.Module]] = {"mlp": MLP, "conv4": Conv4, "unet": UNet, "bayesian_unet": BayesianUNet}


def describe(module: nn.Module) -> dict[str, Any] | None:
    """What ``rebuild`` needs to make the same network again, for the networks of this package; else None."""
    for kind, cls in KINDS.items():
        if type(module) is cls:
            return {"kind": kind, **module.config}  # type: ignore[dict-item]
    return None


def rebuild(description: dict[str, Any]) -> nn.Module:
    """A fresh network from its description."""
    arguments = dict(description)
    kind = arguments.pop("kind")
    if kind not in KINDS:
        raise ValueError(f"unknown network kind {kind!r}; known are {', '.join(KINDS)}")
    return KINDS[kind](**arguments)
