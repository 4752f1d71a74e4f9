"""The meta-learner: objectives, inner loops, parts of the network that adapt, phases, schedules, likelihoods, use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import metaprior as mp
from tests.golden.adapters import evaluation_entries, forecast_entries, mlp, posterior_entries, summary_entries
from tests.golden.adapters import theta_entries as theta_of
from tests.golden.data import Pool, Waves
from tests.golden.digest import Entries
from tests.golden.registry import case

TRAINING: dict[str, Any] = {
    "epochs": 2,
    "tasks_per_epoch": 6,
    "meta_batch": 2,
    "grad_clip_norm": 1.0,
    "progress": False,
}
INNER: dict[str, Any] = {"steps": 3, "lr": 0.05, "learn_lr": "per_tensor"}
NEW = 500
"""Number of a task that no training has seen."""


@dataclass(frozen=True)
class Setting:
    """A meta-training: what differs from ``TRAINING``, ``INNER`` and the learner's defaults."""

    learner: dict[str, Any] = field(default_factory=dict)
    inner: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    tasks: Callable[[], Waves] = Waves
    likelihood: Callable[[], mp.Likelihood] = mp.Gaussian
    outputs: int = 1


def made(setting: Setting) -> mp.MetaLearner:
    """Return the learner before its training."""
    inner = mp.Descent(**{**INNER, **setting.inner})
    return mp.MetaLearner(
        mlp(outputs=setting.outputs), setting.likelihood(), adaptation=inner, **setting.learner, standardize=False
    )


def fitted(setting: Setting) -> mp.MetaLearner:
    """Return the learner after its training."""
    return made(setting).fit(setting.tasks(), **{**TRAINING, "search_step_size": False, **setting.training})


def entries(learner: mp.MetaLearner, task: mp.Task) -> Entries:
    """Return theta, history, and forecasts of the prior and of the adapted posterior."""
    posterior = learner.adapt(task.support, seed=2)
    before = learner.prior_predictive().predict(task.query.x, samples=5, seed=3)
    after = posterior.predict(task.query.x, samples=5, seed=3)
    return {
        **theta_of(learner.theta_),
        **summary_entries(learner.history_),
        **posterior_entries(posterior, "adapted"),
        **forecast_entries(before, task.query.y, "prior forecast"),
        **forecast_entries(after, task.query.y, "adapted forecast"),
    }


