"""Training of the networks that forecast satellite maps (the extra ``solar``)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

import metaprior as mp
from benchmarks.adaptation.map_tasks import DayBefore
from benchmarks.adaptation.maps import SHOTS, TEST_SEED, TRAINING_SEED, Settings
from benchmarks.common.budget import first_tasks, fit_within
from benchmarks.solar.archives import Archive, Part, himawari
from benchmarks.solar.plain_network import plain_network


class Trained(NamedTuple):
    """Two learners: the pooled network, and the closed form on it; test tasks, CPU seconds, and tau."""

    pooled: mp.MetaLearner
    learner: mp.MetaLearner
    tasks: Sequence[mp.Task]
    seconds: float
    temperature: float


def trained(folder: Path, settings: Settings) -> Trained:
    """Train a network on windows of all places, then the prior of its last layer and the temperature on tasks.

    The network itself is fixed in the second part: ten days tell its weights more than a few tasks of them.
    """
    archive = himawari(folder)
    torch.manual_seed(0)
    network = mp.BayesianUNet(4, 4, settings.width, settings.levels)
    pooled = mp.MetaLearner(
        network,
        mp.CRPSGaussian(),
        adaptation=mp.Descent(steps=0, kl_weight=0.0),
        relative_sigma=0.0,
        standardize=False,
    )
    training = mp.MetaTraining(
        meta_batch=settings.meta_batch, warm_start_lr=settings.warm_start_lr, warm_start_average=settings.average
    )
    each = settings.pooled_batch // settings.meta_batch // 2
    windows = archive.tasks("train", seed=TRAINING_SEED, by="time", patch=settings.patch, k_shot=each, k_query=each)
    first = fit_within(
        pooled, windows, training, seconds=settings.warm_share * settings.seconds, warm_share=1.0, progress=False
    )
    learner = mp.MetaLearner(
        plain_network(pooled).module, mp.CRPSGaussian(), adaptation=mp.ClosedForm(), standardize=False
    )
    training = mp.MetaTraining(
        meta_batch=settings.meta_batch, scale_lr=settings.scale_lr, scales_first=1.0, pretrained=True
    )
    second = fit_within(
        learner,
        tasks_of(archive, "train", settings, sizes=SHOTS, seed=TRAINING_SEED),
        training,
        seconds=(1 - settings.warm_share) * settings.seconds,
        progress=False,
    )
    tests = first_tasks(tasks_of(archive, "test", settings, sizes=SHOTS[-1:], seed=TEST_SEED), settings.test_tasks)
    temperature = float(learner.theta_.plain["head.log_temperature"].exp())
    return Trained(pooled, learner, tests, first.seconds + second.seconds, temperature)


def tasks_of(archive: Archive, part: Part, settings: Settings, *, sizes: Sequence[int], seed: int) -> DayBefore:
    """Return tasks of a part of the days."""
    return DayBefore(archive, part, sizes, settings.k_query, settings.patch, seed)
