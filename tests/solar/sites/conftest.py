"""A prior of few steps, for tests of what surrounds it."""

from pathlib import Path

import pytest

from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.training import simulated_tasks, train_prior


@pytest.fixture(scope="session")
def forecaster() -> SiteForecaster:
    return SiteForecaster(train_prior(simulated_tasks(20, seed=5, days=45), steps=20, progress=False))


@pytest.fixture(scope="session")
def prior(forecaster: SiteForecaster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prior")
    forecaster.save(folder)
    return folder
