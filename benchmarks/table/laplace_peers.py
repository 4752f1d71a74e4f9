"""Laplace's approximation around one trained network, by ``laplace-torch``."""

import math
import warnings
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.table.networks import HIDDEN, Descent, Layers, trained_layers
from benchmarks.table.peer import Peer, Rows, Trained
from benchmarks.table.predictive import FloatArray, Normals

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the curvature libraries that it imports
    Laplace: Any = import_module("laplace").Laplace  # by name: it is not there in every environment that checks types

EVIDENCE_STEPS = 200
EVIDENCE_LR = 0.1


class LastLayerLaplace(Peer):
    """The last layer's weights with their full covariance; prior precision and noise by the marginal likelihood."""

    candidates = tuple(
        Descent(steps, decay)
        for steps, decay in (
            *((4000, 1e-2), (4000, 1e-3), (1000, 1e-2), (12000, 1e-3)),
            *((4000, 1e-1), (300, 1e-2), (12000, 1e-4)),
        )
    )
    weights: ClassVar[dict[str, str]] = {"subset_of_weights": "last_layer", "hessian_structure": "full"}

    def train(self, setting: Descent, rows: Rows, held_out: Rows | None) -> Trained:
        """Train the network by squared error, then approximate its posterior."""
        network = _module(trained_layers(rows, setting, members=1, noisy=False, seed=self.seed))
        x, y = (torch.as_tensor(part, dtype=torch.float32) for part in rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the curvature libraries
            posterior = Laplace(network, "regression", **self.weights)
            posterior.fit(DataLoader(TensorDataset(x, y[:, None]), batch_size=1000))
            _maximise_evidence(posterior)

        def forecaster(inputs: FloatArray) -> Normals:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mean, variance = posterior(torch.as_tensor(inputs, dtype=torch.float32), pred_type="glm")
            noise = float(posterior.sigma_noise)
            scale = (variance.detach().flatten().double() + noise**2).sqrt()
            return Normals(mean.detach().double().numpy().reshape(1, -1), scale.numpy()[None])

        return Trained(forecaster, setting)

    def cost(self, setting: Descent) -> float:
        """Return the steps, to which the marginal likelihood's search adds as much as some hundreds of them."""
        return setting.steps + EVIDENCE_STEPS


class KroneckerLaplace(LastLayerLaplace):
    """All weights, with Kronecker-factored curvature, and a prior precision for each layer."""

    weights: ClassVar[dict[str, str]] = {"subset_of_weights": "all", "hessian_structure": "kron"}


def _module(layers: Layers) -> nn.Sequential:
    """Return one network of trained layers as the module that the library needs."""
    inputs = layers.first.shape[1]
    network = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
    values = (layers.first[0].T, layers.first_bias[0, 0], layers.last[0].T, layers.last_bias[0, 0])
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), values, strict=True):
            parameter.copy_(value)
    return network


def _maximise_evidence(posterior: Any) -> None:
    """Set prior precision (of each layer, if there are several) and noise to those of the largest evidence."""
    layers = 1 if posterior.__class__.__name__.endswith("LLLaplace") else posterior.n_layers
    log_prior = torch.zeros(layers, requires_grad=True)
    log_noise = torch.full((1,), math.log(0.3), requires_grad=True)
    optimizer = torch.optim.Adam([log_prior, log_noise], lr=EVIDENCE_LR)
    for _ in range(EVIDENCE_STEPS):
        optimizer.zero_grad()
        (-posterior.log_marginal_likelihood(log_prior.exp(), log_noise.exp())).backward()
        optimizer.step()
    found = np.array([*log_prior.tolist(), *log_noise.tolist()])
    if not np.isfinite(found).all():
        raise ValueError(f"the evidence must have a finite maximum, got log prior precision and log noise {found}")
    posterior.prior_precision = log_prior.detach().exp()
    posterior.sigma_noise = log_noise.detach().exp()
