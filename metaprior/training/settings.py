"""The settings of a meta-training, and what follows from them for each step: phase, learning rates, KL weight.

Everything is a function of the number of steps done, so nothing of it needs to be stored. A training has up to three
phases: a warm start on pooled tasks, then the scales alone (step sizes, sigma, noise), then everything.
"""

import math
from dataclasses import dataclass, fields
from typing import Literal

from metaprior.checks import check_integer, check_not_negative, check_positive, check_share

FIRST_STEPS = 10
"""Steps over which the learning rates rise: Adam's first steps are of full size, whatever the gradient."""


@dataclass(frozen=True)
class MetaTraining:
    """How theta is learned. The defaults work without tuning in most cases.

    Args:
        epochs: epochs of meta-training, after the warm start.
        tasks_per_epoch: tasks drawn in an epoch.
        meta_batch: tasks whose gradients are averaged in a step.
        shots: sizes of support sets, times the learner's ``examples_per_shot``: every meta-batch draws one of them, and
            splits the examples of its tasks anew (``VariedSupport``). With several, 0 among them, a prior knows how
            sure to be after any number of examples. Empty takes the support sets as they are.
        lr: AdamW's learning rate for the means and the plain network parameters.
        scale_lr: its learning rate for everything that is a scale: sigma, step sizes, noise.
        weight_decay: weight decay of the means and plain network parameters; scales are never decayed.
        grad_clip_norm: largest norm of the gradient by the means, and of that by the scales. Losses are per observation
            of standardised targets, so the default fits targets in any units.
        schedule: how the learning rates fall: "cosine" (to zero at the end), "plateau" (halved when the validation
            score has not improved for ``plateau_patience`` validations; ``fit``, which validates nothing, uses an
            epoch's mean loss), "constant".
        plateau_patience: see ``schedule``.
        warm_start: steps of plain training on pooled tasks before any meta-step: sigma plays no part, and the support
            and query sets of ``meta_batch`` tasks are one batch.
        warm_start_lr: the learning rate of these steps; it falls to zero along a cosine if warm_start_average is 0.
        warm_start_average: above 0, warm_start_lr does not fall, and the warm start ends with the average over about
            this share of its steps, the last ones (0.03 in the configurations that come with the package).
        scales_first: share of the meta-steps in which only scales move (step sizes, sigma, noise), before the means.
        kl_warmup: share of the meta-steps over which the KL's weight rises from zero to its value.
        search_step_size: where step sizes are learned, find a common first one by trying ``Descent.lr`` and others.
        balance_step_sizes: in this search, divide every tensor's step size by the size of its gradients on some tasks
            (so that their mean is the common one). Useful where layers differ much and the means are trained already;
            needs ``Descent(learn_lr="per_tensor")``.
        pretrained: whether the means are trained already (the module was given with its weights).
        most_bad_tasks: stop after this many tasks in a row without a finite gradient.
    """

    epochs: int = 10
    tasks_per_epoch: int = 100
    meta_batch: int = 4
    shots: tuple[int, ...] = ()
    lr: float = 1e-3
    scale_lr: float = 1e-2
    weight_decay: float = 0.0
    grad_clip_norm: float = 1.0
    schedule: Literal["cosine", "plateau", "constant"] = "cosine"
    plateau_patience: int = 5
    warm_start: int = 0
    warm_start_lr: float = 1e-3
    warm_start_average: float = 0.0
    scales_first: float = 0.1
    kl_warmup: float = 0.0
    search_step_size: bool = True
    balance_step_sizes: bool = False
    pretrained: bool = False
    most_bad_tasks: int = 40

    def __post_init__(self) -> None:
        for name in ("epochs", "tasks_per_epoch", "meta_batch", "plateau_patience", "warm_start", "most_bad_tasks"):
            check_integer(name, getattr(self, name), 0 if name in ("epochs", "warm_start") else 1)
        object.__setattr__(self, "shots", tuple(self.shots))  # also a list, or range(11)
        for size in self.shots:
            check_integer("shots", size, 0)
        for name in ("lr", "scale_lr", "warm_start_lr", "grad_clip_norm"):
            check_positive(name, getattr(self, name))
        for name in ("scales_first", "kl_warmup", "warm_start_average"):
            check_share(name, getattr(self, name))
        check_not_negative("weight_decay", self.weight_decay)
        if self.balance_step_sizes and not self.search_step_size:
            raise ValueError("balance_step_sizes needs search_step_size=True: it is a part of that search")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")

    @property
    def starts_warm(self) -> bool:
        """Whether meta-training starts from trained means."""
        return self.pretrained or self.warm_start > 0

    @property
    def steps_per_epoch(self) -> int:
        """Number of meta-steps in an epoch."""
        return math.ceil(self.tasks_per_epoch / self.meta_batch)

    @property
    def meta_steps(self) -> int:
        """Number of meta-steps in all."""
        return self.epochs * self.steps_per_epoch

    @property
    def steps(self) -> int:
        """Number of steps in all, the warm start included."""
        return self.warm_start + self.meta_steps


SCHEDULES = ("cosine", "plateau", "constant")
FIELDS = tuple(field.name for field in fields(MetaTraining))


@dataclass(frozen=True)
class Phase:
    """A stretch of the training, from step ``start`` up to ``stop``."""

    name: Literal["warm start", "scales", "everything"]
    start: int
    stop: int

    @property
    def pooled(self) -> bool:
        """Whether gradients are plain ones on pooled tasks, without any adaptation."""
        return self.name == "warm start"

    @property
    def moves_means(self) -> bool:
        """Whether the means move, and not only scales."""
        return self.name != "scales"


def phase_at(settings: MetaTraining, step: int) -> Phase:
    """Return the phase that a step belongs to."""
    first = settings.warm_start
    then = first + round(settings.scales_first * settings.meta_steps)
    if step < first:
        return Phase("warm start", 0, first)
    if step < then:
        return Phase("scales", first, then)
    return Phase("everything", then, settings.steps)


def learning_rate_factor(settings: MetaTraining, step: int, since: int) -> float:
    """Return the factor of the learning rate of a group that moves ``since`` a step; plateaus have another factor."""
    pooled = step < settings.warm_start
    start, count = (0, settings.warm_start) if pooled else (settings.warm_start, settings.meta_steps)
    rise = min(1.0, (step - since + 1) / FIRST_STEPS)
    if settings.warm_start_average > 0 if pooled else settings.schedule != "cosine":
        return rise
    return rise * 0.5 * (1 + math.cos(math.pi * (step - start) / count))


def kl_share(settings: MetaTraining, step: int) -> float:
    """Return the factor of the KL's weights, of the inner and the outer loss, at a step."""
    warmup = settings.kl_warmup * settings.meta_steps
    done = step - settings.warm_start
    return 1.0 if done >= warmup else max(0.0, (done + 1) / (warmup + 1))
