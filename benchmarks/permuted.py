"""Digits with permuted labels or permuted pixels, in the manner of Amit & Meir 2018: what are other tasks worth?

A task is MNIST with one permutation. Methods see training tasks with many images, then new tasks with 2,000 images
each, and are judged by their error on test images under the new permutation. Permuted labels share everything but the
last layer, permuted pixels everything but the first: a prior over weights has to find that out by itself.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.budget import fit_within
from benchmarks.data import mnist
from benchmarks.jobs import run_all
from benchmarks.result import BenchResult, Row
from metaprior import scores
from metaprior.forecasts import CategoricalForecast
from metaprior.hyperprior import GaussianHyperprior
from metaprior.likelihoods import Categorical
from metaprior.metagrad.problem import InnerLoop
from metaprior.methods.bayes_by_backprop import BayesByBackprop
from metaprior.methods.hierarchical_vi import HierarchicalVI
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models.mlp import MLP
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.priors import NormalPrior
from metaprior.tasks.task import Examples, Task
from metaprior.training.settings import MetaTraining

LABELS, PIXELS = "labels", "pixels"
SCRATCH, ALONE, WARM = "scratch", "Bayes by Backprop, task alone", "warm start"
HIERARCHICAL, AMORTISED = "hierarchical", "amortised"
METHODS = (HIERARCHICAL, AMORTISED, SCRATCH, ALONE, WARM)
TRAINED_ON = {SCRATCH: 0, ALONE: 0, WARM: 1}
"""Training tasks that a method sees, where not all."""
SWAPS = 200
"""Pairs of pixels that change places in a task of permuted pixels."""
TEST_TASKS_FROM = 1000
"""Tasks from this index on are the new ones; those of a choice of settings lie between."""

PUBLISHED = {
    LABELS: {"scratch": 2.3, "MAML": 1.16, "MLAP-S": 0.75},
    PIXELS: {"scratch": 7.9, "MAML": 3.77, "MLAP-S": 3.54},
}
"""Test error in percent, 20 new tasks of 2,000 images (Amit & Meir 2018; cited from memory)."""


@dataclass(frozen=True)
class Settings:
    """For one kind of tasks, chosen on permutations that are neither trained on nor tested. The publication has 150
    epochs over the training tasks, 20 new tasks, and 200 epochs over each."""

    train_tasks: int
    train_images: int = 60_000
    images: int = 2_000
    """Of a new task."""
    test_images: int = 5_000
    test_tasks: int = 10
    test_samples: int = 10
    width: int = 200
    first_steps: int = 1_500
    """Of a plain network on the first training task: where all that learn from training tasks start."""
    plain_batch: int = 64
    plain_lr: float = 1e-3
    plain_epochs: int = 40
    """Over the images of a new task."""
    epochs: int = 200
    local_steps: int = 20
    batch_size: int = 32
    lr: float = 3e-3
    adapt_steps: int = 1_000
    alone_epochs: int = 60
    alone_prior_std: float = 0.1
    amortised_seconds: float = 300.0
    amortised_images: int = 200
    """In the support set, and in the query set, of a task of meta-training."""
    inner_steps: int = 5
    inner_lr: float = 0.1


FULL = {LABELS: Settings(train_tasks=5), PIXELS: Settings(train_tasks=10, epochs=120, batch_size=64)}
QUICK = {
    kind: Settings(
        train_tasks=2,
        train_images=2_000,
        images=500,
        test_images=500,
        test_tasks=2,
        test_samples=4,
        width=50,
        first_steps=30,
        plain_epochs=3,
        epochs=4,
        local_steps=10,
        adapt_steps=20,
        alone_epochs=3,
        amortised_seconds=3.0,
        amortised_images=20,
    )
    for kind in (LABELS, PIXELS)
}


class Job(NamedTuple):
    """One method on one kind of tasks."""

    folder: Path
    kind: str
    method: str
    settings: Settings


class Permuted:
    """Tasks by index: images of the training set as support, of the test set as query, under permutation ``index``."""

    def __init__(self, folder: Path, kind: str, support: int, query: int, *, same: int | None = None) -> None:
        self._train, self._test = _images(folder, "train"), _images(folder, "test")
        self._kind, self._support, self._query, self._same = kind, support, query, same

    def __getitem__(self, index: int) -> Task:
        """``same``: only so many permutations, and other images in every turn."""
        permutation = index if self._same is None else index % self._same
        support = _drawn(self._train, self._support, Noise(0, task=index).fork("support images"))
        query = _drawn(self._test, self._query, Noise(0, task=index).fork("query images"))
        change = self._change(permutation)
        return Task(change(support), change(query), f"{self._kind} {index}")

    def _change(self, permutation: int) -> Callable[[Examples], Examples]:
        generator = Noise(0, task=permutation).fork(f"permutation of {self._kind}").generator()
        if self._kind == LABELS:
            names = torch.randperm(10, generator=generator)
            return lambda examples: Examples(examples.x.view(-1, 1, 28, 28), names[examples.y])
        order = torch.arange(784)
        for one, two in torch.randint(784, (SWAPS, 2), generator=generator).tolist():
            order[[one, two]] = order[[two, one]]
        return lambda examples: Examples(examples.x[:, order], examples.y)


def _images(folder: Path, part: str) -> Examples:
    images, labels = mnist(folder, part)
    x = torch.as_tensor(images)
    return Examples(x / 2 - 0.26, torch.as_tensor(labels))  # about mean zero


def _drawn(pool: Examples, count: int, noise: Noise) -> Examples:
    rows = torch.randperm(len(pool.x), generator=noise.generator())[:count]
    return Examples(pool.x[rows], pool.y[rows])


def network(kind: str, settings: Settings, seed: int = 0) -> nn.Module:
    """The publication's networks: two convolutions and two layers for labels, three hidden layers for pixels."""
    torch.manual_seed(seed)
    if kind == PIXELS:
        return MLP(784, [settings.width] * 3, 10)
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.MaxPool2d(2),
        nn.ELU(),
        nn.Conv2d(10, 20, 5),
        nn.MaxPool2d(2),
        nn.ELU(),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.ELU(),
        nn.Linear(50, 10),
    )


