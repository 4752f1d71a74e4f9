"""The part about maps: a prior that is trained here, adapted or not, beside a plain network, fine-tuned or not.

Both learn from the west of a simulated map. Step sizes and sigma of the prior, and the fine-tuning of the network, are
chosen there on later days. Scores are those of places in the east, on days that are later still. A day lies between the
parts.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

import metaprior as mp
from benchmarks.solar.plain_network import PlainNetwork, Tuning, of_networks, plain_network
from examples.demo.settings import MapSettings
from metaprior.solar.maps.comparison import SMART_PERSISTENCE, of_learner, reference, score
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.days import all_days, split_days
from metaprior.solar.maps.units import ClearSkyIndex
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.solar.simulator import simulate

ADAPTED, PRIOR = "prior trained here, adapted", "prior trained here"
TUNED, NETWORK, SMART = "network, fine-tuned", "network", "smart persistence"
METHODS = (ADAPTED, PRIOR, TUNED, NETWORK, SMART)
Scores = dict[str, LeadTimeScores]
TRAINING = mp.MetaTraining(
    meta_batch=4,
    epochs=0,
    warm_start_lr=2e-3,
    warm_start_average=0.03,
    scales_first=1.0,
    balance_step_sizes=True,
    scale_lr=0.03,
)


class World(NamedTuple):
    """Tasks of a place and three days; ``pooled`` are windows from all places, to learn from."""

    pooled: MetaSolarPredictionDataset
    validation: MetaSolarPredictionDataset
    test: MetaSolarPredictionDataset


class MapOutcome(NamedTuple):
    """What the part about maps gives: the scores of ``METHODS`` and the fine-tuning that was chosen."""

    world: World
    learner: mp.MetaLearner
    scores: Scores
    tuning: str


def simulated_world(settings: MapSettings, *, progress: bool) -> World:
    """Return the same world in every process: it is a function of the settings."""
    frames = simulate(days=settings.days, size=settings.size, seed=settings.seed, progress=progress)
    learned, chosen, scored = split_days(all_days(frames["time"].values), (0.6, 0.15, 0.25))
    west, east = frames[:, :, : settings.west], frames[:, :, settings.west :]

    def tasks(*which: object, **others: object) -> MetaSolarPredictionDataset:
        counts = {"patch": settings.patch, "k_shot": settings.shots, "k_query": settings.queries}
        return MetaSolarPredictionDataset(*which, **{**counts, "units": ClearSkyIndex(), **others})  # type: ignore[arg-type]

    return World(
        pooled=tasks(west, learned, by="time", k_shot=4, k_query=4, seed=settings.seed + 1),
        validation=tasks(west, chosen, seed=settings.seed + 2),
        test=tasks(east, scored, seed=settings.seed + 3),
    )


def new_learner(
    settings: MapSettings, world: World, weights: Mapping[str, torch.Tensor] | None = None
) -> mp.MetaLearner:
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


def warm_start(settings: MapSettings, world: World, *, steps: int, progress: bool) -> mp.MetaLearner:
    """Return a learner after training on windows from all places."""
    learner = new_learner(settings, world)
    learner.fit(world.pooled, replace(TRAINING, warm_start=steps), progress=progress)
    return learner


def train(settings: MapSettings, world: World, *, progress: bool) -> mp.MetaLearner:
    """Train on windows from all places; then learn step sizes and sigma on later days.

    On the days of the first part the network is better than on new days, so they cannot show what adapting is worth.
    """
    warm = warm_start(settings, world, steps=settings.warm_steps, progress=progress)
    learner = new_learner(settings, world, plain_network(warm).module.state_dict())
    tasks = settings.meta_steps * TRAINING.meta_batch
    meta = replace(TRAINING, epochs=1, tasks_per_epoch=tasks, schedule="constant", pretrained=True)
    learner.fit(world.validation, meta, progress=progress)
    return learner


def score_prior(learner: mp.MetaLearner, settings: MapSettings, world: World, *, progress: bool) -> Scores:
    """Return the scores of the prior on the test tasks, adapted and not."""
    methods = {
        ADAPTED: of_learner(learner, samples=settings.samples),
        PRIOR: of_learner(learner, adapted=False, samples=settings.samples),
    }
    return score(world.test, settings.test_tasks, methods, progress=progress)


class Rival(NamedTuple):
    """The scores of a plain network and of smart persistence, as JSON, because they come from another process."""

    scores: dict[str, dict[str, Any]]
    tuning: str


def train_and_score_rival(settings: MapSettings) -> Rival:
    """Train and score the plain network, in a process beside the one that trains the prior."""
    world = simulated_world(settings, progress=False)
    network = plain_network(warm_start(settings, world, steps=settings.network_steps, progress=False))
    tuning = choose_tuning(network, settings, world)
    methods = {TUNED: of_networks([network], tuning), NETWORK: of_networks([network], Tuning(0, 0.0))}
    points = {SMART: reference(SMART_PERSISTENCE)}
    found = score(world.test, settings.test_tasks, methods, points, progress=False)
    return Rival({name: one.as_json() for name, one in found.items()}, str(tuning))


def choose_tuning(network: PlainNetwork, settings: MapSettings, world: World) -> Tuning:
    """Return the fine-tuning of the lowest CRPS on validation tasks."""
    methods = {str(tuning): of_networks([network], tuning) for tuning in settings.tunings}
    found = score(world.validation, settings.validation_tasks, methods, progress=False)
    crps = {name: one.row()["crps"] for name, one in found.items()}
    return min(settings.tunings, key=lambda tuning: crps[str(tuning)])


def outcome_of(world: World, learner: mp.MetaLearner, prior: Scores, rival: Rival) -> MapOutcome:
    """Return the scores of both processes."""
    found = prior | {name: LeadTimeScores.from_json(one) for name, one in rival.scores.items()}
    return MapOutcome(world, learner, {name: found[name] for name in METHODS}, rival.tuning)
