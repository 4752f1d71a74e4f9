"""Plain networks, nothing Bayesian about them."""

from typing import Any

from torch import nn

from metaprior.models.small import MLP, Conv4
from metaprior.models.unet import BayesianUNet, UNet
from metaprior.registry import Registry

__all__ = ["MLP", "MODELS", "BayesianUNet", "Conv4", "UNet", "describe", "rebuild"]

MODELS = Registry("model.kind", {"mlp": MLP, "conv4": Conv4, "unet": UNet, "bayesian_unet": BayesianUNet})


def describe(module: nn.Module) -> dict[str, Any] | None:
    """What ``rebuild`` needs to make the same network again, for the networks of this package; else None."""
    kind = MODELS.kind_of(module)
    return None if kind is None else {"kind": kind, **module.config}  # type: ignore[dict-item]


def rebuild(description: dict[str, Any]) -> nn.Module:
    """A fresh network from its description."""
    arguments = dict(description)
    return MODELS.build(arguments.pop("kind"), arguments)  # type: ignore[no-any-return]
