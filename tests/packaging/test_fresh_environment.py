"""The wheel alone works, in a fresh environment and an empty folder."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

WORKS_WITHOUT = """
import pkgutil, sys, warnings

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

OPTIONAL = set(sys.argv[1:])
sys.meta_path.insert(0, Absent())
import metaprior

assert "site-packages" in metaprior.__file__, metaprior.__file__
for module in pkgutil.walk_packages(metaprior.__path__, "metaprior."):
    if module.name.endswith("__main__"):
        continue
    try:
        __import__(module.name)
    except ModuleNotFoundError as error:
        print(module.name, error.name, error, sep="; ")
"""
"""Imports every module, and prints those that fail because an optional package, an argument, is not there."""

LEARN = """
import torch
import metaprior as mp
from metaprior.tasks import Sinusoids

net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
waves = Sinusoids(k_shot=5, k_query=5)
learner = mp.MetaLearner(net, mp.Gaussian(), adaptation=mp.ClosedForm())
learner.fit(waves, shots=(0, 5), epochs=1, tasks_per_epoch=20, meta_batch=10, progress=False)
forecast = learner.adapt(waves[0].support).predict(waves[0].query.x)
learner.save("prior")
assert torch.equal(mp.load("prior", net).adapt(waves[0].support).predict(waves[0].query.x).mean, forecast.mean)
print(forecast)
"""

OPTIONAL = (
    *("arviz", "matplotlib", "netCDF4", "pandas", "polars", "pvlib", "pyarrow", "rasterio", "scipy", "sklearn"),
    *("tensorboard", "torchmetrics", "xarray", "zarr"),
)
"""Packages of the extras."""


class Outside:
    """Runs Python as a user would who has only the wheel."""

    def __init__(self, python: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self.python, self.folder, self.environment = python, folder, environment

    def run(self, *arguments: str) -> str:
        command = [str(self.python), "-W", "error", "-W", "ignore:`torch.jit.script`:DeprecationWarning", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=dict(self.environment), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def user(fresh_python: Path, tmp_path: Path, outside: dict[str, str]) -> Outside:
    return Outside(fresh_python, tmp_path, outside)


def test_every_module_imports(user: Outside) -> None:
    assert user.run("-c", WORKS_WITHOUT) == ""


def test_without_the_extras_modules_import_or_miss_a_package_of_an_extra(user: Outside) -> None:
    missing = [line.split("; ") for line in user.run("-c", WORKS_WITHOUT, *OPTIONAL).splitlines()]
    assert {package.split(".")[0] for _, package, _ in missing} <= set(OPTIONAL)
    rooms = {module.split(".")[1] for module, _, _ in missing}
    assert rooms <= {"arviz", "explore", "report", "runs", "sklearn", "solar"}  # everything else is the core


def test_the_commands_work(user: Outside) -> None:
    assert re.search(r"\btrain\b", user.run("-m", "metaprior", "--help"))
    user.run("-m", "metaprior", "init", "sinusoid")
    assert (user.folder / "sinusoid.toml").is_file()


def test_a_learner_learns_forecasts_saves_and_loads(user: Outside) -> None:
    assert "GaussianForecast(" in user.run("-c", LEARN)
