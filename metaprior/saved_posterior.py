"""A posterior as the content of a checkpoint, and back; a module that does not fit raises ``CheckpointError``."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from metaprior import checkpoint, models
from metaprior.errors import CheckpointError
from metaprior.likelihoods import LIKELIHOODS, NOISE_RHO, Likelihood
from metaprior.network import BayesianNetwork
from metaprior.posterior import Posterior
from metaprior.scaling import TargetScale
from metaprior.weights import WeightDistribution

Shapes = dict[str, list[int]]


def content(posterior: Posterior, likelihood: Likelihood) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and description; ``likelihood`` is the one in the user's units."""
    weights, network = posterior.weights, posterior.network
    tensors = {**weights.named(), **posterior.target_scale._asdict()}
    tensors |= {f"constant.{name}": value for name, value in network.constants.items()}
    description = {
        "model": models.describe(network.module),
        "stochastic": network.stochastic,
        "likelihood": checkpoint.describe(likelihood, LIKELIHOODS.values()),
        "scalar_targets": posterior.scalar_targets,
        "input_axes": posterior.input_axes,
        "parameters": _shapes(network.layout.split(weights.mu)),
    }
    return tensors, description


def rebuild(
    tensors: Mapping[str, Tensor], description: Mapping[str, Any], module: nn.Module | None
) -> tuple[Posterior, Likelihood]:
    """Return the posterior, and the likelihood in the user's units. Networks of this package need no ``module``."""
    if module is None:
        module = _rebuilt_module(tensors, description)
    network = BayesianNetwork(module, description["stochastic"])
    _refuse_other_structure(network, tensors, description["parameters"])
    _refuse_damaged_numbers(tensors)
    here = {name: value.to(network.device) for name, value in tensors.items()}
    network.constants = _with_prefix(here, "constant.")
    likelihood: Likelihood = checkpoint.restore(description["likelihood"], LIKELIHOODS.values())
    scale = TargetScale(here["loc"], here["scale"])
    weights = WeightDistribution.from_named(here)
    posterior = Posterior(
        network,
        likelihood.in_units_of(scale.scale),
        weights,
        scale,
        input_axes=None if description["input_axes"] is None else int(description["input_axes"]),
        scalar_targets=bool(description["scalar_targets"]),
    )
    return posterior, likelihood


def _rebuilt_module(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> nn.Module:
    if description["model"] is None:
        raise CheckpointError(
            "it was saved from a network of your own, which only your code can build: give it as load(folder, module)"
        )
    module = models.rebuild(description["model"]).to(tensors["mu"].dtype)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(f"constant.{name}" not in tensors)
    return module


def _refuse_other_structure(network: BayesianNetwork, tensors: Mapping[str, Tensor], saved: Shapes) -> None:
    start = network.initial()
    given = {
        **_shapes(network.layout.split(start.mu)),
        **_shapes(start.plain, "plain."),
        **_shapes(network.constants, "constant."),
    }
    stored = {name: value for name, value in tensors.items() if name.startswith(("plain.", "constant."))}
    expected = {**saved, **_shapes({name: value for name, value in stored.items() if name != f"plain.{NOISE_RHO}"})}
    differing = [name for name in {**given, **expected} if given.get(name) != expected.get(name)]
    thawed = [name for name in given if f"constant.{name.removeprefix('plain.')}" in expected]
    if thawed:
        raise CheckpointError(
            f"{len(thawed)} parameters were frozen when this was saved and are learnable in the given module, "
            f"first {thawed[0].removeprefix('plain.')!r}; set requires_grad=False on them"
        )
    if differing:
        name = differing[0]
        raise CheckpointError(
            f"the module does not have the structure that was saved: {len(differing)} parameters or buffers differ, "
            f"first {name!r} (saved {expected.get(name, 'absent')}, given {given.get(name, 'absent')})"
        )
    if any(tensors[name].shape != start.mu.shape for name in ("mu", "rho")):
        raise CheckpointError(f"mu and rho must be vectors of length {len(start.mu)}")
    if tensors["mu"].dtype != network.dtype:
        raise CheckpointError(f"it was saved from a {tensors['mu'].dtype} network, but the module is {network.dtype}")


def _refuse_damaged_numbers(tensors: Mapping[str, Tensor]) -> None:
    for name, value in tensors.items():
        pruned_is_fine = value == -torch.inf if name == "rho" else torch.zeros_like(value, dtype=torch.bool)
        if not bool((torch.isfinite(value) | pruned_is_fine).all()) and not name.startswith("constant."):
            raise CheckpointError(f"tensor {name!r} holds NaN or infinite values")


def _shapes(tensors: Mapping[str, Tensor], prefix: str = "") -> Shapes:
    return {prefix + name: list(value.shape) for name, value in tensors.items()}


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
