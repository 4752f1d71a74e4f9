"""Digits with permuted labels or permuted pixels, as in Amit & Meir 2018: what are other tasks worth?

A task is MNIST with one permutation. Methods see training tasks with many images, then new tasks with 2,000 images
each, and are scored by their error on test images under the new permutation. Tasks of permuted labels share all layers
except the last one, tasks of permuted pixels all except the first: a prior over weights has to learn that from them.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import first_tasks, fit_within
from benchmarks.common.data import MNIST, mnist
from benchmarks.common.result import BenchmarkResult, Row, mean_row
from metaprior.forecasts import CategoricalForecast

LABELS, PIXELS = "labels", "pixels"
SCRATCH, ALONE, WARM = "scratch", "Bayes by Backprop, task alone", "warm start"
HIERARCHICAL, AMORTISED = "hierarchical", "amortised"
METHODS = (HIERARCHICAL, AMORTISED, SCRATCH, ALONE, WARM)
TRAINED_ON = {SCRATCH: 0, ALONE: 0, WARM: 1}
"""Training tasks that a method sees, if not all."""
SWAPS = 200
"""Pairs of pixels that change places in a task of permuted pixels."""
TEST_TASKS_FROM = 1000
"""Tasks from this index on are the new ones; settings were chosen on tasks between those of training and these."""

PUBLISHED = {
    LABELS: {"scratch": 2.3, "MAML": 1.16, "MLAP-S": 0.75},
    PIXELS: {"scratch": 7.9, "MAML": 3.77, "MLAP-S": 3.54},
}
"""Test error in percent, 20 new tasks of 2,000 images (Amit & Meir 2018; cited from memory)."""


@dataclass(frozen=True)
class KindSettings:
    """For one kind of tasks, chosen on permutations that are neither trained on nor tested.

    The publication has 150 epochs over the training tasks, 20 new tasks, and 200 epochs over each.
    """

    train_tasks: int
    train_images: int = 60_000
    images: int = 2_000
    """Images of a new task."""
    test_images: int = 5_000
    test_tasks: int = 10
    test_samples: int = 10
    width: int = 200
    first_steps: int = 1_500
    """Steps of a plain network on the first training task, where all methods that learn from training tasks start."""
    plain_batch: int = 64
    plain_lr: float = 1e-3
    plain_epochs: int = 40
    """Epochs over the images of a new task."""
    epochs: int = 200
    local_steps: int = 20
    batch_size: int = 32
    lr: float = 3e-3
    adapt_steps: int = 1_000
    alone_epochs: int = 60
    alone_prior_std: float = 0.1
    amortised_seconds: float = 300.0
    amortised_images: int = 200
    """Images in the support set, and in the query set, of a task of meta-training."""
    inner_steps: int = 5
    inner_lr: float = 0.1


@dataclass(frozen=True)
class Settings:
    """Settings for both kinds of tasks."""

    labels: KindSettings = KindSettings(train_tasks=5)
    pixels: KindSettings = KindSettings(train_tasks=10, epochs=120, batch_size=64)


QUICK = KindSettings(
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


class Problem(NamedTuple):
    """The data folder, the kind of tasks, and its settings."""

    folder: Path
    kind: str
    settings: KindSettings


class Permuted:
    """Tasks with images of the training set as support and of the test set as query, under permutation ``index``."""

    def __init__(self, folder: Path, kind: str, support: int, query: int, *, same: int | None = None) -> None:
        self._train, self._test = _images(folder, "train"), _images(folder, "test")
        self._kind, self._support, self._query, self._same = kind, support, query, same

    def __getitem__(self, index: int) -> mp.Task:
        """Return a task; ``same`` limits the number of permutations, which then return with other images."""
        permutation = index if self._same is None else index % self._same
        support = _drawn(self._train, self._support, mp.Noise(0, task=index).fork("support images"))
        query = _drawn(self._test, self._query, mp.Noise(0, task=index).fork("query images"))
        change = self._change(permutation)
        return mp.Task(change(support), change(query), f"{self._kind} {index}")

    def _change(self, permutation: int) -> Callable[[mp.Examples], mp.Examples]:
        generator = mp.Noise(0, task=permutation).fork(f"permutation of {self._kind}").generator()
        if self._kind == LABELS:
            names = torch.randperm(10, generator=generator)
            return lambda examples: mp.Examples(examples.x.view(-1, 1, 28, 28), names[examples.y])
        order = torch.arange(784)
        for one, two in torch.randint(784, (SWAPS, 2), generator=generator).tolist():
            order[[one, two]] = order[[two, one]]
        return lambda examples: mp.Examples(examples.x[:, order], examples.y)


def _images(folder: Path, part: str) -> mp.Examples:
    images, labels = mnist(folder, part)
    x = torch.as_tensor(images)
    return mp.Examples(x / 2 - 0.26, torch.as_tensor(labels))  # about mean zero


def _drawn(pool: mp.Examples, count: int, noise: mp.Noise) -> mp.Examples:
    rows = torch.randperm(len(pool.x), generator=noise.generator())[:count]
    return mp.Examples(pool.x[rows], pool.y[rows])


def network(kind: str, settings: KindSettings, seed: int = 0) -> nn.Module:
    """Return the publication's network: two convolutions and two layers for labels, three hidden layers for pixels."""
    torch.manual_seed(seed)
    if kind == PIXELS:
        return mp.MLP(784, [settings.width] * 3, 10)
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
"""Returns the labels of images."""
Learner = Callable[[mp.Examples, int], Classifier]
"""Returns a classifier for the support set of a new task and its number."""


