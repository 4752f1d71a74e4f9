"""The functions for a loop of one's own: an epoch with any optimiser, the forecast of a task, both losses."""

from pathlib import Path
from typing import Any

import torch

import metaprior as mp
from tests.golden.adapters import forecast_entries, mlp, summary_entries, theta_entries
from tests.golden.data import Waves
from tests.golden.digest import Entries
from tests.golden.registry import case

TASKS = [Waves()[number] for number in range(5)]


def trained(optimizer: Any, **settings: Any) -> Entries:
    """Return theta, history, forecast and losses after two epochs."""
    inner = mp.Descent(steps=2, lr=0.05, learn_lr="per_tensor", **settings.pop("inner", {}))
    learner = mp.MetaLearner(mlp(), mp.Gaussian(), adaptation=inner, **settings, standardize=False).start(TASKS)
    own = optimizer(learner.parameters())
    for _ in range(2):
        mp.meta_train_one_epoch(learner, TASKS, own, meta_batch=2, grad_clip_norm=0.5, progress=False)
    task = Waves()[9]
    mean, _, std, forecast = mp.meta_evaluate(learner, task, steps=3, samples=6, seed=1)
    posterior = learner.adapt(task.support)
    found = theta_entries(learner.theta_) | summary_entries(learner.history_)
    found |= {"meta_evaluate/mean": mean, "meta_evaluate/std": std} | forecast_entries(forecast, task.query.y)
    inner_loss = learner.inner_loop_loss(posterior, task.support, seed=2)
    outer_loss = learner.outer_loop_loss(posterior, task, num_tasks=5, seed=2)
    found |= {f"inner loss/{key}": float(getattr(inner_loss, key)) for key in ("nll", "kl", "total")}
    parts = ("nll_support", "nll_query", "kl", "hyperprior", "total")
    return found | {f"outer loss/{key}": float(getattr(outer_loss, key)) for key in parts}


@case("own loop/query, Adam")
def adam(folder: Path) -> Entries:
    return trained(lambda parameters: torch.optim.Adam(parameters, lr=1e-2))


@case("own loop/abml, SGD")
def sgd(folder: Path) -> Entries:
    return trained(lambda parameters: torch.optim.SGD(parameters, lr=1e-2), objective="abml")


@case("own loop/predictive, Adam")
def predictive(folder: Path) -> Entries:
    return trained(lambda parameters: torch.optim.Adam(parameters, lr=1e-2), objective="predictive", outer_samples=3)


@case("own loop/point prior, SGD")
def point(folder: Path) -> Entries:
    settings: dict[str, Any] = {"relative_sigma": 0.0, "inner": {"kl_weight": 0.0, "momentum": 0.4}}
    return trained(lambda parameters: torch.optim.SGD(parameters, lr=1e-2), **settings)
