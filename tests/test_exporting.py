"""A forecast's mean and standard deviation as a program of torch's own operations."""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.forecasts import Forecast
from metaprior.posterior import Posterior


def fitted(net: nn.Module, likelihood: mp.Likelihood, y: Tensor) -> Posterior:
    bnn = mp.BayesByBackprop(net, likelihood)
    return bnn.fit(inputs(), y, epochs=2, progress=False).posterior_


def inputs() -> Tensor:
    return torch.randn(20, 3, generator=torch.Generator().manual_seed(0))


def values() -> Tensor:
    return 100 + 5 * inputs()[:, 0]


class Small(nn.Module):
    """With a buffer, a frozen and a plain parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.fixed = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 4)
        self.fixed.requires_grad_(False)
        self.register_buffer("offset", torch.ones(3))
        self.stochastic = "head.*"

    def forward(self, x: Tensor) -> Tensor:
        offset = self.get_buffer("offset")
        return self.head(self.fixed(torch.tanh(self.first(x + offset))))  # type: ignore[no-any-return]


CASES = {
    "scalar targets": lambda: fitted(mp.MLP(3, [4], 1), mp.Gaussian(), values()),
    "two channels": lambda: fitted(mp.MLP(3, [4], 2), mp.Gaussian(), torch.stack([values(), -values()], 1)),
    "own noise": lambda: fitted(mp.MLP(3, [4], 2), mp.HeteroscedasticGaussian(), values()),
    "a mixture": lambda: fitted(mp.MLP(3, [4], 6), mp.GaussianMixture(2), values()),
    "classes": lambda: fitted(mp.MLP(3, [4], 3), mp.Categorical(), torch.arange(20) % 3),
    "a part random": lambda: fitted(Small(), mp.Gaussian(), values()),
    "wider": lambda: fitted(mp.MLP(3, [4], 1), mp.Gaussian(), values()).widened(1.5),
    "compressed": lambda: fitted(mp.MLP(3, [4], 1), mp.Gaussian(), values()).compress(4, inputs(), candidates=20),
}


@pytest.mark.parametrize("name", CASES)
def test_a_program_from_a_file_gives_the_numbers_of_predict_for_any_number_of_observations(
    name: str, tmp_path: Path
) -> None:
    posterior, path = CASES[name](), tmp_path / "forecast.pt2"
    program = posterior.export(path, inputs(), samples=6, seed=3)
    for run in (program.module(), torch.export.load(path).module()):
        for count in (1, 7, 20):
            mean, std = run(inputs()[:count])
            expected: Forecast = posterior.predict(inputs()[:count], samples=6, seed=3)
            torch.testing.assert_close(mean, expected.mean, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(std, expected.std, rtol=1e-5, atol=1e-5)


def test_the_uncertain_prior_of_a_hierarchy_is_exported_and_compressed() -> None:
    tasks = {name: mp.Examples(inputs() + shift, values()) for name, shift in (("a", 0.0), ("b", 0.5), ("c", 1.0))}
    hierarchy = mp.HierarchicalVI(mp.MLP(3, [4], 1), mp.Gaussian()).fit(tasks, epochs=1, progress=False)
    posterior = hierarchy.posterior("b")
    for one in (posterior, posterior.compress(3, inputs(), candidates=10)):
        mean, std = one.export(None, inputs(), samples=5).module()(inputs())
        expected = one.predict(inputs(), samples=5)
        torch.testing.assert_close(mean, expected.mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(std, expected.std, rtol=1e-5, atol=1e-5)


def test_exporting_changes_nothing_and_writes_no_data_of_the_caller(tmp_path: Path) -> None:
    posterior = CASES["scalar targets"]()
    before = posterior.predict(inputs(), samples=6)
    posterior.export(None, inputs().numpy())
    assert not [*tmp_path.iterdir()]
    assert posterior.network._vectorizes
    assert torch.equal(posterior.predict(inputs(), samples=6).mean, before.mean)
    marked = np.full((5, 3), 12345.678, dtype=np.float32)
    posterior.export(tmp_path / "forecast.pt2", marked, samples=2)
    with zipfile.ZipFile(tmp_path / "forecast.pt2") as archive:
        held = b"".join(archive.read(name) for name in archive.namelist())
    assert marked[0, :1].tobytes() not in held
    assert b"metaprior.posterior" not in held  # no class of this package is pickled


def test_the_file_runs_without_this_package(tmp_path: Path) -> None:
    posterior, path = CASES["own noise"](), tmp_path / "forecast.pt2"
    posterior.export(path, inputs(), samples=3)
    code = (
        "import sys, torch; sys.modules['metaprior'] = None\n"
        f"mean, std = torch.export.load({str(path)!r}).module()(torch.zeros(4, 3)); print(float(mean[0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    expected = posterior.predict(torch.zeros(4, 3), samples=3)
    assert float(done.stdout) == pytest.approx(float(expected.mean[0]), rel=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [inputs().double(), inputs().long(), inputs()[:, :2], torch.zeros(5, 4)],
    ids=["float64", "integers", "a column too few", "a column too many"],
)
def test_wrong_inputs_are_refused_and_leave_torch_as_it_is(wrong: Tensor) -> None:
    run = CASES["scalar targets"]().export(None, inputs(), samples=2).module()
    with pytest.raises((RuntimeError, AssertionError), match=r"dtype|size"):
        run(wrong)
    assert nn.Linear(2, 2).weight.shape == (2, 2)
    assert run(inputs())[0].shape == (20,)


def test_a_program_has_nothing_of_vmap_in_it() -> None:
    program = CASES["own noise"]().export(None, inputs(), samples=2)
    assert "vmap" not in str(program.graph)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.layer(row if float(row.sum()) > 0 else -row) for row in x])


def test_what_torch_cannot_trace_is_an_error_that_says_so() -> None:
    posterior = fitted(Branching(), mp.Gaussian(), values())
    vectorizes = posterior.network._vectorizes
    with pytest.raises(ValueError, match=r"the network must be one that torch.export can trace .*got '.*Try"):
        posterior.export(None, inputs())
    assert posterior.network._vectorizes == vectorizes
    with pytest.raises(ValueError, match="samples must be an integer of at least 2, got 1"):
        posterior.export(None, inputs(), samples=1)
