"""The methods: trained within a time, chosen on validation tasks, scored on test tasks."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scoringrules import crps_ensemble  # type: ignore[import-untyped]

import metaprior as mp
from benchmarks.common.budget import fit_within, meta_train_within
from benchmarks.solar.archives import Archive
from benchmarks.solar.optical_flow import optical_flow
from benchmarks.solar.plain_network import PlainNetwork, Tuning, of_networks, plain_network
from benchmarks.solar.settings import PRESET, Settings
from metaprior import scores
from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.comparison import (
    PERSISTENCE,
    SMART_PERSISTENCE,
    Forecaster,
    PointForecaster,
    of_learner,
    reference,
    score,
)
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.units import has_coordinates
from metaprior.solar.scores.lead_scores import LeadTimeScores

TRAINING_SEED, VALIDATION_SEED, TEST_SEED = 1, 2, 13
OURS = f"ABML ({PRESET})"
HINDSIGHT = "pooled, corrected in hindsight"
HINDSIGHT_FACTORS = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35)


class Found(NamedTuple):
    """The scores of a method, and how it was trained and chosen."""

    scores: LeadTimeScores
    seconds: float
    """CPU seconds of training."""
    steps: str
    chosen: str
    validation_crps: float


def network(archive: Archive, settings: Settings, seed: int = 0, random: str = "all") -> mp.BayesianUNet:
    """Return the network of all methods; its initial weights are a function of the seed."""
    known = archive.units.known_per_target * 4
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return mp.BayesianUNet(4, 4, settings.width, settings.levels, known=known, random=random)


def pooled_tasks(archive: Archive, settings: Settings, seed: int) -> MetaSolarPredictionDataset:
    """Return windows from all places, as batches for plain training."""
    each = settings.pooled_batch // settings.meta_batch // 2
    changed = {**settings.tasks, "k_shot": each, "k_query": each}
    return archive.tasks("train", seed=TRAINING_SEED + seed, by="time", **changed)


class Plain(NamedTuple):
    """A trained plain network."""

    network: PlainNetwork
    seconds: float
    steps: int


def train_plain(
    archive: Archive, settings: Settings, likelihood: mp.Likelihood, seconds: float, seed: int = 0
) -> Plain:
    """Train a plain network on all windows pooled, for so many seconds."""
    inner = mp.Descent(steps=0, kl_weight=0.0)
    learner = mp.MetaLearner(
        network(archive, settings, seed), likelihood, adaptation=inner, relative_sigma=0.0, seed=seed, standardize=False
    )
    training = mp.MetaTraining(
        meta_batch=settings.meta_batch, warm_start_lr=settings.lr, warm_start_average=settings.average
    )
    source = pooled_tasks(archive, settings, seed)
    fitted = fit_within(learner, source, training, seconds=seconds, warm_share=1.0, progress=False)
    return Plain(plain_network(learner), fitted.seconds, fitted.warm_start)


def on_test(archive: Archive, settings: Settings, methods: Mapping[str, Forecaster]) -> dict[str, LeadTimeScores]:
    """Return the scores on the test tasks."""
    tasks = archive.tasks("test", seed=TEST_SEED, **settings.tasks)
    return score(tasks, settings.test_tasks, methods, progress=False)


def validated(archive: Archive, settings: Settings, method: Forecaster) -> float:
    """Return the mean CRPS on the validation tasks; infinite where a number is not finite."""
    tasks = archive.tasks("validation", seed=VALIDATION_SEED, **settings.tasks)
    try:
        found = score(tasks, settings.validation_tasks, {"": method}, progress=False)[""]
    except (FloatingPointError, mp.NotFinite):  # in the adaptation, or in the forecast
        return float("inf")
    return float(found.row()["crps"])


def plain_methods(archive: Archive, settings: Settings, likelihood: mp.Likelihood, name: str) -> dict[str, Found]:
    """Train one network on everything, and score it as it is and fine-tuned as chosen on validation tasks."""
    plain = train_plain(archive, settings, likelihood, settings.seconds)
    return _fine_tuned(archive, settings, [plain], name)


def pooled_methods(archive: Archive, settings: Settings) -> dict[str, Found]:
    """Train one network by the CRPS, and score it also corrected in hindsight, a bound for some adaptations."""
    plain = train_plain(archive, settings, mp.CRPSGaussian(), settings.seconds)
    found = _fine_tuned(archive, settings, [plain], "pooled")
    corrected = on_test(archive, settings, {"": in_hindsight(plain.network)})[""]
    chosen = "each task's bias by lead time, and scale, from its own targets"
    return {**found, HINDSIGHT: Found(corrected, plain.seconds, f"{plain.steps} steps", chosen, float("nan"))}


def in_hindsight(network: PlainNetwork) -> Forecaster:
    """Return the network corrected by each task's own targets.

    The bias by lead time is subtracted, and all scales are multiplied by the factor of the lowest CRPS.
    """
    as_it_is = of_networks([network], Tuning(0, 0.0))

    def forecast(task: mp.Task, index: int) -> GaussianForecast:
        raw = as_it_is(task, index)
        bias = (task.query.y - raw.means[0]).mean((0, 2, 3), keepdim=True)
        scaled = [GaussianForecast(raw.means + bias, factor * raw.scales) for factor in HINDSIGHT_FACTORS]
        return min(scaled, key=lambda one: float(scores.crps(one, task.query.y).mean()))

    return forecast


def ensemble_of(members: int) -> str:
    """Return the name of an ensemble in tables."""
    return f"ensemble of {members}"


def ensemble_methods(archive: Archive, settings: Settings) -> dict[str, Found]:
    """Train several networks that share the time."""
    share = settings.seconds / settings.members
    trained = [train_plain(archive, settings, mp.CRPSGaussian(), share, seed) for seed in range(settings.members)]
    return _fine_tuned(archive, settings, trained, ensemble_of(settings.members))


def _fine_tuned(archive: Archive, settings: Settings, trained: Sequence[Plain], name: str) -> dict[str, Found]:
    networks, seconds = [one.network for one in trained], sum(one.seconds for one in trained)
    steps = f"{len(trained)} x " * (len(trained) > 1) + f"{trained[0].steps} steps"
    tunings = [Tuning(*tuning) for tuning in settings.tunings]
    crps = {tuning: validated(archive, settings, of_networks(networks, tuning)) for tuning in tunings}
    untouched = next(tuning for tuning in crps if not tuning.steps)
    chosen = {name: untouched, f"{name}, fine-tuned": min((t for t in crps if t.steps), key=crps.__getitem__)}
    found = on_test(archive, settings, {label: of_networks(networks, tuning) for label, tuning in chosen.items()})
    return {label: Found(found[label], seconds, steps, str(tuning), crps[tuning]) for label, tuning in chosen.items()}


def meta_learner(
    archive: Archive, settings: Settings, plain: PlainNetwork, preset: str, *, point: bool
) -> mp.MetaLearner:
    """Return ABML with a preset of random weights, or MAML, that starts from a trained network."""
    random, _, everything = preset.partition(", ")
    module = network(archive, settings, random=random)
    module.load_state_dict(plain.module.state_dict())
    inner = mp.Descent(
        settings.inner_steps,
        1e-5,
        "per_tensor",
        kl_weight=0.0 if point else 1.0,
        adapt=".*" if everything else None,
    )
    return mp.MetaLearner(
        module,
        plain.likelihood,
        adaptation=inner,
        outer_samples=1 if point else 2,
        relative_sigma=0.0 if point else settings.relative_sigma,
        memory="4GiB",
        standardize=False,
    )


class Learned(NamedTuple):
    """A meta-trained learner, and the number of inner steps with the lowest CRPS on validation tasks."""

    learner: mp.MetaLearner
    samples: int
    steps: int
    meta_steps: int
    meta_seconds: float
    validation_crps: float
    failed: list[str]
    """Test tasks whose adaptation was not finite; the prior forecasts them."""

    def forecaster(self, *, adapted: bool) -> Forecaster:
        """Return forecasts with the chosen steps, or without adaptation."""
        prior = of_learner(self.learner, adapted=False, samples=self.samples)
        chosen = of_learner(self.learner, steps=self.steps, samples=self.samples)

        def forecast(task: mp.Task, index: int) -> GaussianForecast:
            try:
                return chosen(task, index)
            except FloatingPointError:
                self.failed.append(task.name)
                return prior(task, index)

        return forecast if adapted else prior


def meta_methods(archive: Archive, settings: Settings) -> dict[str, Found]:
    """Train one warm start, then every preset and MAML from there with the same time of meta-training."""
    plain = train_plain(archive, settings, mp.CRPSGaussian(), (1 - settings.meta_share) * settings.seconds)
    learned = {
        f"ABML ({preset})": learn(archive, settings, plain.network, preset, point=False) for preset in settings.presets
    }
    learned["MAML"] = learn(archive, settings, plain.network, "all", point=True)
    ways = {name: one.forecaster(adapted=True) for name, one in learned.items()}
    ways[f"{OURS}, not adapted"] = learned[OURS].forecaster(adapted=False)
    scored = on_test(archive, settings, ways)
    learned[f"{OURS}, not adapted"] = learned[OURS]._replace(steps=0, failed=[])
    return {
        name: Found(
            scored[name],
            plain.seconds + one.meta_seconds,
            f"{plain.steps} steps, {one.meta_steps} meta-steps",
            f"{one.steps} inner steps" + f", {len(one.failed)} tasks failed" * bool(one.failed),
            one.validation_crps,
        )
        for name, one in learned.items()
    }


def learn(archive: Archive, settings: Settings, plain: PlainNetwork, preset: str, *, point: bool) -> Learned:
    """Meta-train from a trained network on (MAML: means, ABML: scales alone), and choose the number of inner steps."""
    learner = meta_learner(archive, settings, plain, preset, point=point)
    training = mp.MetaTraining(
        meta_batch=settings.meta_batch,
        lr=1e-4,
        scale_lr=settings.scale_lr,
        scales_first=0.0 if point else 1.0,
        balance_step_sizes=True,
    )
    tasks = archive.tasks("train", seed=TRAINING_SEED, **settings.tasks)
    fitted = meta_train_within(learner, tasks, training, seconds=settings.meta_share * settings.seconds)
    samples = 2 if point else settings.samples
    crps = {
        steps: validated(archive, settings, of_learner(learner, steps=steps, samples=samples))
        for steps in settings.abml_steps
    }
    best = min(crps, key=crps.__getitem__)
    return Learned(learner, samples, best, fitted.meta_steps, fitted.seconds, crps[best], [])


def references(archive: Archive, settings: Settings) -> dict[str, Found]:
    """Score persistence, smart persistence and optical flow, which need no training."""
    tasks = archive.tasks("test", seed=TEST_SEED, **settings.tasks)
    points: dict[str, PointForecaster] = {
        "persistence": reference(PERSISTENCE),
        "optical flow": lambda windows: optical_flow(windows.inputs, windows.targets.shape[1]).frames,
    }
    if has_coordinates(tasks.frames):
        points["smart persistence"] = reference(SMART_PERSISTENCE)
    found = score(tasks, settings.test_tasks, {}, points, progress=False)
    return {name: Found(one, 0.0, "", "", float("nan")) for name, one in found.items()}


def true_crps(archive: Archive, settings: Settings) -> float:
    """Return the mean CRPS of the true distribution of futures on the query windows of the test tasks.

    It is estimated without bias from continuations of the simulator's state at the last input frame.
    """
    assert archive.simulator is not None
    tasks = archive.tasks("test", seed=TEST_SEED, **settings.tasks)
    offset = archive.simulator.longitude.size - tasks.frames.shape[2]
    values = []
    for index in range(settings.test_tasks):
        for window in tasks.windows(index).query:
            issued = tasks.reader.issued(window)
            number = archive.simulator.index_of(issued)
            futures = archive.simulator.futures(
                number, continuations=settings.continuations, steps=tasks.target_len, seed=index
            )
            rows, columns = slice(window.y, window.y + settings.patch), slice(window.x + offset, None)
            own = futures[:, :, rows, columns][..., : settings.patch]
            observed = tasks.reader.read(window)[tasks.input_len :]
            values.append(float(crps_ensemble(observed, np.moveaxis(own, 0, -1), estimator="fair").mean()))
    return float(np.mean(values))


METHODS: dict[str, Callable[[Archive, Settings], dict[str, Found]]] = {
    "meta": meta_methods,
    "pooled": pooled_methods,
    "ensemble": ensemble_methods,
    "pooled by likelihood": lambda archive, settings: plain_methods(
        archive, settings, mp.HeteroscedasticGaussian(), "pooled by log-likelihood"
    ),
    "references": references,
}
