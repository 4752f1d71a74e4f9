import math

import numpy as np
import pytest
import scoringrules
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Normal

import metaprior as mp
from metaprior.likelihoods import NOISE_RHO, Likelihood
from metaprior.metagrad import Descent, mixed, unrolled
from metaprior.scaling import TargetScale
from metaprior.weights import inverse_softplus
from tests.metagrad.problems import assert_same, make_case, solved

N, C = 6, 3


def doubles(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


SCALES = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)


@pytest.mark.parametrize("event", [(C,), (C, 4, 5)])
@pytest.mark.parametrize(
    ("likelihood", "parameters"),
    [
        (mp.Gaussian(noise=(0.5, 1.0, 2.0)), {}),
        (mp.Gaussian(per_channel=True), {NOISE_RHO: inverse_softplus(SCALES)}),
    ],
)
def test_gaussian_sums_over_everything_behind_the_first_axis(
    likelihood: mp.Gaussian, parameters: dict[str, Tensor], event: tuple[int, ...]
) -> None:
    outputs, targets = doubles(N, *event), doubles(N, *event, seed=1)
    scale = SCALES.reshape(C, *[1] * (len(event) - 1))
    expected = -Normal(outputs, scale).log_prob(targets).flatten(1).sum(1)
    torch.testing.assert_close(likelihood.nll(outputs, targets, parameters), expected)


def test_mean_squared_error_is_the_gaussian_with_fixed_noise() -> None:
    """docs/conventions.md: MSE + KL_WEIGHT * KL = (2 s^2 T / P) * F + const, with KL_WEIGHT = 2 s^2 T / (N P)."""
    outputs, targets, kl, s, temperature = doubles(N, C, 4), doubles(N, C, 4, seed=1), torch.tensor(5.0), 0.3, 0.7
    pixels = C * 4
    energy = mp.objectives.free_energy(
        mp.Gaussian(noise=s).nll(outputs, targets, {}).sum(), kl, num_observations=N, temperature=temperature
    )
    constant = s**2 * (2 * math.log(s) + math.log(2 * math.pi))
    kl_weight = 2 * s**2 * temperature / (N * pixels)
    seed_loss = (outputs - targets).square().mean() + kl_weight * kl
    torch.testing.assert_close(2 * s**2 * temperature / pixels * energy.total, seed_loss + constant)


def test_heteroscedastic_takes_means_then_scales() -> None:
    outputs, targets = doubles(N, 2 * C), doubles(N, C, seed=1)
    scale = torch.nn.functional.softplus(outputs[:, C:]) + 1e-3
    expected = -Normal(outputs[:, :C], scale).log_prob(targets).sum(1)
    torch.testing.assert_close(mp.HeteroscedasticGaussian().nll(outputs, targets, {}), expected)


def test_the_smallest_scale_keeps_a_perfect_fit_finite() -> None:
    outputs = torch.tensor([[0.0, -1e4]], dtype=torch.float64)
    nll = mp.HeteroscedasticGaussian(min_scale=0.01).nll(outputs, torch.zeros(1, 1, dtype=torch.float64), {})
    assert float(nll) == pytest.approx(math.log(0.01) + 0.5 * math.log(2 * math.pi))


@pytest.mark.parametrize("event", [(), (4, 5)])
def test_categorical_is_the_cross_entropy(event: tuple[int, ...]) -> None:
    logits = doubles(N, C, *event)
    labels = torch.randint(0, C, (N, *event), generator=torch.Generator().manual_seed(0))
    expected = -Categorical(logits=logits.movedim(1, -1)).log_prob(labels).reshape(N, -1).sum(1)
    torch.testing.assert_close(mp.Categorical().nll(logits, labels, {}), expected)


