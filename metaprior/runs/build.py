"""From a configuration to what it describes: the network, the learner, and what its meta-step would take."""

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from metaprior.likelihoods import LIKELIHOODS
from metaprior.metagrad.planner import Choice, predict
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models import MODELS
from metaprior.runs.config import Config
from metaprior.runs.sources import WEIGHTS, TaskSettings, open_tasks
from metaprior.tasks.task import task_at
from metaprior.team.launch import own_device


def network_of(config: Config) -> nn.Module:
    """The network as the seed makes it, or with the weights of ``[warm_start]``; no global generator is changed."""
    arguments = {key: value for key, value in config.model.arguments.items() if key != "stochastic"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.run.seed)
        module: nn.Module = MODELS.build(config.model.kind, arguments)
    if config.warm_start.weights is not None:
        _load_weights(module, config.warm_start.weights)
    return module


def _load_weights(module: nn.Module, given: str) -> None:
    """Load a file, or the weights that an application calls by this name."""
    try:
        module.load_state_dict(WEIGHTS[given]() if given in WEIGHTS else load_file(given))
        return
    except FileNotFoundError:
        why = "is not there"
    except (SafetensorError, OSError) as error:
        why = f"cannot be read ({error})"
    except RuntimeError as error:
        why = f"belongs to another network ({' '.join(str(error).split())})"
    raise ValueError(
        f"warm_start.weights: {given} {why}. It must be a safetensors file with the network's state dict, as "
        f"safetensors.torch.save_file(network.state_dict(), path) writes it, or one of {', '.join(WEIGHTS)}"
    )


def learner_of(config: Config, examples_per_shot: int = 1) -> MetaLearner:
    """The learner, before any training; ``examples_per_shot`` is that of its tasks."""
    adaptation, engine = config.adaptation_settings
    return MetaLearner(
        network_of(config).to(own_device(config.run.device)),
        LIKELIHOODS.build(config.likelihood.kind, config.likelihood.arguments),
        adaptation=adaptation,
        objective=config.meta.objective,
        outer_samples=config.meta.outer_samples,
        hyperprior=config.hyperprior,
        stochastic=config.model.arguments["stochastic"],
        relative_sigma=config.meta.relative_sigma,
        memory=config.run.memory,
        scratch=config.run.scratch,
        engine=engine,
        examples_per_shot=examples_per_shot,
        seed=config.run.seed,
        standardize=False,
    )


def choices_of(config: Config) -> tuple[Choice, ...]:
    """Every exact way to compute the gradient of one of the configured tasks, with its predicted peak of memory."""
    settings = config.task_settings
    try:
        problem = learner_of(config).problem(1)
    except TypeError:
        raise ValueError(
            f"adaptation.kind must be 'descent' to be planned, got {config.adaptation.kind!r}: without an inner loop "
            "there is one way to compute a gradient, which takes the memory of a plain training step on a meta-batch. "
            "Try a smaller meta.meta_batch if it does not fit"
        ) from None
    task = settings.task_of_the_size(config.model) if isinstance(settings, TaskSettings) else None
    if task is None:
        task = task_at(open_tasks(settings, progress=True).tasks("train"), 0, config.run.seed)
    task = problem.check(task)
    return tuple(
        predict(
            problem,
            problem.initial(task.support.y, config.meta.relative_sigma),
            task,
            scratch=config.run.scratch,
            training=True,
        )
    )
