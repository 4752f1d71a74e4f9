from pathlib import Path

import torch
from matplotlib.image import imread

from metaprior.forecasts import GaussianForecast
from metaprior.report.band import predictive_band


def test_draws_a_picture_that_is_not_blank(tmp_path: Path) -> None:
    grid = torch.linspace(0, 1, 20)
    forecast = GaussianForecast(torch.randn(5, 20), torch.ones(5, 20))
    path = tmp_path / "new" / "band.png"
    predictive_band(path, data=(grid, grid), grid=grid, truth=grid, forecast=forecast, title="a title")
    picture = imread(path)
    assert picture.shape[0] > 400
    assert picture.std() > 0.05
