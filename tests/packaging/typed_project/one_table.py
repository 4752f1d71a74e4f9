"""One data set: fit, forecast, score, save and load."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from own_likelihood import HalvedGaussian
from torch import Tensor, nn

import metaprior as mp
from metaprior.evaluation import Evaluation


def fitted() -> mp.BayesByBackprop:
    x = torch.rand(100, 1)
    bnn = mp.BayesByBackprop(nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1)), mp.Gaussian(noise=0.1))
    return bnn.fit(x, torch.sin(3 * x), epochs=5, batch_size=20, progress=False)


def use(bnn: mp.BayesByBackprop, folder: Path) -> float:
    x = np.linspace(0, 1, 50)[:, None]
    arrays = bnn.predict(x)
    for array in (arrays.mean, arrays.std, arrays.epistemic, arrays.aleatoric):
        assert_type(array, npt.NDArray[Any])
    assert_type(arrays.quantile([0.1, 0.9]), npt.NDArray[Any])
    assert_type(arrays.log_prob(np.sin(3 * x)), npt.NDArray[Any])
    assert_type(bnn.predict(pl.DataFrame({"x": x[:, 0]})).mean, npt.NDArray[Any])
    forecast = bnn.predict(torch.as_tensor(x))
    for tensor in (forecast.mean, forecast.std, forecast.epistemic, forecast.aleatoric, *forecast.interval(0.9)):
        assert_type(tensor, Tensor)
    assert_type(forecast.quantile(0.9), Tensor)
    assert_type(forecast.log_prob(np.sin(3 * x)), Tensor)
    low, high = arrays.interval(0.9)
    scores = bnn.evaluate(x, np.sin(3 * x))
    assert_type(scores, Evaluation)
    bnn.save(folder)
    loaded = mp.BayesByBackprop.load(folder, mp.MLP(1, [20], 1))
    assert_type(loaded, mp.BayesByBackprop)
    history: list[float] = [record.loss for record in loaded.history_]
    return history[-1] + float((high - low).mean())


own = mp.BayesByBackprop(mp.MLP(1, [20], 2), HalvedGaussian(), prior=mp.NormalPrior(1.0))
