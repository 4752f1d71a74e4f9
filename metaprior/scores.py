"""Measures of a forecast against what happened."""

import torch
from torch import Tensor

from metaprior.forecasts import CategoricalForecast, GaussianForecast, check_shape


def root_mean_squared_error(prediction: Tensor, targets: Tensor) -> float:
    """Square root of the mean over all targets of the squared error."""
    check_shape(targets, prediction.shape)
    return float((prediction - targets).double().square().mean().sqrt())


def r_squared(prediction: Tensor, targets: Tensor) -> float:
    """1 - (squared error) / (squared deviation from each output's mean), both summed over all targets."""
    check_shape(targets, prediction.shape)
    prediction, targets = prediction.double(), targets.double()
    deviation = (targets - targets.mean(0)).square().sum()
    if deviation == 0:
        raise ValueError("R^2 is not defined for constant targets: they have no variance to explain")
    return float(1 - (targets - prediction).square().sum() / deviation)


def coverage(forecast: GaussianForecast, targets: Tensor, level: float) -> float:
    """Share of targets inside the central interval that should hold ``level`` of them."""
    check_shape(targets, forecast.mean.shape)
    low, high = forecast.interval(level)
    return float(((targets >= low) & (targets <= high)).double().mean())


def error_rate(forecast: CategoricalForecast, labels: Tensor) -> float:
    """Share of observations whose most probable class is wrong."""
    check_shape(labels, forecast.labels.shape)
    return float((forecast.labels != labels).double().mean())


def expected_calibration_error(forecast: CategoricalForecast, labels: Tensor, bins: int = 15) -> float:
    """Mean gap between confidence and accuracy over equal-width bins of confidence (Guo et al. 2017)."""
    # Here, because importing it takes as long as importing torch, and 100 MiB.
    from torchmetrics.functional.classification import multiclass_calibration_error

    probabilities = forecast.probabilities
    error: Tensor = multiclass_calibration_error(
        probabilities, labels, num_classes=probabilities.shape[1], n_bins=bins, norm="l1"
    )
    return float(error)


def standard_error(values: Tensor) -> float:
    """Standard error of the mean of a vector; of a single value it is not known (NaN)."""
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else torch.nan
