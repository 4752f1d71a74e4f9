"""NumPy in, NumPy out: every public name of every forecast."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior.checks import as_plain_tensor
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast
from metaprior.forecasts.numpy_forecast import NumpyForecast

S, N = 5, 4
SCALES = torch.full((S, N), 0.5).double()
FORECASTS = {
    "gaussian": GaussianForecast(torch.randn(S, N).double(), SCALES),
    "weighted": GaussianForecast(torch.randn(S, N).double(), SCALES, weights=torch.ones(S), task_scales=SCALES / 2),
    "bernoulli": BernoulliForecast(torch.randn(S, N).double()),
    "categorical": CategoricalForecast(torch.randn(S, N, 3).double()),
}
TARGETS = np.array([0, 1, 1, 0])
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "quantile": (np.array([0.1, 0.9]),),
    "interval": (0.9,),
    "cdf": (TARGETS.astype(float),),
    "log_prob": (TARGETS,),
    "present": (TARGETS,),
    "rescaled": (np.array(1.0), np.array(2.0)),
    "widened": (2.0,),
    "squeezed": (),
    "components": (),
}
"""What every public method is called with; a new one has to be added."""


def tensors_in(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(tensors_in, value))
    return isinstance(value, Tensor | Forecast) or (isinstance(value, dict) and any(map(tensors_in, value.values())))


@pytest.mark.parametrize("name", FORECASTS)
def test_every_public_name_gives_arrays(name: str) -> None:
    forecast = FORECASTS[name]
    wrapped = NumpyForecast(forecast)
    for public in (one for one in dir(forecast) if not one.startswith("_")):
        value = getattr(wrapped, public)
        if callable(value):
            arguments = ([wrapped, forecast],) if public == "mixture" else ARGUMENTS[public]
            try:
                value = value(*arguments)
            except TypeError as error:
                assert public in ("interval", "rescaled"), error  # noqa: PT017  (of labels only)
                continue
        assert not tensors_in(value), public
        if isinstance(getattr(type(forecast), public, None), property) and isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(forecast, public).numpy())


@pytest.mark.parametrize("name", FORECASTS)
def test_targets_come_in_any_form(name: str) -> None:
    forecast = FORECASTS[name]
    expected = forecast.log_prob(torch.from_numpy(TARGETS)).numpy()
    forms = (TARGETS, TARGETS.tolist(), torch.from_numpy(TARGETS), pd.Series(TARGETS), pl.Series(TARGETS))
    for targets in forms:
        found = NumpyForecast(forecast).log_prob(targets)
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, expected)


def test_forecasts_of_forecasts_stay_in_arrays() -> None:
    forecast = FORECASTS["gaussian"]
    wrapped = NumpyForecast(forecast)
    wide = wrapped.widened(np.full(N, 2.0)).rescaled(np.array(1.0), np.array(3.0))
    assert isinstance(wide, NumpyForecast)
    np.testing.assert_allclose(wide.mean, 1 + 3 * forecast.mean.numpy())
    np.testing.assert_allclose(wide.std, 6 * forecast.std.numpy())
    assert isinstance(wrapped.mixture([wrapped, wide]), NumpyForecast)
    low, high = wrapped.interval(0.8)
    np.testing.assert_allclose(wrapped.quantile((0.1, 0.9)), [low, high])
    assert wrapped.quantile(0.5).shape == wrapped.quantile(np.float64(0.5)).shape == (N,)


class OnlyDLPack:
    """An array of another library."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


def test_arrays_of_other_libraries_come_in_by_dlpack_and_are_copied() -> None:
    values = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    tensor = as_plain_tensor(OnlyDLPack(values), "x")
    assert torch.equal(tensor, torch.from_numpy(values))
    values[0, 0] = 99
    assert float(tensor[0, 0]) == 0


def test_predictions_go_to_and_fro_by_dlpack() -> None:
    x = np.linspace(-1, 1, 8, dtype=np.float32)[:, None]
    bnn = mp.BayesByBackprop(mp.MLP(1, [4], 1), mp.Gaussian()).fit(x, np.sin(x), epochs=1, progress=False)
    expected = bnn.predict(torch.from_dlpack(x))
    for given in (OnlyDLPack(x), np.from_dlpack(torch.from_numpy(x))):
        found = bnn.predict(given)
        assert isinstance(found, NumpyForecast)
        assert torch.equal(torch.from_dlpack(found.mean), expected.mean)
    np.testing.assert_array_equal(np.from_dlpack(expected.mean), expected.mean.numpy())