HEAD = {"stochastic": r"layers\.2.*"}
POINT = {"relative_sigma": 0.0}
SETTINGS = {
    "objective query": Setting(),
    "objective query, outer samples": Setting({"outer_samples": 3}),
    "objective predictive": Setting({"objective": "predictive", "outer_samples": 3}),
    "objective abml": Setting({"objective": "abml"}, tasks=Pool),
    "objective abml, other hyperprior": Setting(
        {"objective": "abml", "hyperprior": mp.NormalGammaHyperprior(1.0, 2.0), "outer_samples": 2}
    ),
    "objective abml, no hyperprior, KL warm-up": Setting(
        {"objective": "abml", "hyperprior": None}, training={"kl_warmup": 0.8}
    ),
    "step sizes one": Setting(inner={"learn_lr": "one"}),
    "step sizes no": Setting(inner={"learn_lr": "no"}),
    "momentum": Setting(inner={"momentum": 0.7}),
    "momentum, one step size, undamped": Setting(inner={"momentum": 0.5, "learn_lr": "one", "damped": False}),
    "undamped": Setting(inner={"damped": False}),
    "inner samples": Setting(inner={"samples": 3}),
    "no inner steps": Setting(inner={"steps": 0, "learn_lr": "no"}),
    "KL weight": Setting(inner={"kl_weight": 0.1}, learner={"relative_sigma": 0.3, "seed": 5}),
    "random head, plain trunk fixed": Setting(HEAD, {"adapt": "likelihood.*"}, {"scales_first": 0.5}),
    "random head, nothing plain adapts": Setting(HEAD, {"adapt": None}, {"scales_first": 0.5}),
    "random head, plain trunk adapts": Setting(HEAD, {"adapt": ".*"}),
    "random head, plain bias adapts": Setting(HEAD, {"adapt": r"layers\.0\.bias"}),
    "random weights, plain biases": Setting({"stochastic": ".*weight"}),
    "point prior (MAML)": Setting(POINT, {"kl_weight": 0.0}),
    "point prior, one step size": Setting(POINT, {"kl_weight": 0.0, "learn_lr": "one", "momentum": 0.5}, tasks=Pool),
    "warm start": Setting(training={"warm_start": 4}),
    "warm start, average": Setting(training={"warm_start": 6, "warm_start_average": 0.5, "warm_start_lr": 1e-2}),
    "warm start, balanced search": Setting(
        HEAD,
        training={"warm_start": 3, "search_step_size": True, "balance_step_sizes": True},
    ),
    "step size search": Setting(training={"search_step_size": True}),
    "step size search, one step size": Setting(inner={"learn_lr": "one"}, training={"search_step_size": True}),
    "step size search, pretrained": Setting(training={"search_step_size": True, "pretrained": True}),
    "schedule plateau": Setting(
        training={"schedule": "plateau", "plateau_patience": 1, "epochs": 5, "tasks_per_epoch": 2, "lr": 0.1}
    ),
    "schedule constant, weight decay, clipped": Setting(
        training={"schedule": "constant", "weight_decay": 0.1, "grad_clip_norm": 0.01, "scale_lr": 0.05}
    ),
    "only scales, not a whole meta-batch": Setting(training={"scales_first": 1.0, "tasks_per_epoch": 5}),
    "tasks of unlike sizes": Setting(tasks=lambda: Waves(sizes=(3, 5))),
    "bad tasks": Setting(tasks=lambda: Pool(bad=frozenset({1, 4}))),
    "scalar targets": Setting(tasks=lambda: Waves("scalar")),
    "noise fixed": Setting(likelihood=lambda: mp.Gaussian(noise=0.2)),
    "noise per channel": Setting(likelihood=lambda: mp.Gaussian(per_channel=True)),
    "heteroscedastic": Setting(likelihood=mp.HeteroscedasticGaussian, outputs=2),
    "crps": Setting(likelihood=mp.CRPSGaussian, outputs=2),
    "categorical": Setting(likelihood=mp.Categorical, outputs=3, tasks=lambda: Waves("classes")),
    "bernoulli": Setting(likelihood=mp.Bernoulli, tasks=lambda: Waves("binary")),
}


def register(name: str, setting: Setting) -> None:
    """Make a case of a setting."""

    @case(f"meta/{name}")
    def run(folder: Path) -> Entries:
        return entries(fitted(setting), Waves(setting.tasks().kind)[NEW])


for name, setting in SETTINGS.items():
    register(name, setting)


@case("meta/pooled source of the warm start")
def pooled(folder: Path) -> Entries:
    learner = made(Setting()).fit(Waves(), pooled=Pool(sizes=(6,)), **TRAINING, search_step_size=False, warm_start=3)
    return entries(learner, Waves()[NEW])


@case("meta/evaluate by shots and steps")
def evaluated(folder: Path) -> Entries:
    tasks = [Waves()[NEW + number] for number in range(3)]
    found = fitted(Setting()).evaluate(tasks, shots=(0, 1, None), steps=(1, 4), samples=5, progress=False)
    return evaluation_entries(found)


@case("meta/evaluate classes")
def evaluated_classes(folder: Path) -> Entries:
    setting = SETTINGS["categorical"]
    tasks = [Waves("classes", sizes=(6,))[NEW + number] for number in range(3)]
    options: dict[str, Any] = {"shots": (0, 1, 2), "samples": 5, "examples_per_shot": 3, "progress": False}
    return evaluation_entries(fitted(setting).evaluate(tasks, **options))


@case("meta/saved and loaded")
def saved(folder: Path) -> Entries:
    fitted(SETTINGS["random head, plain trunk fixed"]).save(folder / "prior")
    learner = mp.MetaLearner.load(folder / "prior")
    learner.history_ = []  # 0.1.0 did not save it
    return entries(learner, Waves()[NEW])


@case("meta/adapt with other steps")
def other_steps(folder: Path) -> Entries:
    learner, task = fitted(Setting()), Waves(sizes=(8,))[NEW]
    found: Entries = {}
    for steps in (0, 1, 9):
        found |= posterior_entries(learner.adapt(task.support, steps, seed=7), f"{steps} steps")
    return found
