"""From a configuration to the things it describes: network, likelihood, tasks, learner."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from metaprior import metagrad
from metaprior.data_folder import data_folder
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.problem import Engine
from metaprior.methods.meta_learner import MetaLearner
from metaprior.noise import Noise
from metaprior.runs.config import KINDS, Config, OmniglotTasks
from metaprior.tasks import DriftingBlobs, FewShotClasses, SineOrLine, Sinusoids, Task, Tasks, WheelTasks
from metaprior.tasks.omniglot import omniglot
from metaprior.team.launch import own_device

Purpose = Literal["train", "val", "test"]


@dataclass(frozen=True)
class FirstTasks:
    """The first ``count`` tasks of a source."""

    source: Tasks
    count: int

    def __len__(self) -> int:
        """How many."""
        return self.count

    def __getitem__(self, index: int) -> Task:
        """One of them; ``IndexError`` beyond the last."""
        if not 0 <= index < self.count:
            raise IndexError(f"there is no task {index}; tasks have the indices 0 to {self.count - 1}")
        return self.source[index]


def network_of(config: Config) -> nn.Module:
    """The network as the seed makes it, or with the weights of ``[warm_start]``; no global generator is changed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.run.seed)
        module: nn.Module = KINDS["model"][config.model.kind](**config.model.arguments)
    if config.warm_start.weights is not None:
        _load_weights(module, Path(config.warm_start.weights))
    return module


def _load_weights(module: nn.Module, path: Path) -> None:
    def refuse(why: object) -> NoReturn:
        raise ValueError(
            f"warm_start.weights: {path} {why}. It has to be a safetensors file with the network's state dict, as "
            "safetensors.torch.save_file(network.state_dict(), path) writes it"
        )

    try:
        state = load_file(path)
    except FileNotFoundError:
        refuse("is not there")
    except (SafetensorError, OSError) as error:
        refuse(f"cannot be read ({error})")
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        refuse(f"belongs to another network ({' '.join(str(error).split())})")


def likelihood_of(config: Config) -> Likelihood:
    """The likelihood."""
    likelihood: Likelihood = KINDS["likelihood"][config.likelihood.kind](**config.likelihood.arguments)
    return likelihood


def learner_of(config: Config) -> MetaLearner:
    """The learner, before any training."""
    engine: Engine | None = None if config.inner.engine == "auto" else getattr(metagrad, config.inner.engine)
    return MetaLearner(
        network_of(config).to(own_device(config.run.device)),
        likelihood_of(config),
        inner=config.inner.loop,
        objective=config.meta.objective,
        outer_samples=config.meta.outer_samples,
        hyperprior=config.hyperprior,
        stochastic=config.stochastic,
        relative_sigma=config.meta.relative_sigma,
        memory=config.run.memory,
        engine=engine,
        seed=config.run.seed,
    )


def training_tasks(config: Config) -> Tasks:
    """The tasks that theta is learned from."""
    return _source(config, "train", config.tasks.arguments["seed"], None)


def pooled_tasks(config: Config) -> Tasks | None:
    """What the warm start is made from, where that is not the tasks themselves: frames of all times and places."""
    if not (config.is_solar and config.meta.warm_start):
        return None
    seed = Noise(config.tasks.arguments["seed"]).fork("pooled tasks").seed
    return config.solar.pooled(seed, config.meta.meta_batch)


def unseen_tasks(config: Config, purpose: Literal["val", "test"], count: int) -> FirstTasks:
    """Tasks that training never sees: of another seed, for Omniglot of other classes, for frames of other days."""
    return FirstTasks(_source(config, purpose, unseen_seed(config, purpose), count), count)


def unseen_seed(config: Config, purpose: Literal["val", "test"]) -> int:
    """The seed of tasks for this purpose."""
    return Noise(config.tasks.arguments["seed"]).fork(f"{purpose} tasks").seed


def _source(config: Config, purpose: Purpose, seed: int, count: int | None) -> Tasks:
    if config.is_solar:
        return config.solar.tasks(purpose, seed)
    settings = KINDS["tasks"][config.tasks.kind](**{**config.tasks.arguments, "seed": seed})
    if isinstance(settings, OmniglotTasks):
        images, labels = omniglot(data_folder(settings.path and Path(settings.path)), purpose)  # type: ignore[arg-type]
        return FewShotClasses(images, labels, settings.ways, settings.k_shot, settings.k_query, seed)
    if isinstance(settings, WheelTasks):
        return replace(settings, num_tasks=count or settings.num_tasks)
    endless: Sinusoids | SineOrLine | DriftingBlobs = settings
    return endless


def examples_per_shot(config: Config) -> int:
    """One example is a shot, and for classes one of each."""
    return int(config.tasks.arguments.get("ways", 1))
