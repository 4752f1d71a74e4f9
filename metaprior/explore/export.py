"""A learner as numbers for the page: weights in float32, units, calibration, and the seeds of its random numbers."""

import base64
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from metaprior.adaptation.closed_form import parameters
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.context.conditioning import ENCODER
from metaprior.adaptation.context.settings import Context
from metaprior.likelihoods import NOISE_RHO, Gaussian, HeteroscedasticGaussian
from metaprior.metagrad.problem import Descent
from metaprior.methods import MetaLearner
from metaprior.noise import Noise
from metaprior.posterior import DEFAULT_SAMPLES

MOST_STEPS = 20
"""Steps of descent that the page can take."""
DRAW_SEED = 1
"""Seed of the functions that the page draws from a closed form, which Python's forecast does not need."""
READING = "context.weight"
"""The matrix with which hidden layers read a context: the scales of the first layer, its shifts, those of the next."""

Numbers = dict[str, Any]


def exported(learner: MetaLearner) -> Numbers:
    """Return what the page needs to adapt a learner of one of ``problems.WAYS``, for JSON."""
    calibration = learner.calibration_
    if calibration is None:
        raise ValueError("the learner must be calibrated, got one that is not. Try learner.calibrate(tasks).")
    scale = learner.target_scale_
    common = {
        "loc": float(scale.loc),
        "scale": float(scale.scale),
        "calibration": {"examples": list(calibration.examples), "factors": list(calibration.factors)},
        "activation": learner.module.config["activation"],  # type: ignore[index]
    }
    how = learner.adaptation_
    if isinstance(how, ClosedForm):
        return common | _closed_form(learner)
    if isinstance(how, Descent):
        return common | _descent(learner, how)
    if isinstance(how, Context):
        return common | _context(learner)
    raise TypeError(f"the adaptation must be ClosedForm, Descent or Context, got {type(how).__name__}")


def _closed_form(learner: MetaLearner) -> Numbers:
    plain = learner.theta_.plain
    return {
        "way": "closed_form",
        "trunk": _layers(plain, "layers."),
        "mean": _tensor(plain[parameters.MEAN][:, 0]),
        "factor": _tensor(plain[parameters.FACTOR][:, 0]),
        "log_scale": _tensor(plain[parameters.LOG_SCALE][:, 0]),
        "logits": _tensor(plain[parameters.LOGITS]),
        "noise": _tensor(plain[NOISE_RHO]),
        "draw_seed": DRAW_SEED,
    }


def _descent(learner: MetaLearner, how: Descent) -> Numbers:
    """Return the prior over weights; the seeds are those of ``adapt`` and of ``predict`` with ``seed=0``."""
    theta, layout = learner.theta_, learner.network.layout
    likelihood = learner.task_model().likelihood  # in the network's units
    assert theta.log_lr is not None
    assert isinstance(likelihood, Gaussian)
    steps, samples = Noise(0).fork("adapt"), Noise(0).fork("predict")
    return {
        "way": "descent",
        "shapes": [list(shape) for shape in layout.shapes],
        "mu": _tensor(theta.mu),
        "rho": _tensor(theta.rho),
        "noise": likelihood.noise,
        "log_lr": _tensor(theta.log_lr),
        "kl_weight": how.kl_weight,
        "steps": how.steps,
        "adapt_seeds": [steps.at(step=step).generator().initial_seed() for step in range(MOST_STEPS)],
        "predict_seeds": [samples.at(sample=number).generator().initial_seed() for number in range(DEFAULT_SAMPLES)],
    }


def _context(learner: MetaLearner) -> Numbers:
    plain, likelihood = learner.theta_.plain, learner.task_model().likelihood
    assert isinstance(likelihood, HeteroscedasticGaussian)
    return {
        "way": "context",
        "embed": _layers(plain, f"{ENCODER}embed.layers."),
        "summary": _layers(plain, f"{ENCODER}summary."),
        "layers": _layers(plain, "layers."),
        "reading": _tensor(plain[READING]),
        "min_scale": likelihood.min_scale,
    }


def _layers(plain: Mapping[str, Tensor], prefix: str) -> list[Numbers]:
    """Return the linear layers of a ``Sequential``, in its order."""
    names = [name for name in plain if name.startswith(prefix) and name.endswith(".weight")]
    ordered = sorted(names, key=lambda name: int(name.removeprefix(prefix).split(".")[0]))
    return [
        {part: _tensor(plain[name.removesuffix("weight") + part]) for part in ("weight", "bias")} for name in ordered
    ]


def _tensor(values: Tensor) -> Numbers:
    """Return shape and numbers, as little-endian float32 in base 64."""
    raw = values.detach().cpu().numpy().astype("<f4").tobytes()
    return {"shape": list(values.shape), "data": base64.b64encode(raw).decode("ascii")}