Classifier = Callable[[Tensor], Tensor]
"""Images -> labels."""
Learner = Callable[[Examples, int], Classifier]
"""(support set of a new task, its number) -> classifier."""


def _by_forecast(posterior: Posterior, samples: int) -> Classifier:
    def labels(x: Tensor) -> Tensor:
        forecast = posterior.predict(x, samples=samples)
        if not isinstance(forecast, CategoricalForecast):
            raise TypeError(f"expected class probabilities, got {type(forecast).__name__}")
        return forecast.labels

    return labels


def _training_tasks(job: Job, count: int) -> list[Task]:
    source = Permuted(job.folder, job.kind, job.settings.train_images, 1)
    return [source[index] for index in range(count)]


def _trained_on(first: Examples, job: Job) -> nn.Module:
    """A plain network that knows the first training task."""
    settings, module = job.settings, network(job.kind, job.settings)
    _train(module, first, settings, steps=settings.first_steps)
    return module


def hierarchical(job: Job) -> Learner:
    """A posterior for every training task and for the prior; a new task descends under it."""
    settings, tasks = job.settings, _training_tasks(job, job.settings.train_tasks)
    hvi = HierarchicalVI(_trained_on(tasks[0].support, job), Categorical(), hyperprior=GaussianHyperprior())
    hvi.fit(
        {task.name: task.support for task in tasks},
        epochs=settings.epochs,
        local_steps=settings.local_steps,
        task_batch=len(tasks),
        batch_size=settings.batch_size,
        lr=settings.lr,
        kl_warmup=0.0,  # so many images are heard above any KL, and tasks that are let go first drift apart
        progress=False,
    )

    def learn(support: Examples, number: int) -> Classifier:
        steps, batch_size = settings.adapt_steps, settings.batch_size
        posterior = hvi.adapt(support, steps, lr=settings.lr, batch_size=batch_size, seed=number)
        return _by_forecast(posterior, settings.test_samples)

    return learn


def amortised(job: Job) -> Learner:
    """A few inner steps from a learned prior; in training from few images, of a new task from all."""
    settings, first = job.settings, _training_tasks(job, 1)[0].support
    inner = InnerLoop(steps=settings.inner_steps, lr=settings.inner_lr, learn_lr="per_tensor", kl_weight=0.01)
    learner = MetaLearner(_trained_on(first, job), Categorical(), inner=inner, objective="predictive", outer_samples=2)
    images = settings.amortised_images
    source = Permuted(job.folder, job.kind, images, images, same=settings.train_tasks)
    training = MetaTraining(meta_batch=1, pretrained=True)
    fit_within(learner, source, training, seconds=settings.amortised_seconds, progress=False)

    def learn(support: Examples, number: int) -> Classifier:
        return _by_forecast(learner.adapt(support, seed=number), settings.test_samples)

    return learn


def alone(job: Job) -> Learner:
    """Bayes by Backprop on the new task's images, from a prior that knows nothing."""
    settings = job.settings

    def learn(support: Examples, number: int) -> Classifier:
        prior = NormalPrior(settings.alone_prior_std)
        method = BayesByBackprop(network(job.kind, settings, seed=number), Categorical(), prior=prior)
        method.fit(
            *support,
            epochs=settings.alone_epochs,
            batch_size=settings.batch_size,
            lr=settings.lr,
            samples=1,
            progress=False,
        )
        return _by_forecast(method.posterior_, settings.test_samples)

    return learn


def scratch(job: Job) -> Learner:
    """A plain network on the new task's images."""
    return lambda support, number: _plain(network(job.kind, job.settings, seed=number), support, job.settings)


def warm_start(job: Job) -> Learner:
    """A plain network, trained on the first training task, is where training on a new task starts."""
    module = _trained_on(_training_tasks(job, 1)[0].support, job)
    return lambda support, number: _plain(copy.deepcopy(module), support, job.settings)


