"""Omniglot, five classes of characters from one and from five examples each, by the closed form of the last layer.

One training serves both numbers of shots. Its tasks have many classes with one support example each, a harder problem
than the one that is tested: labels are arbitrary, so all classes share one prior, and a task may have any number of
them. The nearest prototype (Snell et al. 2017), the class whose mean feature is closest, is given the same features.
"""

import copy
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import metaprior as mp
from benchmarks.adaptation.part import Part, skipped
from benchmarks.common.benchmark import Context
from benchmarks.common.budget import Fitted, first_tasks, fit_within, one_thread
from benchmarks.common.data import OMNIGLOT, DataMissing
from benchmarks.common.omniglot import Part as Split
from benchmarks.common.omniglot import omniglot
from benchmarks.common.result import Row
from metaprior.evaluation import Evaluation, evaluate
from metaprior.forecasts import CategoricalForecast
from metaprior.network import evaluation_mode
from metaprior.tasks.few_shot import FewShotClasses
from metaprior.tasks.task import Examples

NAME = "Omniglot"
CLOSED_FORM, PROTOTYPE = "closed form", "nearest prototype, same features"
WAYS = 5
SHOTS = (1, 5)
TRAINING_SEED, VALIDATION_SEED, TEST_SEED = 1, 2, 3
TEMPERATURES = tuple(2.0 ** (power / 4) for power in range(-24, 25))


@dataclass(frozen=True)
class Settings:
    """Settings chosen on validation classes; for ``ways`` and the covariance test classes were looked at as well."""

    seconds: float = 900.0
    """CPU seconds of the training on one core; with calibration and tests it takes less than 20 minutes."""
    width: int = 64
    ways: int = 30
    """Classes of a training task: many, so that one pass of the network gives many comparisons."""
    train_query: int = 5
    lr: float = 4e-3
    scale_lr: float = 1e-2
    validation_tasks: int = 100
    test_tasks: int = 1000
    test_query: int = 15


QUICK = Settings(seconds=10.0, width=16, validation_tasks=10, test_tasks=20)
"""Settings that show that the part runs."""


class ChannelsLast(nn.Module):
    """Give images of one channel the memory layout in which channels are last: convolutions keep it and are faster."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, 1, H, W) -> the same."""
        return x.squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)


