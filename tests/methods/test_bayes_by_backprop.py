import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.weights import inverse_softplus

FAST = {"epochs": 3, "progress": False}


def nll(bnn: mp.BayesByBackprop, x: Any, y: Any) -> float:
    return float(bnn.evaluate(x, y).row()["nll"])


def linear_problem() -> tuple[Tensor, Tensor]:
    """Correlated inputs, so that the exact posterior is not diagonal; float64."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, dtype=torch.float64, generator=generator) @ torch.tensor(
        [[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.5]], dtype=torch.float64
    )
    w = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    return x, x @ w + 0.5 * torch.randn(40, dtype=torch.float64, generator=generator)


def linear(inputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(inputs, 1, bias=False, dtype=torch.float64)


def exact_posterior(
    x: Tensor, y: Tensor, *, noise: float, prior_std: float, temperature: float
) -> tuple[Tensor, Tensor]:
    r"""Conjugate answer: mean $\Lambda^{-1} X^T y / (s^2 T)$ and precision $\Lambda = X^T X / (s^2 T) + I / s_p^2$."""
    precision = x.T @ x / (noise**2 * temperature) + torch.eye(x.shape[1]) / prior_std**2
    return torch.linalg.solve(precision, x.T @ y / (noise**2 * temperature)), precision


@pytest.mark.parametrize("temperature", [0.2, 5.0])
def test_conjugate_linear_regression_gives_the_exact_mean_and_the_mean_field_variances(temperature: float) -> None:
    """Means within 0.05 posterior standard deviations, standard deviations within 3 %, at every temperature."""
    x, y = linear_problem()
    mean, precision = exact_posterior(x, y, noise=0.5, prior_std=2.0, temperature=temperature)
    bnn = mp.BayesByBackprop(
        linear(), mp.Gaussian(noise=0.5), prior=mp.NormalPrior(2.0), temperature=temperature, standardize=False
    )
    bnn.fit(x, y, epochs=1500, batch_size=40, lr=0.05, samples=32, kl_warmup=0.0, progress=False)
    q, mean_field = bnn.posterior_.weights, precision.diagonal() ** -0.5
    assert ((q.mu - mean).abs() / mean_field).max() < 0.05
    torch.testing.assert_close(q.sigma, mean_field, rtol=0.03, atol=0)


def test_warm_up_and_minibatches_reach_the_same_optimum() -> None:
    """Within 0.15 posterior standard deviations and 8 %: minibatches add gradient noise."""
    x, y = linear_problem()
    mean, precision = exact_posterior(x, y, noise=0.5, prior_std=2.0, temperature=1.0)
    for weighting in ("uniform", "geometric"):
        bnn = mp.BayesByBackprop(linear(), mp.Gaussian(noise=0.5), prior=mp.NormalPrior(2.0), standardize=False)
        bnn.fit(x, y, epochs=400, batch_size=16, lr=0.03, samples=16, weighting=weighting, progress=False)
        q, mean_field = bnn.posterior_.weights, precision.diagonal() ** -0.5
        assert ((q.mu - mean).abs() / mean_field).max() < 0.15, weighting
        torch.testing.assert_close(q.sigma, mean_field, rtol=0.08, atol=0)


def test_a_learned_prior_is_a_weight_distribution() -> None:
    """With a very narrow prior the posterior is the prior."""
    x, y = linear_problem()
    centre = torch.tensor([3.0, 3.0, 3.0], dtype=torch.float64)
    prior = mp.WeightDistribution(centre, inverse_softplus(torch.full_like(centre, 1e-3)))
    bnn = mp.BayesByBackprop(linear(), mp.Gaussian(noise=0.5), prior=prior, standardize=False)
    bnn.fit(x, y, epochs=800, batch_size=40, lr=0.05, kl_warmup=0.0, progress=False)
    torch.testing.assert_close(bnn.posterior_.weights.mu, centre, atol=5e-3, rtol=0)


def test_predictions_come_back_in_the_users_units() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    y = 1000 + 50 * x[:, 0] + rng.normal(size=200)
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(mp.MLP(1, [], 1), mp.Gaussian()).fit(x, y, epochs=300, progress=False)
    forecast = bnn.predict(np.array([[0.0], [2.0]]))
    np.testing.assert_allclose(forecast.mean, [1000, 1100], atol=2)
    np.testing.assert_allclose(forecast.std, 1.0, rtol=0.3)  # the noise that was put in
    # Density in the users' units: for a well-specified model the entropy of the noise, 0.5 log(2 pi e).
    assert nll(bnn, x, y) == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=0.15)


@pytest.mark.parametrize("noise", [20.0, (20.0, 20.0)])
@pytest.mark.parametrize("standardize", [True, False])
def test_fixed_noise_is_in_the_users_units(noise: float, standardize: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 1)), np.array([20.0, 500.0]) * rng.normal(size=(50, 2)) + 7
    net = mp.MLP(1, [], 2)
    bnn = mp.BayesByBackprop(net, mp.Gaussian(noise=noise), standardize=standardize).fit(x, y, **FAST)
    np.testing.assert_allclose(bnn.predict(x).aleatoric, 20.0, rtol=1e-5)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 3, 3)])
def test_targets_keep_their_shape(shape: tuple[int, ...]) -> None:
    outputs = math.prod(shape)
    torch.manual_seed(0)
    net = mp.MLP(4, [8], outputs) if len(shape) < 2 else nn.Sequential(mp.MLP(4, [8], outputs), nn.Unflatten(1, shape))
    x, y = torch.randn(20, 4), torch.randn(20, *shape)
    bnn = mp.BayesByBackprop(net, mp.Gaussian(per_channel=len(shape) > 0)).fit(x, y, **FAST)
    forecast = bnn.predict(x[:3])
    assert forecast.mean.shape == forecast.std.shape == (3, *shape)
    assert math.isfinite(nll(bnn, x, y))


def test_heteroscedastic_noise_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2000, 1, generator=generator) * 2 - 1
    y = torch.where(x > 0, 1.0, 0.1) * torch.randn(2000, 1, generator=generator)
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(mp.MLP(1, [20], 2), mp.HeteroscedasticGaussian()).fit(x, y, epochs=60, progress=False)
    quiet, loud = bnn.predict(torch.tensor([[-0.5], [0.5]])).aleatoric.flatten().tolist()
    assert quiet == pytest.approx(0.1, rel=0.4)
    assert loud == pytest.approx(1.0, rel=0.2)


def test_classification_learns_and_knows_where_it_has_seen_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    centres = torch.tensor([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    x = centres[labels] + 0.4 * torch.randn(300, 2, generator=generator)
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(mp.MLP(2, [20], 3), mp.Categorical()).fit(x, labels, epochs=60, progress=False)
    assert bnn.evaluate(x, labels).row()["error"] < 0.03
    forecast: Any = bnn.predict(x)
    torch.testing.assert_close(forecast.probabilities.sum(1), torch.ones(300))
    assert torch.equal(forecast.labels, forecast.probabilities.argmax(1))
    seen, unseen = bnn.predict(centres), bnn.predict(-8 * centres)  # opposite of each centre, far from all data
    assert float(unseen.mutual_information.mean()) > 3 * float(seen.mutual_information.mean())


def test_bernoulli_labels_work_as_numpy_booleans_too() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = x[:, 0] > 0
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(mp.MLP(2, [], 1), mp.Bernoulli()).fit(x, y, epochs=400, progress=False)
    assert bnn.evaluate(x, y).row()["error"] < 0.05
    assert bnn.predict(x).probabilities.shape == (200, 2)


def test_pruning_removes_the_weights_of_low_signal_and_keeps_the_prediction() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 10, generator=generator)
    y = 3 * x[:, 0] + 0.1 * torch.randn(400, generator=generator)
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(nn.Linear(10, 1, bias=False), mp.Gaussian()).fit(x, y, epochs=100, progress=False)
    before = nll(bnn, x, y)
    bnn.prune(0.9)
    weights = bnn.posterior_.weights
    assert (weights.sigma > 0).tolist() == [True] + [False] * 9
    assert nll(bnn, x, y) == pytest.approx(before, abs=0.05)
    assert bnn.prune(0.5).posterior_.weights.mu[0] != 0, "pruning again starts with what is already gone"


def test_pretrained_weights_are_where_the_means_start_and_the_module_is_never_changed() -> None:
    x, y = linear_problem()
    module = linear()
    before = module.weight.clone()
    bnn = mp.BayesByBackprop(module, mp.Gaussian()).fit(x, y, epochs=1, lr=1e-9, progress=False)
    torch.testing.assert_close(bnn.posterior_.weights.mu, before.flatten(), atol=1e-7, rtol=0)
    bnn.fit(x, y, **FAST)
    assert torch.equal(module.weight, before)


def test_plain_parameters_are_learned_beside_the_random_ones() -> None:
    x, y = linear_problem()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4, dtype=torch.float64), nn.Linear(4, 1, dtype=torch.float64))
    bnn = mp.BayesByBackprop(module, mp.Gaussian(), stochastic=r"1\..*").fit(x, y, **FAST)
    assert len(bnn.posterior_.weights.mu) == 5
    assert not torch.equal(bnn.posterior_.weights.plain["0.weight"], module[0].weight)


def test_dropout_is_off_when_predicting() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 20), nn.Dropout(0.5), nn.Linear(20, 1))
    x = torch.randn(30, 2)
    bnn = mp.BayesByBackprop(net, mp.Gaussian()).fit(x, x[:, 0], **FAST)
    assert torch.equal(bnn.predict(x).mean, bnn.predict(x).mean)
    assert net[1].training


def trained(likelihood: mp.Likelihood | None = None, **arguments: object) -> tuple[mp.BayesByBackprop, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(30, 4)
    bnn = mp.BayesByBackprop(mp.MLP(4, [5], 1), likelihood or mp.Gaussian(), **arguments)  # type: ignore[arg-type]
    return bnn.fit(x, 5 + x[:, 0], **FAST), x


def test_large_targets_keep_the_precision_they_came_with() -> None:
    """Julian dates: in float32 they are steps of a quarter of a day."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    y = 2_450_000 + 0.5 * x[:, 0]
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(mp.MLP(1, [], 1), mp.Gaussian()).fit(x, y, epochs=300, progress=False)
    assert bnn.evaluate(x, y).row()["rmse"] < 0.05
    assert bnn.predict(x).mean.dtype == np.float64