def _by_forecast(posterior: mp.Predictive, samples: int) -> Classifier:
    def labels(x: Tensor) -> Tensor:
        forecast = posterior.predict(x, samples=samples)
        if not isinstance(forecast, CategoricalForecast):
            raise TypeError(f"expected class probabilities, got {type(forecast).__name__}")
        return forecast.labels

    return labels


def _training_tasks(problem: Problem, count: int) -> list[mp.Task]:
    return first_tasks(Permuted(problem.folder, problem.kind, problem.settings.train_images, 1), count)


def _trained_on(first: mp.Examples, problem: Problem) -> nn.Module:
    """Return a plain network that was trained on the first training task."""
    settings, module = problem.settings, network(problem.kind, problem.settings)
    _train(module, first, settings, steps=settings.first_steps)
    return module


def hierarchical(problem: Problem) -> Learner:
    """Learn a posterior for every training task and for their prior, under which new tasks are fitted."""
    settings, tasks = problem.settings, _training_tasks(problem, problem.settings.train_tasks)
    hvi = mp.HierarchicalVI(
        _trained_on(tasks[0].support, problem), mp.Categorical(), hyperprior=mp.GaussianHyperprior()
    )
    hvi.fit(
        {task.name: task.support for task in tasks},
        epochs=settings.epochs,
        local_steps=settings.local_steps,
        task_batch=len(tasks),
        batch_size=settings.batch_size,
        lr=settings.lr,
        kl_warmup=0.0,  # the likelihood of so many images outweighs any KL, and with a warm-up the tasks drift apart
        progress=False,
    )

    def learn(support: mp.Examples, number: int) -> Classifier:
        steps, batch_size = settings.adapt_steps, settings.batch_size
        posterior = hvi.adapt(support, steps, lr=settings.lr, batch_size=batch_size, seed=number)
        return _by_forecast(posterior, settings.test_samples)

    return learn


def amortised(problem: Problem) -> Learner:
    """Learn a prior for a few inner steps: from few images in training, from all images of a new task."""
    settings, first = problem.settings, _training_tasks(problem, 1)[0].support
    inner = mp.Descent(steps=settings.inner_steps, lr=settings.inner_lr, learn_lr="per_tensor", kl_weight=0.01)
    learner = mp.MetaLearner(
        _trained_on(first, problem), mp.Categorical(), adaptation=inner, objective="predictive", outer_samples=2
    )
    images = settings.amortised_images
    source = Permuted(problem.folder, problem.kind, images, images, same=settings.train_tasks)
    training = mp.MetaTraining(meta_batch=1, pretrained=True)
    fit_within(learner, source, training, seconds=settings.amortised_seconds, progress=False)

    def learn(support: mp.Examples, number: int) -> Classifier:
        return _by_forecast(learner.adapt(support, seed=number), settings.test_samples)

    return learn


def alone(problem: Problem) -> Learner:
    """Fit Bayes by Backprop to the new task's images, with the same prior for all weights."""
    settings = problem.settings

    def learn(support: mp.Examples, number: int) -> Classifier:
        prior = mp.NormalPrior(settings.alone_prior_std)
        method = mp.BayesByBackprop(network(problem.kind, settings, seed=number), mp.Categorical(), prior=prior)
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


def scratch(problem: Problem) -> Learner:
    """Train a plain network on the new task's images."""
    return lambda support, number: _plain(
        network(problem.kind, problem.settings, seed=number), support, problem.settings
    )


def warm_start(problem: Problem) -> Learner:
    """Train a plain network on the first training task, and continue on the new task's images."""
    module = _trained_on(_training_tasks(problem, 1)[0].support, problem)
    return lambda support, number: _plain(copy.deepcopy(module), support, problem.settings)