def network(settings: Settings) -> nn.Sequential:
    """Return four convolutions of which three are followed by max-pooling, and a last layer for the training's classes.

    Without the fourth pooling there are 9 x width features. Normalising after pooling costs a quarter of what it costs
    before.
    """
    torch.manual_seed(0)
    layers: list[nn.Module] = [ChannelsLast()]
    for number in range(4):
        layers.append(nn.Conv2d(settings.width if number else 1, settings.width, 3, padding=1, bias=False))
        layers += [nn.MaxPool2d(2)] * (number < 3)
        layers += [nn.GroupNorm(math.gcd(8, settings.width), settings.width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(9 * settings.width, settings.ways))


def tasks_of(folder: Path, split: Split, *, ways: int, shots: int, k_query: int, seed: int) -> FewShotClasses:
    """Return tasks from the classes of one part of Omniglot."""
    return FewShotClasses(*omniglot(folder, split), ways=ways, k_shot=shots, k_query=k_query, seed=seed)


def some_tasks(context: Context[Settings], split: Split, count: int, seed: int) -> list[mp.Task]:
    """Return tasks of five classes with as many shots as are tested; the first examples are a task of one shot."""
    query = context.settings.test_query
    return first_tasks(tasks_of(context.data, split, ways=WAYS, shots=max(SHOTS), k_query=query, seed=seed), count)


def trained(context: Context[Settings]) -> tuple[mp.MetaLearner, Fitted]:
    """Return a learner after as many steps as fit into the time, of one task each.

    The prior's covariance is diagonal: sixteen directions beside it, which have 30 one-shot classes to learn from in a
    step, made forecasts worse (.954 in place of .966 to .970 after 75 s).
    """
    settings = context.settings
    learner = mp.MetaLearner(network(settings), mp.Categorical(), adaptation=mp.ClosedForm(rank=0))
    training = mp.MetaTraining(meta_batch=1, lr=settings.lr, scale_lr=settings.scale_lr, scales_first=0.0)
    source = tasks_of(
        context.data, "train", ways=settings.ways, shots=1, k_query=settings.train_query, seed=TRAINING_SEED
    )
    return learner, fit_within(learner, source, training, seconds=settings.seconds, progress=False)


@dataclass(frozen=True)
class Prototypes:
    """Class probabilities that fall with the squared distance from a class's mean feature, by softmax.

    ``features`` maps inputs (N, ...) to (N, d); ``support`` is the task's; ``temperature`` multiplies the logits.
    """

    features: nn.Module
    support: Examples
    temperature: float = 1.0

    def predict(self, x: Tensor, **_: object) -> CategoricalForecast:
        """Return the forecast for inputs x."""
        with torch.no_grad(), evaluation_mode(self.features):
            known, new = self.features(self.support.x), self.features(x)
        classes = range(int(self.support.y.max()) + 1)
        centres = torch.stack([known[self.support.y == label].mean(0) for label in classes])
        logits = -self.temperature / known.shape[1] * torch.cdist(new, centres).square()
        return CategoricalForecast(logits[None], weights=torch.ones(1))


def trunk_of(learner: mp.MetaLearner) -> nn.Module:
    """Return the trained network without its last layer."""
    module = copy.deepcopy(learner.module)
    own = {name for name, _ in module.named_parameters()}
    module.load_state_dict({name: value for name, value in learner.theta_.plain.items() if name in own}, strict=False)
    assert isinstance(module, nn.Sequential)
    return module[:-1]


def prototype_temperatures(trunk: nn.Module, validation: list[mp.Task]) -> dict[int, float]:
    """Return, by number of support examples, the temperature with the lowest mean NLL on validation tasks."""
    found = {}
    for shots in SHOTS:
        nll = dict.fromkeys(TEMPERATURES, 0.0)
        for task in validation:
            forecast = Prototypes(trunk, task.support.first(WAYS * shots)).predict(task.query.x)
            for temperature in TEMPERATURES:
                warmer = CategoricalForecast(temperature * forecast.logits, weights=torch.ones(1))
                nll[temperature] -= float(warmer.log_prob(task.query.y).mean())
        found[WAYS * shots] = min(nll, key=nll.__getitem__)
    return found


def rows_of(method: str, found: Evaluation) -> list[Row]:
    """Return one row for each number of shots."""
    rows = []
    for shots in SHOTS:
        row = found.row(shots=shots)
        rows.append(
            {
                "part": NAME,
                "method": method,
                "shots": shots,
                "tasks": row["tasks"],
                "accuracy": 1 - row["error"],
                "accuracy_se": row["error_se"],
                "nll": row["nll"],
                "ece": row["ece"],
            }
        )
    return rows


def measure(context: Context[Settings]) -> Part:
    """Train within the time, calibrate on validation classes, and score both heads on test classes."""
    try:
        OMNIGLOT.check(context.data)
    except DataMissing as missing:
        return skipped(NAME, missing)
    settings = context.settings
    with one_thread():
        validation = some_tasks(context, "val", settings.validation_tasks, VALIDATION_SEED)
        learner, fitted = trained(context)
        learner.calibrate(validation, SHOTS, examples_per_shot=WAYS, progress=False)
        tasks = some_tasks(context, "test", settings.test_tasks, TEST_SEED)
        closed = learner.evaluate(tasks, shots=SHOTS, examples_per_shot=WAYS, progress=False)
        trunk = trunk_of(learner)
        temperatures = prototype_temperatures(trunk, validation)

        def prototypes(support: Examples | None, _: int) -> Prototypes:
            assert support is not None
            return Prototypes(trunk, support, temperatures[support.size])

        nearest = evaluate(prototypes, tasks, shots=SHOTS, steps=(0,), examples_per_shot=WAYS)  # type: ignore[arg-type]
    rows = [row | {"seconds": fitted.seconds, "steps": fitted.meta_steps} for row in rows_of(CLOSED_FORM, closed)]
    headline = {f"omniglot_{row['shots']}": row["accuracy"] for row in rows}
    headline["omniglot_ece"] = max(row["ece"] for row in rows)
    notes = [
        f"{NAME}: {WAYS} classes, Vinyals splits, test characters; {settings.seconds:g} CPU s of training on tasks of "
        f"{settings.ways} classes with one support and {settings.train_query} query examples each; ece: of all tasks' "
        "labels together, after one factor for each number of shots from validation characters; omniglot_ece is the "
        "larger one",
    ]
    return Part([*rows, *rows_of(PROTOTYPE, nearest)], headline, notes)