def test_learned_noise_without_standardising_finds_large_targets() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 1, generator=generator), 100 * torch.randn(200, generator=generator)
    bnn = mp.BayesByBackprop(mp.MLP(1, [], 1), mp.Gaussian(), standardize=False).fit(x, y, progress=False)
    ideal = math.log(100) + 0.5 * math.log(2 * math.pi * math.e)
    assert nll(bnn, x, y) == pytest.approx(ideal, abs=0.3)


@pytest.mark.parametrize(
    ("mu", "message"),
    [(torch.zeros(1), r"shape \(1,\)"), (torch.zeros(5), "shape"), (torch.full((31,), math.nan), "31 NaN")],
)
def test_a_prior_that_does_not_fit_is_refused(mu: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=f"the prior's mu has {message}"):
        trained(prior=mp.WeightDistribution(mu, torch.zeros_like(mu)))


GOOD_X, GOOD_Y = np.zeros((5, 2)), np.arange(5.0)


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (np.full((5, 2), np.nan), GOOD_Y, ValueError, r"x has 10 NaN or infinite values out of 10, .* index \(0, 0\)"),
        (GOOD_X, np.array([0, 1, np.inf, 3, 4]), ValueError, r"y has 1 infinite values .* index \(2,\)"),
        (np.full((5, 2), 1e300), GOOD_Y, ValueError, r"converted to torch.float32"),
        (GOOD_X, np.arange(4.0), ValueError, "x has 5 observations and y has 4"),
        (np.zeros((0, 2)), np.zeros(0), ValueError, "x is empty"),
        (GOOD_X, np.float64(3), TypeError, "y must be a torch tensor, a NumPy array or a data frame, got float64"),
        ([[0.0, 1.0]], GOOD_Y, TypeError, "got list"),
        (GOOD_X, np.array(["a"] * 5), TypeError, "y must hold numbers"),
        (GOOD_X, np.zeros(5, dtype=complex), TypeError, "y must hold numbers"),
        (torch.zeros(5, 2, dtype=torch.complex64), GOOD_Y, TypeError, "x must hold real numbers"),
        (GOOD_X, np.zeros((5, 3)), ValueError, r"but the targets have shape \(5, 3\)"),
        (GOOD_X, np.ones(5), ValueError, "constant.*standardize=False"),
        (GOOD_X, np.full(5, 2**64 - 1, dtype=np.uint64), ValueError, "y holds 18446744073709551615, too large"),
        # netCDF files come as masked arrays; the fill value behind the mask is no measurement.
        (GOOD_X, np.ma.masked_equal(GOOD_Y, 1.0), ValueError, "y has 1 masked values out of 5"),
    ],
)
def test_bad_data_is_refused_with_what_was_found(x: object, y: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mp.BayesByBackprop(mp.MLP(2, [3], 1), mp.Gaussian()).fit(x, y, **FAST)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "of_fit", "message"),
    [
        ({}, {"epochs": 0}, "epochs must be an integer of at least 1"),
        ({}, {"patience": 2.5}, "patience must be an integer"),
        ({}, {"weighting": "harmonic"}, "weighting must be one of uniform, geometric, got 'harmonic'"),
        ({}, {"validation": 0.01}, "leaves one of the two parts empty"),
        ({}, {"validation": 1.5}, "leaves one of the two parts empty"),
        ({"temperature": 0.0}, {}, "temperature must be a positive number"),
        ({"temperature": "1"}, {}, "temperature must be a positive number"),
        ({"prior": "normal"}, {}, "prior must be one like NormalPrior"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], of_fit: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        mp.BayesByBackprop(mp.MLP(2, [3], 1), mp.Gaussian(), **settings).fit(GOOD_X, GOOD_Y, **{**FAST, **of_fit})


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
def test_targets_of_few_bits_and_integers_are_worked_on_in_more(dtype: torch.dtype) -> None:
    x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0))
    y = (1_000 + 200 * x[:, 0]).to(dtype) if dtype == torch.float16 else (1_700_000_000 + 20 * x[:, 0].double()).long()
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(mp.MLP(1, [], 1), mp.Gaussian()).fit(x, y, epochs=600, progress=False)
    assert bnn.evaluate(x, y).row()["rmse"] < 0.15 * float(y.double().std())


