"""Predictions as ArviZ's InferenceData."""

import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import metaprior as mp
from metaprior.arviz import to_inference_data
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, GaussianForecast

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own notice of version 1, and what it imports
    az = pytest.importorskip("arviz")

S, N = 30, 12


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(autouse=True)
def others_warnings() -> Iterator[None]:
    """Let ArviZ warn of its own dependencies, and of the few samples here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def gaussian() -> GaussianForecast:
    return GaussianForecast(normal(S, N), torch.full((1, 1), 0.5).double())


def test_groups_of_a_forecast_with_targets() -> None:
    forecast, y = gaussian(), normal(N, seed=1)
    data = to_inference_data(forecast, y=y)
    assert {"posterior", "posterior_predictive", "log_likelihood", "observed_data"} == {*data.groups()}
    assert dict(data.log_likelihood.sizes) == {"chain": 1, "draw": S, "observation": N}
    np.testing.assert_array_equal(data.posterior["mean"][0], forecast.means)
    np.testing.assert_array_equal(data.observed_data["y"], y)
    expected = torch.distributions.Normal(forecast.means, forecast.scales).log_prob(y)
    np.testing.assert_allclose(data.log_likelihood["y"][0], expected)
    away = torch.from_numpy(data.posterior_predictive["y"].values[0]) - forecast.means
    assert float(away.std()) == pytest.approx(0.5, rel=0.1)


def test_loo_and_summary_run_on_it() -> None:
    data = to_inference_data(gaussian(), y=normal(N, seed=1))
    loo = az.loo(data)
    assert loo.n_samples == S
    assert loo.n_data_points == N
    summary = az.summary(data, var_names="mean", kind="stats")
    np.testing.assert_allclose(summary["mean"], gaussian().mean, atol=1e-3)


def test_predictions_of_a_posterior_without_targets() -> None:
    x = np.linspace(-1, 1, 8, dtype=np.float32)[:, None]
    bnn = mp.BayesByBackprop(mp.MLP(1, [4], 1), mp.Gaussian()).fit(x, 100 + np.sin(x), epochs=1, progress=False)
    data = to_inference_data(bnn.posterior_, x, samples=7, seed=2)
    assert {"posterior", "predictions"} == {*data.groups()}
    expected = bnn.predict(torch.from_numpy(x), samples=7, seed=2).samples
    np.testing.assert_array_equal(data.posterior["mean"][0], expected)
    same = to_inference_data(bnn.predict(x, samples=7, seed=2), seed=2)
    np.testing.assert_array_equal(same.predictions["y"], data.predictions["y"])


def test_labels_are_drawn_with_their_probabilities() -> None:
    logits = normal(1, N, 3).expand(4000, N, 3)
    data = to_inference_data(CategoricalForecast(logits), y=np.arange(N) % 3)
    share = np.stack([(data.posterior_predictive["y"].values[0] == label).mean(0) for label in range(3)], 1)
    np.testing.assert_allclose(share, logits[0].softmax(-1), atol=0.04)
    np.testing.assert_allclose(data.log_likelihood["y"][0, 0], logits[0].log_softmax(-1)[range(N), np.arange(N) % 3])
    yes = to_inference_data(BernoulliForecast(logits[..., 0]))
    np.testing.assert_allclose(yes.predictions["y"].values[0].mean(0), logits[0, :, 0].sigmoid(), atol=0.04)


def test_missing_targets_are_left_out_of_the_likelihood() -> None:
    y = normal(N, seed=1)
    y[3] = torch.nan
    assert float(abs(to_inference_data(gaussian(), y=y).log_likelihood["y"][0, :, 3]).max()) == 0


def test_errors_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    weighted = GaussianForecast(normal(3, N), torch.ones(3, N), weights=torch.ones(3))
    with pytest.raises(ValueError, match="equally probable weight samples, got weights"):
        to_inference_data(weighted)
    with pytest.raises(ValueError, match="x must be None for a forecast"):
        to_inference_data(gaussian(), np.zeros(3))
    modules: dict[str, Any] = {"arviz": None}
    monkeypatch.setitem(sys.modules, "arviz", modules["arviz"])
    with pytest.raises(ImportError, match=r"needs ArviZ. Try: pip install 'metaprior\[arviz\]'"):
        to_inference_data(gaussian())
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(__version__="1.0.0"))  # type: ignore[arg-type]
    with pytest.raises(ImportError, match=r"has InferenceData, got 1.0.0. Try: pip install 'arviz<1'"):
        to_inference_data(gaussian())


def test_a_method_in_place_of_its_posterior_is_refused() -> None:
    x = normal(N, 1)
    bnn = mp.BayesByBackprop(torch.nn.Linear(1, 1).double(), mp.Gaussian()).fit(x, x[:, 0], steps=1, progress=False)
    with pytest.raises(
        TypeError, match=r"must be a forecast or a posterior, got a BayesByBackprop. Try .*bnn.posterior_"
    ):
        to_inference_data(bnn, x, x[:, 0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got a Tensor. Try model.predict\(x\)"):
        to_inference_data(x)  # type: ignore[arg-type]
