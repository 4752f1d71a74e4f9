"""What can be chosen about a meta-training, in one place."""

import math
from dataclasses import dataclass, fields
from typing import Literal

from metaprior.metagrad.problem import refuse_fraction


@dataclass(frozen=True)
class MetaTraining:
    """How theta is learned. The defaults are meant to work without tuning.

    Args:
        epochs: of meta-training, after the warm start.
        tasks_per_epoch: tasks drawn in an epoch.
        meta_batch: tasks whose gradients are averaged in a step.
        lr: AdamW's learning rate of the means and of the plain network parameters.
        scale_lr: of everything that is a scale: sigma, step sizes, noise.
        weight_decay: of the means and plain network parameters; scales are never decayed.
        grad_clip_norm: largest norm of the gradient, of the means and of the scales each.
        schedule: how the learning rates fall: "cosine" (to zero at the end), "plateau" (halved when the validation
            score has not improved for ``plateau_patience`` validations; ``fit``, which validates nothing, takes an
            epoch's mean loss), "constant".
        plateau_patience: see ``schedule``.
        warm_start: steps of plain training on pooled tasks before any meta-step: sigma plays no part, and the support
            and query sets of ``meta_batch`` tasks are one batch.
        warm_start_lr: the learning rate of these steps, falling to zero along a cosine, unless
        warm_start_average: is above 0: then it does not fall, and the warm start ends with the average over about this
            share of its steps, the last ones (0.03 in the configurations that come with the package).
        scales_first: share of the meta-steps in which only scales move (step sizes, sigma, noise), before the means.
        kl_warmup: share of the meta-steps over which the KL's weight rises from zero to what it is.
        search_step_size: where step sizes are learned, find a common first one by trying ``inner.lr`` and others.
        balance_step_sizes: in this search, let every tensor's step size be the common one divided by the size of its
            gradients on some tasks (and their mean size be the common one). Worth it where layers are unlike and the
            means are trained already; needs ``inner.learn_lr="per_tensor"``.
        pretrained: the means are trained already (the module was given with its weights), as after a warm start.
        most_bad_tasks: stop after this many tasks in a row without a finite gradient.
    """

    epochs: int = 10
    tasks_per_epoch: int = 100
    meta_batch: int = 4
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
        for name, least in _COUNTS.items():
            refuse_fraction(name, getattr(self, name), least)
        for name in ("lr", "scale_lr", "grad_clip_norm", "warm_start_lr"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} has to be a positive number, got {value}")
        for name in ("scales_first", "kl_warmup"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share of the meta-steps, between 0 and 1; got {getattr(self, name)}")
        if not 0 <= self.warm_start_average <= 1:
            found = self.warm_start_average
            raise ValueError(f"warm_start_average is a share of the warm start's steps, between 0 and 1; got {found}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"weight_decay has to be at least 0, got {self.weight_decay}")
        if self.balance_step_sizes and not self.search_step_size:
            raise ValueError("balance_step_sizes belongs to the search for step sizes, and search_step_size is off")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule is one of {', '.join(SCHEDULES)}; got {self.schedule!r}")

    @property
    def starts_warm(self) -> bool:
        """Whether meta-training starts from means that know something."""
        return self.pretrained or self.warm_start > 0

    @property
    def steps_per_epoch(self) -> int:
        """Meta-steps in an epoch."""
        return math.ceil(self.tasks_per_epoch / self.meta_batch)

    @property
    def meta_steps(self) -> int:
        """Meta-steps in all."""
        return self.epochs * self.steps_per_epoch

    @property
    def steps(self) -> int:
        """Steps in all, the warm start included."""
        return self.warm_start + self.meta_steps


SCHEDULES = ("cosine", "plateau", "constant")
_COUNTS = {
    "epochs": 0,
    "tasks_per_epoch": 1,
    "meta_batch": 1,
    "plateau_patience": 1,
    "warm_start": 0,
    "most_bad_tasks": 1,
}
FIELDS = tuple(field.name for field in fields(MetaTraining))
