"""AdamW on theta: means and plain parameters in one group, everything that is a scale in the other."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from metaprior.metagrad.problem import LOG_LR, Problem
from metaprior.training.settings import MetaTraining
from metaprior.weights import WeightDistribution

MEANS, SCALES = "means", "scales"


def leaves_of(theta: WeightDistribution) -> WeightDistribution:
    """A copy that an optimiser can move in place."""
    plain = {name: value.detach().clone().requires_grad_() for name, value in theta.plain.items()}
    return WeightDistribution(
        theta.mu.detach().clone().requires_grad_(), theta.rho.detach().clone().requires_grad_(), plain
    )


def named_tensors(theta: WeightDistribution) -> dict[str, Tensor]:
    """Everything in theta by name."""
    return {"mu": theta.mu, "rho": theta.rho, **{f"plain.{name}": value for name, value in theta.plain.items()}}


def groups_of(problem: Problem, theta: WeightDistribution) -> dict[str, list[str]]:
    """Names (as in ``named_tensors``) of what is learned, by group. A point prior's scales are not."""
    scales = [LOG_LR, *problem.likelihood.parameter_names]
    means = ["mu", *(f"plain.{name}" for name in theta.plain if name not in scales)]
    rest = [f"plain.{name}" for name in theta.plain if name in scales]
    return {MEANS: means, SCALES: [*rest, *(["rho"] if bool(torch.isfinite(theta.rho).all()) else [])]}


def make_optimizer(problem: Problem, theta: WeightDistribution, settings: MetaTraining) -> torch.optim.AdamW:
    """Fresh AdamW. Scales are not decayed: a decayed rho or log step size would drift to a value nobody chose."""
    tensors, groups = named_tensors(theta), groups_of(problem, theta)
    decay = {MEANS: settings.weight_decay, SCALES: 0.0}
    named: list[dict[str, Any]] = [
        {"params": [tensors[n] for n in names], "name": group, "weight_decay": decay[group]}
        for group, names in groups.items()
        if names
    ]
    return torch.optim.AdamW(named, lr=settings.lr, fused=theta.mu.device.type in ("cpu", "cuda"))


def descend(
    optimizer: torch.optim.AdamW,
    theta: WeightDistribution,
    grads: WeightDistribution,
    learning_rates: Mapping[str, float],
    clip: float,
) -> dict[str, float]:
    """One step along the gradients, each group's norm clipped; returns the norms before clipping.

    A group without a learning rate is left alone, and so are its moments.
    """
    of_theta = named_tensors(theta)
    for name, grad in named_tensors(grads).items():
        of_theta[name].grad = grad
    norms = {}
    for group in optimizer.param_groups:
        group["lr"] = learning_rates.get(group["name"], 0.0)
        if group["name"] in learning_rates:
            norms[group["name"]] = float(torch.nn.utils.clip_grad_norm_(group["params"], clip))
        else:
            for tensor in group["params"]:
                tensor.grad = None
    optimizer.step()
    for tensor in of_theta.values():
        tensor.grad = None
    return norms


def moments(optimizer: torch.optim.AdamW, theta: WeightDistribution) -> Iterator[tuple[str, Tensor]]:
    """The optimiser's own tensors, named after theta's."""
    for name, tensor in named_tensors(theta).items():
        for part, value in optimizer.state.get(tensor, {}).items():
            yield f"{name}/{part}", value


def restore_moments(optimizer: torch.optim.AdamW, theta: WeightDistribution, saved: dict[str, Tensor]) -> None:
    """Put back what ``moments`` gave."""
    tensors = named_tensors(theta)
    for key, value in saved.items():
        name, part = key.rsplit("/", 1)
        optimizer.state[tensors[name]][part] = value.to(tensors[name].device, copy=True)
