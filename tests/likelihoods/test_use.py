"""Every likelihood of the package is fitted, meta-learned, scored, calibrated, saved and loaded."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import PoissonRegressor
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import metaprior as mp
from metaprior.forecasts import CensoredForecast, GaussianForecast, MixtureForecast
from metaprior.likelihoods import LIKELIHOODS
from metaprior.likelihoods.counts import LOG_LEVEL
from metaprior.metagrad import Descent, mixed, unrolled
from metaprior.tasks.task import Examples, Task
from tests.likelihoods.cases import CASES, NUMBERS, Case
from tests.likelihoods.own import Wrong
from tests.metagrad.problems import Case as Gradient
from tests.metagrad.problems import assert_same, scattered, solved

ROWS = 30


def data_of(case: Case, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(seed))
    return x, case.targets(ROWS, seed=seed + 1)


def network(case: Case) -> mp.MLP:
    torch.manual_seed(0)
    targets = 3 if case.kind == "classes" else case.channels
    return mp.MLP(2, 8, case.likelihood, targets=targets)


@pytest.mark.parametrize("name", CASES)
def test_it_is_fitted_scored_and_saved(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    x, y = data_of(case)
    bnn = mp.BayesByBackprop(network(case), case.likelihood).fit(x, y, epochs=3, progress=False)
    assert {*case.likelihood.parameter_names} <= bnn.posterior_.weights.plain.keys()
    row = bnn.evaluate(x, y).row()
    assert all(math.isfinite(row[key]) for key in ("nll", *(() if case.likelihood.labels else ("crps", "coverage_90"))))
    forecast = bnn.predict(x)
    if not case.likelihood.labels:
        assert forecast.mean.shape == y.shape
        assert isinstance(forecast, GaussianForecast | MixtureForecast)
        low, high = forecast.interval(0.9)
        assert low.shape == y.shape
        inside = float(((y >= low - 1e-6) & (y <= high + 1e-6)).double().mean())
        assert row["coverage_90"] == pytest.approx(inside, abs=0.03)
    bnn.save(tmp_path)
    loaded = mp.load(tmp_path)
    assert loaded.likelihood == case.likelihood
    assert torch.equal(loaded.predict(x).mean, forecast.mean)
    assert torch.equal(loaded.predict(x).std, forecast.std)


@pytest.mark.parametrize("name", CASES)
def test_it_is_meta_learned_adapted_and_calibrated(name: str) -> None:
    case = CASES[name]
    sets = [data_of(case, seed) for seed in range(4)]
    tasks = [Task(Examples(x[:20], y[:20]), Examples(x[20:], y[20:]), f"task {n}") for n, (x, y) in enumerate(sets)]
    learner = mp.MetaLearner(network(case), case.likelihood, adaptation=Descent(steps=2, lr=1e-3))
    learner.fit(tasks, epochs=1, tasks_per_epoch=8, meta_batch=4, validation=tasks[:1], progress=False)
    assert learner.history_[-1].bad_tasks == 0
    row = learner.evaluate(tasks[:1], samples=5, progress=False).row()
    assert row["failed"] == 0
    assert math.isfinite(row["nll"])
    forecast = learner.adapt(tasks[0].support).predict(tasks[0].query.x)
    assert torch.isfinite(forecast.log_prob(tasks[0].query.y)).all()


@pytest.mark.parametrize("name", NUMBERS)
def test_targets_may_come_without_a_channel_axis_in_arrays(name: str) -> None:
    case = CASES[name]
    likelihood = type(case.likelihood)() if "fixed" in name and "censored" not in name else case.likelihood
    if name == "censored_fixed":
        likelihood = mp.CensoredGaussian(0.4, lower=-0.6, upper=0.9)
    x, y = (part.numpy() for part in data_of(case))
    net = mp.MLP(2, [8], likelihood)
    bnn = mp.BayesByBackprop(net, likelihood).fit(x, y[:, 0], epochs=2, progress=False)
    forecast = bnn.predict(x)
    assert forecast.mean.shape == (ROWS,)
    assert forecast.quantile([0.1, 0.9]).shape == (2, ROWS)
    assert forecast.log_prob(y[:, 0]).shape == (ROWS,)
    task = Task(Examples(x[:20], y[:20, 0]), Examples(x[20:], y[20:, 0]), "t")
    learner = mp.MetaLearner(mp.MLP(2, [8], likelihood), likelihood, adaptation=Descent(steps=1, lr=1e-3))
    learner.fit([task] * 4, epochs=1, tasks_per_epoch=4, meta_batch=2, progress=False, calibrate=False)
    assert learner.adapt((x[:20], y[:20, 0])).predict(x).mean.shape == (ROWS,)


@pytest.mark.parametrize(
    "name", [name for name in NUMBERS if name not in ("gaussian", "fixed", "heteroscedastic", "crps")]
)
def test_exact_engines_agree(name: str) -> None:
    case = CASES[name]
    inner = Descent(2, 5e-3, "per_tensor", samples=2)
    problem = mp.Problem(mp.BayesianNetwork(network(case).double()), case.likelihood, inner)
    x, y = (part.double() for part in data_of(case))
    task = Task(Examples(x[:5], y[:5]), Examples(x[5:9], y[5:9]), "a task")
    theta = scattered(problem.initial(y, relative_sigma=0.3), torch.Generator().manual_seed(0))
    gradient = Gradient(problem, theta, task, mp.Noise(0))
    assert_same(solved(mixed, gradient), solved(unrolled, gradient), problem)


def test_one_hot_numbers_of_outputs() -> None:
    assert mp.MLP(2, [8], mp.HeteroscedasticGaussian()).config["outputs"] == 2
    assert mp.MLP(2, [8], mp.Quantiles(), targets=3).config["outputs"] == 21
    assert mp.MLP(2, [8], mp.GaussianMixture(4)).config["outputs"] == 12
    assert mp.MLP(2, [8], mp.Categorical(), targets=5).config["outputs"] == 5
    assert mp.MLP(2, [8], 4).config["outputs"] == 4
    with pytest.raises(ValueError, match="targets must be the number of classes, at least 2, got 1"):
        mp.MLP(2, [8], mp.Categorical())
    with pytest.raises(ValueError, match="a GaussianMixture has one target, got targets=2"):
        mp.MLP(2, [8], mp.GaussianMixture(), targets=2)
    with pytest.raises(ValueError, match="only where outputs is a likelihood, got outputs=3"):
        mp.MLP(2, [8], 3, targets=2)
    with pytest.raises(ValueError, match="targets must be an integer of at least 1, got 0"):
        mp.MLP(2, [8], mp.Gaussian(), targets=0)


def test_configurations_name_them() -> None:
    assert isinstance(LIKELIHOODS.build("student_t", {"freedom": 4}), mp.StudentT)
    assert LIKELIHOODS.build("censored", {"lower": 0.0}) == mp.CensoredGaussian(lower=0)
    assert LIKELIHOODS.build("quantiles", {"levels": [0.1, 0.5, 0.9]}).levels == (0.1, 0.5, 0.9)


def test_a_fit_recovers_what_data_were_drawn_from() -> None:
    """Counts with a dispersion of one half around a rate that a line gives."""
    generator = np.random.default_rng(0)
    x = torch.from_numpy(generator.uniform(-1, 1, (1000, 1))).float()
    rate = np.exp(1.5 + x.numpy()[:, 0])
    y = generator.negative_binomial(2.0, 1 / (1 + 0.5 * rate))
    bnn = mp.BayesByBackprop(torch.nn.Linear(1, 1), mp.NegativeBinomial())
    bnn.fit(x, y, epochs=25, batch_size=50, lr=0.05, progress=False)
    dispersion = torch.nn.functional.softplus(bnn.posterior_.weights.plain["likelihood.dispersion_rho"])
    assert float(dispersion) == pytest.approx(0.5, rel=0.2)
    np.testing.assert_allclose(bnn.predict(x).mean, rate, rtol=0.2)
    assert bnn.evaluate(x, y).row()["coverage_90"] > 0.88


@pytest.mark.parametrize("likelihood", [mp.Poisson(), mp.NegativeBinomial()])
def test_large_counts_are_fitted_about_as_well_as_by_a_generalised_linear_model(
    likelihood: mp.Likelihood,
) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 1)).astype(np.float32)
    rate = 3000 * np.exp(0.8 * x[:, 0])
    y = generator.poisson(rate)
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(torch.nn.Linear(1, 1), likelihood).fit(x, y, steps=300, lr=0.02, progress=False)
    linear = PoissonRegressor(alpha=0.0).fit(x, y).predict(x)
    error, of_linear = (float(np.sqrt(np.mean((found - y) ** 2))) for found in (bnn.predict(x).mean, linear))
    assert error < 1.3 * of_linear


def test_every_channel_of_counts_has_a_level_of_its_own_also_from_a_loader() -> None:
    x, y = torch.zeros(40, 1), torch.tensor([[0.0, 3000.0], [20.0, 5000.0]]).repeat(20, 1)
    y[::3, 0] = torch.nan
    expected = torch.stack([y[:, 0].nanmean(), y[:, 1].mean()]).log()
    torch.testing.assert_close(mp.Poisson().initial_parameters(y)[LOG_LEVEL], expected)
    data = DataLoader(TensorDataset(x, y), batch_size=10)
    with pytest.warns(UserWarning, match="targets are missing"):
        bnn = mp.BayesByBackprop(torch.nn.Linear(1, 2), mp.Poisson()).fit(data, steps=1, lr=1e-9, progress=False)
    torch.testing.assert_close(bnn.posterior_.weights.plain[LOG_LEVEL], expected)
    assert mp.Poisson().initial_parameters(torch.zeros(5, 1))[LOG_LEVEL].tolist() == [0.0]


def test_limits_are_learned_from() -> None:
    """A line that limits clip: the censored fit finds its slope and its noise, a Gaussian's is half as steep."""
    x = torch.linspace(-2, 2, 400)[:, None].double()
    y = (1000 * (x[:, 0] + 0.3 * torch.randn(400, generator=torch.Generator().manual_seed(0)))).clip(-500, 800)
    slopes = []
    for likelihood in (mp.CensoredGaussian(lower=-500.0, upper=800.0), mp.Gaussian()):
        torch.manual_seed(0)
        bnn = mp.BayesByBackprop(torch.nn.Linear(1, 1).double(), likelihood).fit(
            x, y, epochs=60, lr=0.1, progress=False
        )
        forecast = bnn.predict(x)
        assert isinstance(forecast, CensoredForecast | GaussianForecast)
        behind = forecast.means.mean(0)
        slopes.append(float(behind[-1] - behind[0]) / 4)
        if isinstance(forecast, CensoredForecast):
            assert float(forecast.mean.max()) <= 800.0
            assert float(forecast.quantile(0.05).min()) == pytest.approx(-500.0, abs=1e-9)
            assert float(forecast.scales.mean()) == pytest.approx(300, rel=0.15)
    assert slopes[0] == pytest.approx(1000, rel=0.1)
    assert slopes[1] < 600


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("pairs", ValueError, r"elementwise_nll of Wrong must return the targets' shape \(N, 1\), got \(N, N\). Try"),
        ("sums", ValueError, r"targets' shape \(N, 1\), got \(N,\). Try"),
        ("mean", ValueError, r"targets' shape \(N, 1\), got \(\). Try"),
        ("no forecast", TypeError, "forecast of Wrong must return a Forecast, got Tensor. Try"),
    ],
)
def test_an_own_likelihood_with_wrong_results_is_refused_where_a_fit_begins(
    what: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wrong, "what", what)
    x = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
    task = Task(Examples(x, x[:, 0]), Examples(x, x[:, 0]))
    with pytest.raises(error, match=message):
        mp.BayesByBackprop(torch.nn.Linear(1, 1), Wrong()).fit(x, x[:, 0], steps=1, progress=False)
    with pytest.raises(error, match=message):
        mp.BayesByBackprop(torch.nn.Linear(1, 1), Wrong()).fit(TensorDataset(x, x), steps=1, progress=False)
    with pytest.raises(error, match=message):
        mp.MetaLearner(torch.nn.Linear(1, 1), Wrong()).fit([task] * 4, epochs=1, progress=False)
    with pytest.raises(error, match=message):
        mp.HierarchicalVI(torch.nn.Linear(1, 1), Wrong()).fit({"a": task.query, "b": task.query}, progress=False)
