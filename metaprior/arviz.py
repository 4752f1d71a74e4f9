"""Predictions as ArviZ's ``InferenceData``, for its diagnostics, plots and model comparison (extra ``arviz``).

It is written for ArviZ 0.x, which has ``InferenceData``; ArviZ 1 has xarray's ``DataTree`` in its place. One chain; the
draws are the weight samples.
"""

import warnings
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from torch import Tensor

from metaprior import checks
from metaprior.checks import ArrayLike, InputsLike
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast
from metaprior.forecasts.numpy_forecast import NumpyForecast
from metaprior.posterior import DEFAULT_SAMPLES, Predictive

if TYPE_CHECKING:
    from arviz import InferenceData

Arrays = Mapping[str, npt.NDArray[Any]]


def to_inference_data(
    predicted: Forecast | NumpyForecast | Predictive,
    x: InputsLike | None = None,
    y: ArrayLike | None = None,
    *,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
) -> "InferenceData":
    """Return a forecast, or the predictions of a posterior for x, as ArviZ's ``InferenceData``.

    ``posterior`` holds the expected target ``mean`` of each weight sample (for labels: probabilities). With targets,
    ``posterior_predictive`` holds draws ``y`` of the targets (one for each weight sample), ``observed_data`` the
    targets and ``log_likelihood`` the log density of each observation under each weight sample. Without, the draws are
    in ``predictions``. The first axis of y is ``observation``.

    Args:
        predicted: a forecast whose components are equally probable weight samples, or what makes one for x.
        x: inputs for a posterior; None for a forecast.
        y: targets; NaN (missing) ones are left out of the log-likelihood.
        samples: weight samples for a posterior.
        seed: the same seed gives the same draws.

    Raises:
        ImportError: ArviZ is not installed, or has no ``InferenceData``.
        ValueError: x is missing or not needed, or components have weights.
    """
    arviz = _arviz()
    forecast = _forecast(predicted, x, samples, seed)
    if forecast.weights is not None:
        raise ValueError(
            "components must be equally probable weight samples, got weights: they are the whole distribution, and no "
            "draws of a chain. Try a method whose posterior is sampled, such as BayesByBackprop"
        )
    draws = {"y": _one_chain(_drawn(forecast, seed))}
    groups: dict[str, Arrays] = {"posterior": {"mean": _one_chain(forecast.samples)}}
    if y is None:
        groups["predictions"] = draws
    else:
        targets = checks.as_plain_tensor(y, "y")
        groups["posterior_predictive"] = draws
        groups["log_likelihood"] = {"y": _one_chain(_log_likelihood(forecast, targets))}
        groups["observed_data"] = {"y": targets.cpu().numpy()}
    dims = {"y": ["observation"], "mean": ["observation"]}
    found: InferenceData = arviz.from_dict(**groups, dims=dims, pred_dims=dims)
    return found


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=r"\s*ArviZ is undergoing a major refactor", category=FutureWarning
            )
            import arviz  # on use: it takes longer to import than this package
    except ImportError as error:
        raise ImportError("to_inference_data needs ArviZ. Try: pip install 'metaprior[arviz]'", name="arviz") from error
    if not hasattr(arviz, "InferenceData"):
        raise ImportError(
            f"to_inference_data needs an ArviZ that has InferenceData, got {arviz.__version__}. Try: pip install "
            "'arviz<1'",
            name="arviz",
        )
    return arviz


def _forecast(
    predicted: Forecast | NumpyForecast | Predictive, x: InputsLike | None, samples: int, seed: int
) -> Forecast:
    if isinstance(predicted, Predictive):
        if x is None:
            raise ValueError("x must be the inputs to predict for, got None. Try to_inference_data(posterior, x, y)")
        found = predicted.predict(x, samples=samples, seed=seed)
        return found.tensors if isinstance(found, NumpyForecast) else found
    if not isinstance(predicted, Forecast | NumpyForecast):
        kind = type(predicted).__name__
        remedy = "the method's posterior: bnn.posterior_" if hasattr(predicted, "fit") else "model.predict(x)"
        raise TypeError(f"predicted must be a forecast or a posterior, got a {kind}. Try {remedy}")
    if x is not None:
        raise ValueError("x must be None for a forecast, which has its inputs. Try to_inference_data(forecast, y=y)")
    return predicted.tensors if isinstance(predicted, NumpyForecast) else predicted


def _one_chain(values: Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = values.detach().cpu().numpy()
    return array[None]


def _drawn(forecast: Forecast, seed: int) -> Tensor:
    """Return one draw of the targets for each weight sample, (S, N, ...)."""
    generator = torch.Generator(forecast.samples.device).manual_seed(seed)
    if isinstance(forecast, GaussianForecast):
        noise = torch.empty_like(forecast.means).normal_(generator=generator)
        return forecast.means + forecast.scales * noise
    if isinstance(forecast, BernoulliForecast):
        return torch.bernoulli(forecast.samples, generator=generator)
    if isinstance(forecast, CategoricalForecast):
        gumbel = -torch.empty_like(forecast.logits).exponential_(generator=generator).log()
        return (forecast.logits + gumbel).argmax(2)
    raise TypeError(
        "draws of targets must be those of a Gaussian, Bernoulli or categorical forecast, got "
        f"{type(forecast).__name__}"
    )


def _log_likelihood(forecast: Forecast, targets: Tensor) -> Tensor:
    """Return the log density of each observation under each weight sample, (S, N)."""
    count = len(forecast.samples)
    tensors = {one.name: value for one in fields(forecast) if isinstance(value := getattr(forecast, one.name), Tensor)}
    rows = []
    for number in range(count):
        own = {name: value[number : number + 1] for name, value in tensors.items() if value.shape[:1] == (count,)}
        alone = replace(forecast, **own, weights=torch.ones(1))
        rows.append(alone.log_prob(targets))
    return torch.stack(rows)
