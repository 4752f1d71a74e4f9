"""Inference methods: an objective, a way to minimise it, and one contract (``metaprior.methods.method``)."""

import os

import torch
from torch import nn

from metaprior import checkpoint
from metaprior.errors import CheckpointError
from metaprior.methods.bayes_by_backprop import BayesByBackprop
from metaprior.methods.collapsed_hierarchical_vi import CollapsedHierarchicalVI
from metaprior.methods.hierarchical_vi import HierarchicalVI
from metaprior.methods.meta_learner import MetaLearner
from metaprior.methods.method import Method, TaskMethod

__all__ = [
    "METHODS",
    "BayesByBackprop",
    "CollapsedHierarchicalVI",
    "HierarchicalVI",
    "MetaLearner",
    "Method",
    "TaskMethod",
    "load",
]

METHODS: dict[str, type[Method]] = {cls.__name__: cls for cls in (BayesByBackprop, MetaLearner, HierarchicalVI)}


def load(
    folder: str | os.PathLike[str], module: nn.Module | None = None, *, device: str | torch.device | None = None
) -> Method:
    """Return what a method's ``save`` wrote to a folder, as an object of that method.

    Networks of this package are rebuilt; for any other, give a ``module`` of the same structure. ``device`` is where to
    compute; without it a rebuilt network is on the CPU, wherever it was fitted.
    """
    kind = checkpoint.read_description(folder)["kind"]
    if kind not in METHODS:
        raise CheckpointError(f"{folder} holds a {kind}, which is no method; {', '.join(METHODS)} can be loaded")
    return METHODS[kind].load(folder, module, device=device)