def test_bernoulli_is_the_cross_entropy() -> None:
    logits, labels = doubles(N, 2), (doubles(N, 2, seed=1) > 0).double()
    expected = -Bernoulli(logits=logits).log_prob(labels).sum(1)
    torch.testing.assert_close(mp.Bernoulli().nll(logits, labels, {}), expected)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets"),
    [
        (mp.Gaussian(noise=0.4), doubles(N, C, 2), doubles(N, C, 2, seed=1)),
        (mp.HeteroscedasticGaussian(), doubles(N, 2 * C, 2), doubles(N, C, 2, seed=1)),
        (mp.Categorical(), doubles(N, C, 2), torch.tensor([0, 1, 2, 2, 1, 0])[:, None].expand(N, 2)),
        (mp.Bernoulli(), doubles(N, C, 2), (doubles(N, C, 2, seed=1) > 0).double()),
    ],
)
def test_forecast_of_identical_samples_has_the_likelihoods_density_and_no_epistemic_part(
    likelihood: Likelihood, outputs: Tensor, targets: Tensor
) -> None:
    forecast = likelihood.forecast(outputs.expand(5, *outputs.shape), {})
    torch.testing.assert_close(-forecast.log_prob(targets), likelihood.nll(outputs, targets, {}))
    assert forecast.epistemic.abs().max() < 1e-12
    torch.testing.assert_close(forecast.std, forecast.aleatoric)


def test_fixed_noise_is_given_in_the_targets_units() -> None:
    assert mp.Gaussian(noise=0.5).in_units_of(TargetScale(torch.zeros(2), torch.tensor([2.0, 0.25]))).noise == (
        0.25,
        2.0,
    )
    assert mp.Gaussian().in_units_of(TargetScale(torch.zeros(()), torch.tensor(2.0))) == mp.Gaussian()


def test_learned_noise_has_one_scale_or_one_a_channel() -> None:
    targets = doubles(N, C, 4)
    assert mp.Gaussian().initial_parameters(targets)[NOISE_RHO].shape == ()
    assert mp.Gaussian(per_channel=True).initial_parameters(targets)[NOISE_RHO].shape == (C,)
    assert mp.Gaussian(noise=1.0).initial_parameters(targets) == {}


def test_learned_noise_starts_at_the_spread_of_the_targets() -> None:
    targets = 100 * doubles(5000, 2) * torch.tensor([1.0, 3.0], dtype=torch.float64)
    rho = mp.Gaussian(per_channel=True).initial_parameters(targets)[NOISE_RHO]
    torch.testing.assert_close(torch.nn.functional.softplus(rho), targets.std(0), rtol=0.05, atol=0)


@pytest.mark.parametrize(
    ("likelihood", "targets", "output_shape", "message"),
    [
        (mp.Gaussian(), doubles(N), (N, 2), r"shape \(N, 2\), but the targets have shape \(6,\)"),
        (mp.Gaussian(), doubles(N, 1), (N,), "but the targets have shape"),
        (mp.Gaussian(noise=(1.0, 2.0)), doubles(N, C), (N, C), "noise has 2 entries, but the targets have 3 channels"),
        (mp.HeteroscedasticGaussian(), doubles(N), (N, 3), "even number of channels"),
        (mp.Categorical(), torch.tensor([0, 3]), (2, 3), "labels must be 0..2, one for each logit, got 0 to 3"),
        (mp.Categorical(), torch.zeros(2, 1, dtype=torch.long), (2, 3), "labels must have shape"),
        (mp.Bernoulli(), torch.tensor([0, 2]), (2, 1), "labels must be 0 or 1"),
    ],
)
def test_unfitting_targets_are_refused(
    likelihood: Likelihood, targets: Tensor, output_shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        likelihood.check_targets(targets, torch.Size(output_shape))


def test_class_labels_have_to_be_integers() -> None:
    with pytest.raises(TypeError, match=r"integers 0\.\.C-1, got torch.float64"):
        mp.Categorical().check_targets(doubles(N), torch.Size((N, C)))


@pytest.mark.parametrize(
    "arguments", [{"noise": 0.0}, {"noise": math.nan}, {"noise": ()}, {"noise": 1.0, "per_channel": True}]
)
def test_nonsense_noise_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="noise"):
        mp.Gaussian(**arguments)  # type: ignore[arg-type]


