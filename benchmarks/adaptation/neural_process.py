"""A neural process of the package ``neuralprocesses`` (Bruinsma et al.), where it is installed.

It is not part of the extra ``bench``, because it brings scikit-learn and twenty other packages along:
``pip install neuralprocesses`` beside metaprior is all that is needed.
"""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

import metaprior as mp
from benchmarks.common.budget import Fitted
from metaprior.forecasts import GaussianForecast
from metaprior.tasks.task import Examples, Tasks, VariedSupport

PACKAGE = "neuralprocesses"
MISSING = f"neural process: skipped, {PACKAGE} is not installed. Try: pip install {PACKAGE}"
META_BATCH, LR = 16, 3e-3


def installed() -> bool:
    """Return whether the package is there."""
    return find_spec(PACKAGE) is not None


def _package() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(f"{PACKAGE}.torch")


def network(inputs: int) -> Any:
    """Return a convolutional conditional neural process, for several inputs an attentive one: mean and scale by x."""
    package = _package()
    if inputs == 1:
        return package.construct_convgnp(
            dim_x=1, dim_y=1, likelihood="het", points_per_unit=8, margin=1.0, unet_channels=(32, 32, 32)
        )
    return package.construct_agnp(
        dim_x=inputs, dim_y=1, likelihood="het", dim_embedding=64, width=64, num_enc_layers=2, num_dec_layers=3
    )


def _channels_first(parts: Sequence[Tensor]) -> Tensor:
    """Return (N, D) tensors of several tasks as (tasks, D, N)."""
    return torch.stack(list(parts)).mT


def trained(inputs: int, tasks: Tasks, sizes: tuple[int, ...], seconds: float, number: int) -> tuple["Process", Fitted]:
    """Return a neural process after so many CPU seconds of Adam, with a learning rate that falls along a cosine."""
    torch.manual_seed(number)
    package, module = _package(), network(inputs)
    varied = VariedSupport(tasks, sizes, together=META_BATCH, seed=number)
    began, steps, optimizer = time.process_time(), 0, None
    while (spent := time.process_time() - began) < seconds:
        batch = [varied[steps * META_BATCH + place] for place in range(META_BATCH)]
        support, query = (
            [_channels_first([getattr(task, part)[i] for task in batch]) for i in (0, 1)]
            for part in ("support", "query")
        )
        loss = -package.loglik(module, *support, *query, normalise=True).mean()
        if optimizer is None:  # the first pass makes the parameters
            optimizer = torch.optim.Adam(module.parameters())
        for group in optimizer.param_groups:
            group["lr"] = LR * 0.5 * (1 + math.cos(math.pi * spent / seconds))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    return Process(module), Fitted(time.process_time() - began, 0, steps, 0)


@dataclass(frozen=True)
class Process:
    """A trained neural process."""

    module: Any

    def adapted(self, support: mp.Examples | None, steps: int = 0) -> "Conditioned":
        """Return the process given some examples; ``steps`` is ignored."""
        return Conditioned(self.module, support)


@dataclass(frozen=True)
class Conditioned:
    """A neural process given examples."""

    module: Any
    support: Examples | None

    def predict(self, x: Tensor, **_: Any) -> GaussianForecast:
        """Return the forecast: one Gaussian for each target."""
        x_given, y_given = self.support or (x[:0], x[:0, :1])
        with torch.no_grad():
            found = self.module(*(_channels_first([part]) for part in (x_given, y_given, x)))
        mean, variance = (part[0].mT for part in (found.mean, found.var))
        return GaussianForecast(mean[None], variance.sqrt()[None], weights=torch.ones(1))