def _plain(module: nn.Module, support: mp.Examples, settings: KindSettings) -> Classifier:
    _train(module, support, settings, steps=settings.plain_epochs * math.ceil(support.size / settings.plain_batch))

    def labels(x: Tensor) -> Tensor:
        with torch.no_grad():
            return module(x).argmax(1)  # type: ignore[no-any-return]

    return labels


def _train(module: nn.Module, examples: mp.Examples, settings: KindSettings, *, steps: int) -> None:
    optimizer = torch.optim.Adam(module.parameters(), lr=settings.plain_lr)
    for rows in islice(_batches(examples.size, settings.plain_batch), steps):
        optimizer.zero_grad()
        F.cross_entropy(module(examples.x[rows]), examples.y[rows]).backward()
        optimizer.step()


def _batches(size: int, batch: int) -> Iterator[Tensor]:
    for epoch in count():
        yield from torch.randperm(size, generator=mp.Noise(0, step=epoch).fork("order").generator()).split(batch)


LEARNERS: dict[str, Callable[[Problem], Learner]] = {
    HIERARCHICAL: hierarchical,
    AMORTISED: amortised,
    SCRATCH: scratch,
    ALONE: alone,
    WARM: warm_start,
}


def measure_method(context: Context[Settings], kind: str, method: str) -> Row:
    """Learn from the training tasks, then learn each new task; return the errors and the seconds of both."""
    settings: KindSettings = getattr(context.settings, kind)
    started = time.process_time()
    learn = LEARNERS[method](Problem(context.data, kind, settings))
    trained, errors = time.process_time(), list[float]()
    new = Permuted(context.data, kind, settings.images, settings.test_images)
    for number in range(settings.test_tasks):
        task = new[TEST_TASKS_FROM + number]
        labels = learn(task.support, number)(task.query.x)
        errors.append(100 * float((labels != task.query.y).double().mean()))
    error = mean_row("error", errors)
    return {
        "tasks": f"permuted {kind}",
        "method": method,
        "error_percent": error["error"],
        "error_se": error["error_se"],
        "training_tasks": TRAINED_ON.get(method, settings.train_tasks),
        "new_tasks": len(errors),
        "training_seconds": trained - started,
        "seconds_a_task": (time.process_time() - trained) / len(errors),
    }


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every method on both kinds of tasks, and put the published figures beside them."""
    jobs = [(kind, method) for method in METHODS for kind in (PIXELS, LABELS)]
    rows = context.map(measure_method, jobs)
    headline = headline_of({job: row["error_percent"] for job, row in zip(jobs, rows, strict=True)})
    for kind, figures in PUBLISHED.items():
        known = {"tasks": f"permuted {kind}", "training_tasks": 5 if kind == LABELS else 10, "new_tasks": 20}
        rows += [{"method": f"published: {name}", **known, "error_percent": e} for name, e in figures.items()]
    return BenchmarkResult(headline, rows, _notes(context.settings.pixels))


def headline_of(errors: dict[tuple[str, str], float]) -> dict[str, float]:
    """Return errors by kind and method, and the best error without other tasks over that of the hierarchy."""
    names = {ALONE: "alone", WARM: "warm_start"}
    headline = {f"error_{kind}_{names.get(method, method)}": error for (kind, method), error in errors.items()}
    for kind in (LABELS, PIXELS):
        best = min(errors[kind, SCRATCH], errors[kind, ALONE])
        headline[f"gain_{kind}"] = best / errors[kind, HIERARCHICAL]
    return headline


def _notes(settings: KindSettings) -> list[str]:
    return [
        f"new tasks have {settings.images} images each, training tasks {settings.train_images}; error on "
        f"{settings.test_images} test images under the new permutation, standard error over new tasks; CPU seconds",
        "permuted labels: two convolutions (10 and 20 filters of 5 x 5) and layers of 50 and 10; permuted pixels "
        f"({SWAPS} swaps): three hidden layers of {settings.width}; all weights random in the Bayesian methods",
        f"hierarchical, amortised and warm start begin with a plain network, {settings.first_steps} steps on the first "
        "training task; what it takes is in their time",
        "gain: error of the better of scratch and Bayes by Backprop over that of the hierarchy",
        "published: Amit & Meir 2018, cited from memory; 150 epochs over the training tasks and 200 over a new one",
    ]


BENCHMARK = Benchmark(
    "permuted",
    "digits with permuted labels or pixels, new tasks of 2,000 images: scratch, warm start, hierarchical, amortised",
    measure,
    full=Settings(),
    quick=Settings(QUICK, QUICK),
    quick_note="too short a training to compare anything",
    data=(MNIST,),
)