# --- the CRPS in place of a log-likelihood ----------------------------------------------------------------------------


@pytest.mark.parametrize("event", [(C,), (C, 4, 5)])
@pytest.mark.parametrize("weight", [1.0, 10.0])
def test_the_crps_is_that_of_scoringrules_times_its_weight(weight: float, event: tuple[int, ...]) -> None:
    outputs, targets = 3 * doubles(N, 2 * C, *event[1:]), 3 * doubles(N, *event, seed=1)
    scale = torch.nn.functional.softplus(outputs[:, C:]) + 0.01
    expected = weight * scoringrules.crps_normal(targets.numpy(), outputs[:, :C].numpy(), scale.numpy())
    found = mp.CRPSGaussian(min_scale=0.01, weight=weight).nll(outputs, targets, {})
    np.testing.assert_allclose(found, expected.reshape(N, -1).sum(1), rtol=1e-12)


def test_the_gradient_of_the_crps_by_finite_differences() -> None:
    outputs, targets, step = 2 * doubles(2, 2 * C), 2 * doubles(2, C, seed=1), 1e-6
    crps = mp.CRPSGaussian(weight=3.0)
    leaf = outputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(crps.nll(leaf, targets, {}).sum(), leaf)
    for row, column in np.ndindex(2, 2 * C):
        moved = torch.zeros_like(outputs)
        moved[row, column] = step
        ends = [float(crps.nll(outputs + sign * moved, targets, {}).sum()) for sign in (1, -1)]
        assert float(gradient[row, column]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-8)


def test_the_gradient_of_the_crps_is_bounded_however_wrong_and_sure_the_network_is() -> None:
    """By the mean at most w, by the scale at most w / sqrt(pi); the log-likelihood's grows with 1/s^2."""
    means = torch.tensor([0.0, 1e-3, 0.1, 1.0, 1e3, 1e6], dtype=torch.float64)
    raws = torch.tensor([-50.0, -10.0, -2.0, 0.0, 5.0], dtype=torch.float64)
    outputs = torch.cartesian_prod(means, raws).requires_grad_()
    targets = torch.zeros(len(outputs), 1, dtype=torch.float64)
    (of_crps,) = torch.autograd.grad(mp.CRPSGaussian(weight=10.0).nll(outputs, targets, {}).sum(), outputs)
    assert float(of_crps[:, 0].abs().max()) == pytest.approx(10.0)
    assert float(of_crps[:, 1].abs().max()) <= 10 / math.sqrt(math.pi)
    assert bool(of_crps.isfinite().all())
    (of_density,) = torch.autograd.grad(mp.HeteroscedasticGaussian().nll(outputs, targets, {}).sum(), outputs)
    assert float(of_density.abs().max()) > 1e9


def test_the_forecast_of_the_crps_is_the_gaussian_it_judges() -> None:
    outputs = doubles(5, N, 2 * C)
    found, expected = (kind.forecast(outputs, {}) for kind in (mp.CRPSGaussian(), mp.HeteroscedasticGaussian()))
    assert torch.equal(found.means, expected.means)
    assert torch.equal(found.scales, expected.scales)


@pytest.mark.parametrize("inner", [Descent(steps=3, lr=5e-3), Descent(2, 5e-3, "per_tensor", samples=2)])
def test_exact_engines_agree_on_the_crps(inner: Descent) -> None:
    for module in ("tanh", "conv"):
        case = make_case(module, mp.CRPSGaussian(weight=2.0), inner)
        assert_same(solved(mixed, case), solved(unrolled, case), case.problem)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_is_positive(weight: float) -> None:
    with pytest.raises(ValueError, match=f"weight must be a positive number, got {weight}"):
        mp.CRPSGaussian(weight=weight)
    with pytest.raises(ValueError, match="min_scale must be a positive number"):
        mp.CRPSGaussian(min_scale=0.0)


