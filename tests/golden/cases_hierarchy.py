"""Hierarchical VI: fit, store, resume, adapt, split of the uncertainty, objective, forgetting, known theta."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import metaprior as mp
from tests.golden.adapters import evaluation_entries, forecast_entries, mlp, posterior_entries
from tests.golden.data import Waves, labels_of, wave
from tests.golden.digest import Entries
from tests.golden.registry import case

FIT: dict[str, Any] = {
    "epochs": 3,
    "local_steps": 2,
    "task_batch": 2,
    "batch_size": 5,
    "samples": 2,
    "kl_warmup": 0.5,
    "progress": False,
}
X_NEW = torch.linspace(-2.5, 2.5, 5, dtype=torch.float64)[:, None]
NEW = 900


def tasks(count: int = 4) -> list[mp.Task]:
    """Return tasks of unlike sizes."""
    return [Waves(sizes=(4, 6))[number] for number in range(count)]


def inference(folder: Path, **settings: Any) -> mp.HierarchicalVI:
    """Return hierarchical inference with a store in this folder."""
    module, likelihood = settings.pop("module", None) or mlp(), settings.pop("likelihood", None) or mp.Gaussian()
    return mp.HierarchicalVI(module, likelihood, store=folder, **settings, standardize=False)


def entries(hvi: mp.HierarchicalVI) -> Entries:
    """Return psi, every posterior, history, and forecasts of the prior and of one task with their split."""
    found: Entries = {f"psi/{name}": value for name, value in hvi.psi_._asdict().items()}
    found["tasks"] = ", ".join(hvi.task_names_)
    for name in hvi.task_names_:
        found |= posterior_entries(hvi.posterior(name), name)
    for name, field in (("nll", "nll"), ("kl", "kl"), ("hyper_kl", "hyper"), ("total", "loss")):
        values = [getattr(record, field) * record.observations for record in hvi.history_]
        found[f"history/{name}"] = torch.tensor(values, dtype=torch.float64)
    for name, posterior in {"prior": hvi.prior_predictive(), "first task": hvi.posterior(hvi.task_names_[0])}.items():
        found |= forecast_entries(posterior.predict(X_NEW, samples=6, seed=3), prefix=f"{name} forecast")
        split = posterior.split(X_NEW, thetas=4, phis=3, seed=3)
        found |= {f"{name} split/{part}": getattr(split, part) for part in ("prior", "task", "data", "std")}
    return found


def objective_entries(hvi: mp.HierarchicalVI, given: Sequence[mp.Task]) -> Entries:
    """Return the terms of the objective, from all data."""
    terms = hvi.elbo(given, samples=4, seed=5)
    return {f"objective/{name}": getattr(terms, name) for name in ("nll", "kl", "hyper_kl", "total", "elbo")}


@case("hierarchy/fit, grow, forget")
def fitted(folder: Path) -> Entries:
    hvi = inference(folder / "store").fit(tasks(), **FIT)
    found = entries(hvi) | objective_entries(hvi, tasks())
    hvi.fit(tasks(5), **FIT)
    found |= {f"grown/{name}": value for name, value in entries(hvi).items()}
    hvi.forget("wave 1")
    return found | {f"forgotten/{name}": value for name, value in entries(hvi).items()}


class Breaks(list[mp.Task]):
    """Tasks from a source that fails when it was asked 12 times."""

    asked = 0

    def __getitem__(self, index: Any) -> Any:
        self.asked += 1
        if self.asked > 12:
            raise OSError("the disk went away")
        return super().__getitem__(index)


def stopped(folder: Path) -> None:
    """Run a fit that fails on the way, with a commit after each round."""
    try:
        inference(folder).fit(Breaks(tasks()), save_every=0.0, **FIT)
    except OSError:
        return
    raise AssertionError("the fit was not stopped")


@case("hierarchy/stopped and resumed")
def resumed(folder: Path) -> Entries:
    stopped(folder / "store")
    hvi = mp.HierarchicalVI.load(folder / "store").fit(tasks(), resume=True, **FIT)
    found, whole = entries(hvi), entries(inference(folder / "whole").fit(tasks(), **FIT))
    return found | {"resumed is bitwise identical": all(_equal(found[name], whole[name]) for name in whole)}


def _equal(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


@case("hierarchy/adapt and evaluate")
def adapted(folder: Path) -> Entries:
    hvi = inference(folder / "store").fit(tasks(), **FIT)
    support = Waves()[NEW].support
    posterior = hvi.adapt(support, 9, lr=0.02, batch_size=3, samples=2, seed=4)
    found = posterior_entries(posterior) | forecast_entries(posterior.predict(X_NEW, samples=6))
    found |= posterior_entries(hvi.adapt(support), "as in the fit")
    new = [Waves()[NEW + number] for number in range(2)]
    return found | evaluation_entries(
        hvi.evaluate(new, shots=(0, 2, None), steps=(3,), lr=0.02, samples=4, progress=False)
    )


@case("hierarchy/plain biases, other hyperprior")
def plain(folder: Path) -> Entries:
    hyperprior = mp.GaussianHyperprior(mean_std=0.5, scale=0.3, log_scale_std=0.4)
    settings: dict[str, Any] = {"stochastic": ".*weight", "hyperprior": hyperprior, "relative_sigma": 0.2, "seed": 3}
    hvi = inference(folder / "store", **settings).fit(tasks(), **FIT)
    return entries(hvi) | objective_entries(hvi, tasks())


@case("hierarchy/known theta")
def known(folder: Path) -> Entries:
    module = mlp()
    size = sum(parameter.numel() for parameter in module.parameters())
    ramp = torch.linspace(-0.5, 0.5, size, dtype=torch.float64)
    hyperprior = mp.WeightDistribution(ramp, ramp - 1, {})
    return entries(inference(folder / "store", module=module, hyperprior=hyperprior).fit(tasks(), **FIT))


@case("hierarchy/classes by name")
def classes(folder: Path) -> Entries:
    given = {f"group {seed}": (wave(8, seed)[0], labels_of(wave(8, seed)[1], 3)) for seed in range(3)}
    hvi = inference(folder / "store", module=mlp(outputs=3), likelihood=mp.Categorical()).fit(given, **FIT)
    return entries(hvi)


@case("hierarchy/stopped and given up")
def given_up(folder: Path) -> Entries:
    stopped(folder / "store")
    return entries(mp.HierarchicalVI.load(folder / "store").give_up().fit(tasks(5), **{**FIT, "epochs": 1}))