def test_a_parameter_with_the_name_of_the_noise_scale_is_refused() -> None:
    class Clashing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.likelihood = nn.Linear(2, 1), nn.Module()
            self.likelihood.rho = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) + self.likelihood.rho

    with pytest.raises(ValueError, match=r"parameter called 'likelihood\.rho'"):
        mp.BayesByBackprop(Clashing(), mp.Gaussian()).fit(GOOD_X, GOOD_Y, **FAST)


def test_inputs_on_a_large_scale_are_warned_of() -> None:
    """A column of years, say: the fit would be silently useless."""
    with pytest.warns(UserWarning, match=r"root mean square of 2e\+03.*standardise each feature"):
        mp.BayesByBackprop(mp.MLP(2, [3], 1), mp.Gaussian()).fit(GOOD_X + 2000, GOOD_Y, **FAST)


def test_labels_are_checked_when_scoring_too() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(20, 2), torch.arange(20) % 2
    bnn = mp.BayesByBackprop(mp.MLP(2, [], 2), mp.Categorical()).fit(x, y, **FAST)
    with pytest.raises(TypeError, match="integers"):
        bnn.evaluate(x, torch.full((20,), 0.9))
    for labels in (y[:1], y[:7]):
        with pytest.raises(ValueError, match="x has 20 observations and y has"):
            bnn.evaluate(x, labels)
    with pytest.raises(ValueError, match="got 7 to"):
        bnn.evaluate(x, torch.full((20,), 7))
    binary = mp.BayesByBackprop(mp.MLP(2, [], 1), mp.Bernoulli()).fit(x, y, **FAST)
    with pytest.raises(ValueError, match="0 or 1"):
        binary.evaluate(x, torch.full((20,), 7))


def test_a_method_prints_what_it_is_and_whether_it_is_fitted() -> None:
    bnn = mp.BayesByBackprop(mp.MLP(1, [3], 1), mp.Gaussian(noise=0.1))
    assert repr(bnn) == "BayesByBackprop(MLP, Gaussian(noise=0.1, per_channel=False); not fitted)"
    bnn.fit(torch.randn(9, 1), torch.randn(9), epochs=2, progress=False)
    assert repr(bnn).endswith("fitted in 2 epochs)")