MISSING = [
    (mp.Gaussian(noise=0.3), (N, C), doubles(N, C)),
    (mp.Gaussian(noise=(0.3, 1.0, 2.0)), (N, C, 2), doubles(N, C, 2)),
    (mp.HeteroscedasticGaussian(), (N, 2 * C), doubles(N, C)),
    (mp.CRPSGaussian(), (N, 2 * C, 2), doubles(N, C, 2)),
    (mp.GaussianMixture(), (N, 9), doubles(N, 1)),
    (mp.Categorical(), (N, C, 2), torch.arange(2 * N).reshape(N, 2) % C),
    (mp.Bernoulli(), (N, C), (doubles(N, C) > 0).double()),
]


@pytest.mark.parametrize(("likelihood", "output_shape", "targets"), MISSING)
def test_missing_targets_add_nothing_to_an_observation_and_to_the_gradient(
    likelihood: Likelihood, output_shape: tuple[int, ...], targets: Tensor
) -> None:
    outputs = doubles(*output_shape).requires_grad_()
    gone = torch.arange(targets.numel()).reshape(targets.shape) % 3 == 1
    holes = targets.masked_fill(gone, -100 if isinstance(likelihood, mp.Categorical) else torch.nan)
    assert likelihood.masking(targets) is likelihood
    assert torch.equal(likelihood.present(holes), ~gone)
    masked = likelihood.masking(likelihood.check_targets(holes, outputs.shape))
    found = masked.nll(outputs, holes, {})
    expected = (likelihood.elementwise_nll(outputs, targets, {}) * ~gone).flatten(1).sum(1)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(nll.sum(), outputs, retain_graph=True)[0] for nll in (found, expected)]
    torch.testing.assert_close(*grads)


def test_first_noise_scale_is_that_of_the_targets_that_are_there() -> None:
    targets = doubles(N, 2)
    holes = targets.clone()
    holes[1, 0] = holes[3, 1] = torch.nan
    rho = mp.Gaussian(per_channel=True).initial_parameters(holes)[NOISE_RHO]
    columns = [column[~column.isnan()].square().mean().sqrt() for column in holes.T]
    torch.testing.assert_close(torch.nn.functional.softplus(rho), torch.stack(columns))


def test_a_mixture_has_the_density_of_torchs_own() -> None:
    outputs, targets = doubles(N, 6), doubles(N, 1, seed=1)
    likelihood = mp.GaussianMixture(components=2, min_scale=0.1)
    logits, means, raw = outputs.split(2, -1)
    weights = torch.distributions.Categorical(logits=logits)
    parts = torch.distributions.Normal(means, torch.nn.functional.softplus(raw) + 0.1)
    expected = torch.distributions.MixtureSameFamily(weights, parts)
    torch.testing.assert_close(
        likelihood.elementwise_nll(outputs, targets, {})[:, 0], -expected.log_prob(targets[:, 0])
    )
    forecast = likelihood.forecast(torch.stack([outputs, outputs]), {})
    torch.testing.assert_close(forecast.log_prob(targets), expected.log_prob(targets[:, 0]))
    torch.testing.assert_close(forecast.mean[:, 0], expected.mean)
    torch.testing.assert_close(forecast.std[:, 0] ** 2, expected.variance)


def test_a_mixture_needs_three_outputs_a_component_and_one_target() -> None:
    with pytest.raises(ValueError, match="must have 9 outputs"):
        mp.GaussianMixture().check_targets(doubles(N, 1), torch.Size((N, 6)))
    with pytest.raises(ValueError, match="targets of shape"):
        mp.GaussianMixture().check_targets(doubles(N, 2), torch.Size((N, 9)))
    with pytest.raises(ValueError, match="components"):
        mp.GaussianMixture(components=0)