def _plain(module: nn.Module, support: Examples, settings: Settings) -> Classifier:
    _train(module, support, settings, steps=settings.plain_epochs * math.ceil(support.size / settings.plain_batch))

    def labels(x: Tensor) -> Tensor:
        with torch.no_grad():
            return module(x).argmax(1)  # type: ignore[no-any-return]

    return labels


def _train(module: nn.Module, examples: Examples, settings: Settings, *, steps: int) -> None:
    optimizer = torch.optim.Adam(module.parameters(), lr=settings.plain_lr)
    for rows in islice(_batches(examples.size, settings.plain_batch), steps):
        optimizer.zero_grad()
        F.cross_entropy(module(examples.x[rows]), examples.y[rows]).backward()
        optimizer.step()


def _batches(size: int, batch: int) -> Iterator[Tensor]:
    for epoch in count():
        yield from torch.randperm(size, generator=Noise(0, step=epoch).fork("order").generator()).split(batch)


LEARNERS: dict[str, Callable[[Job], Learner]] = {
    HIERARCHICAL: hierarchical,
    AMORTISED: amortised,
    SCRATCH: scratch,
    ALONE: alone,
    WARM: warm_start,
}


def measure(job: Job) -> Row:
    """Learn from the training tasks, then each new task; its error, and the time of both."""
    settings, started = job.settings, time.process_time()
    learn = LEARNERS[job.method](job)
    trained, errors = time.process_time(), list[float]()
    new = Permuted(job.folder, job.kind, settings.images, settings.test_images)
    for number in range(settings.test_tasks):
        task = new[TEST_TASKS_FROM + number]
        labels = learn(task.support, number)(task.query.x)
        errors.append(100 * float((labels != task.query.y).double().mean()))
    values = torch.tensor(errors, dtype=torch.float64)
    return {
        "tasks": f"permuted {job.kind}",
        "method": job.method,
        "error_percent": float(values.mean()),
        "error_se": scores.standard_error(values),
        "training_tasks": TRAINED_ON.get(job.method, settings.train_tasks),
        "new_tasks": len(errors),
        "training_seconds": trained - started,
        "seconds_a_task": (time.process_time() - trained) / len(errors),
    }


def run(folder: Path, *, quick: bool = False, workers: int | None = None) -> BenchResult:
    """Every method on both kinds of tasks, then the published figures."""
    settings = QUICK if quick else FULL
    mnist(folder, "test")  # missing files are said here, once, and not by every worker
    jobs = [Job(folder, kind, method, settings[kind]) for method in METHODS for kind in (PIXELS, LABELS)]
    rows = run_all(measure, jobs, workers=workers, label="permuted MNIST")
    headline = headline_of({(job.kind, job.method): row["error_percent"] for job, row in zip(jobs, rows, strict=True)})
    for kind, figures in PUBLISHED.items():
        known = {"tasks": f"permuted {kind}", "training_tasks": 5 if kind == LABELS else 10, "new_tasks": 20}
        rows += [{"method": f"published: {name}", **known, "error_percent": e} for name, e in figures.items()]
    about = {kind: asdict(chosen) for kind, chosen in settings.items()}
    return BenchResult(headline, rows, {"bench": "permuted", "quick": quick, **about}, _notes(settings[PIXELS], quick))


def headline_of(errors: dict[tuple[str, str], float]) -> dict[str, float]:
    """Errors by kind and method, and how many times smaller the hierarchy's is than the best without other tasks."""
    names = {
        HIERARCHICAL: "hierarchical",
        AMORTISED: "amortised",
        SCRATCH: "scratch",
        ALONE: "alone",
        WARM: "warm_start",
    }
    headline = {f"error_{kind}_{names[method]}": error for (kind, method), error in errors.items()}
    for kind in (LABELS, PIXELS):
        best = min(errors[kind, SCRATCH], errors[kind, ALONE])
        headline[f"gain_{kind}"] = best / errors[kind, HIERARCHICAL]
    return headline


def _notes(settings: Settings, quick: bool) -> list[str]:
    return [
        f"new tasks have {settings.images} images each, training tasks {settings.train_images}; error on "
        f"{settings.test_images} test images under the new permutation, standard error over new tasks; CPU seconds",
        "permuted labels: two convolutions (10 and 20 filters of 5 x 5) and layers of 50 and 10; permuted pixels "
        f"({SWAPS} swaps): three hidden layers of {settings.width}; all weights random in the Bayesian methods",
        f"hierarchical, amortised and warm start begin with a plain network, {settings.first_steps} steps on the first "
        "training task; what it takes is in their time",
        "gain: error of the better of scratch and Bayes by Backprop over that of the hierarchy",
        "published: Amit & Meir 2018, cited from memory; 150 epochs over the training tasks and 200 over a new one",
        *["--quick: too short a training to compare anything"] * quick,
    ]
