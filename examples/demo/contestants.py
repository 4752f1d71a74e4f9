"""The methods of the demo: the prior, adapted or not, and a plain network, fine-tuned or not.

Both are trained for the same time (``benchmarks.common.budget``), because a comparison at different costs says little.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

import metaprior as mp
from benchmarks.common.budget import Fitted, fit_within, meta_train_within
from benchmarks.solar.plain_network import PlainNetwork, Tuning, of_networks, plain_network
from examples.demo.world import Settings, World, simulated_world
from metaprior.solar.maps.comparison import (
    PERSISTENCE,
    SMART_PERSISTENCE,
    Forecaster,
    of_learner,
    reference,
    score,
    with_shots,
)
from metaprior.solar.scores.lead_scores import LeadTimeScores

Scores = dict[str, LeadTimeScores]


def new_learner(settings: Settings, world: World, weights: Mapping[str, torch.Tensor] | None = None) -> mp.MetaLearner:
    """Return a U-Net whose last decoder block and output layer are random, fresh or with given weights."""
    tasks = world.pooled
    known = tasks.reader.units.known_per_target * tasks.target_len
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = mp.BayesianUNet(tasks.input_len, tasks.target_len, settings.width, settings.levels, known=known)
    if weights is not None:
        network.load_state_dict(dict(weights))
    inner = mp.Descent(steps=5, lr=1e-5, learn_lr="per_tensor", kl_weight=1.0, adapt=None)
    return mp.MetaLearner(
        network, mp.CRPSGaussian(), adaptation=inner, relative_sigma=0.003, seed=settings.seed, standardize=False
    )


def train(
    settings: Settings, world: World, *, meta_share: float, progress: bool = True
) -> tuple[mp.MetaLearner, Fitted]:
    """Train on windows from all places; then, for a share of the time, learn step sizes and sigma on later days.

    On the days of the first part the network is better than on new days, so they cannot show what adapting is worth.
    """
    training = mp.MetaTraining(
        meta_batch=4,
        warm_start_lr=2e-3,
        warm_start_average=0.03,
        scales_first=1.0,
        balance_step_sizes=True,
        scale_lr=0.03,
    )
    learner, seconds = new_learner(settings, world), settings.seconds
    warm = fit_within(
        learner, world.pooled, training, seconds=(1 - meta_share) * seconds, warm_share=1.0, progress=progress
    )
    if not meta_share:
        return learner, warm
    learner = new_learner(settings, world, plain_network(learner).module.state_dict())
    # It has its whole share even if the warm start took longer than planned, as the other network does.
    meta = meta_train_within(learner, world.validation, training, seconds=meta_share * seconds)
    return learner, Fitted(
        warm.seconds + meta.seconds, warm.warm_start, meta.meta_steps, warm.bad_tasks + meta.bad_tasks
    )


def by_shots(adapted: Forecaster, unadapted: Forecaster, settings: Settings) -> dict[int, Forecaster]:
    """Return the forecasts without adaptation (0 shots) and with each number of shots."""
    return {0: unadapted, **{shots: with_shots(adapted, shots) for shots in settings.shots}}


def adapted_prior(learner: mp.MetaLearner, settings: Settings) -> Forecaster:
    """Return the forecasts of the adapted prior."""
    return of_learner(learner, samples=settings.samples)


def score_prior(
    learner: mp.MetaLearner, settings: Settings, world: World, *, progress: bool = True
) -> dict[int, LeadTimeScores]:
    """Return the scores of the prior on the test tasks by shots."""
    prior = of_learner(learner, adapted=False, samples=settings.samples)
    return _score(by_shots(adapted_prior(learner, settings), prior, settings), settings, world, progress=progress)


def _score(
    methods: Mapping[int, Forecaster], settings: Settings, world: World, *, progress: bool
) -> dict[int, LeadTimeScores]:
    named = {str(shots): method for shots, method in methods.items()}
    found = score(world.test, settings.test_tasks, named, progress=progress)
    return {shots: found[str(shots)] for shots in methods}


class Rival(NamedTuple):
    """The scores of a plain network and of the references, as JSON, because they come from another process."""

    by_shots: dict[int, dict[str, Any]]
    references: dict[str, dict[str, Any]]
    tuning: str
    fitted: Fitted


def train_and_score_rival(settings: Settings) -> Rival:
    """Train and score the plain network without progress bars, in a process beside the one that trains the prior."""
    torch.set_num_threads(1)  # small tensors are faster on one thread
    world = simulated_world(settings, progress=False)
    learner, fitted = train(settings, world, meta_share=0.0, progress=False)
    network = plain_network(learner)
    tuning = choose_tuning(network, settings, world)
    forecasters = by_shots(of_networks([network], tuning), of_networks([network], Tuning(0, 0.0)), settings)
    found = _score(forecasters, settings, world, progress=False)
    points = {"persistence": reference(PERSISTENCE), "smart persistence": reference(SMART_PERSISTENCE)}
    references = score(world.test, settings.test_tasks, {}, points, progress=False)
    return Rival(
        {shots: one.as_json() for shots, one in found.items()},
        {name: one.as_json() for name, one in references.items()},
        str(tuning),
        fitted,
    )


def choose_tuning(network: PlainNetwork, settings: Settings, world: World) -> Tuning:
    """Return the fine-tuning of the lowest CRPS on validation tasks."""
    methods = {str(tuning): of_networks([network], tuning) for tuning in settings.tunings}
    found = score(world.validation, settings.validation_tasks, methods, progress=False)
    crps = {name: one.row()["crps"] for name, one in found.items()}
    return min(settings.tunings, key=lambda tuning: crps[str(tuning)])
