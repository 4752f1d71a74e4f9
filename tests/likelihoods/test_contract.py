"""What every likelihood of the package keeps: densities, moments, quantiles, units, missing targets.

Fits, saving and scores of the same cases are in test_use.py.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap

import metaprior as mp
from metaprior.forecasts import (
    CensoredForecast,
    Forecast,
    GaussianForecast,
    MixtureForecast,
    QuantileForecast,
    ZeroInflatedForecast,
)
from metaprior.likelihoods import LIKELIHOODS
from metaprior.scaling import TargetScale
from tests.likelihoods.cases import CASES, COUNTS, NEW, NUMBERS, REAL, SAMPLES, Case

LEVELS = (1e-9, 1e-6, 1e-3, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999, 1 - 1e-6, 1 - 1e-9)
NODES, NODE_WEIGHTS = map(torch.from_numpy, np.polynomial.legendre.leggauss(40))
PIECES = 60
"""Pieces of every panel between two quantiles, each with 40 nodes."""


def repeated(case: Case, count: int, seed: int = 0) -> Forecast:
    """Return the forecast of a mixture for one target, ``count`` times: (count, 1)."""
    outputs = case.outputs(SAMPLES, 1, channels=1, seed=seed).expand(SAMPLES, count, -1)
    parameters = case.parameters
    likelihood = case.likelihood
    if isinstance(getattr(likelihood, "noise", None), tuple):
        likelihood = type(likelihood)(0.4, **{name: getattr(likelihood, name) for name in OWN_FIELDS[type(likelihood)]})
    if isinstance(likelihood, mp.CensoredGaussian):
        likelihood = mp.CensoredGaussian(likelihood.noise, lower=-0.6, upper=0.9)
    return likelihood.forecast(outputs, parameters)


OWN_FIELDS = {mp.Gaussian: (), mp.StudentT: ("freedom",), mp.CensoredGaussian: ("lower",)}


def quadrature(low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of an integral."""
    edges = torch.linspace(low, high, PIECES + 1, dtype=torch.float64)
    half = (edges[1:] - edges[:-1])[:, None] / 2
    return ((edges[1:] + edges[:-1])[:, None] / 2 + half * NODES).flatten(), (half * NODE_WEIGHTS).flatten()


def test_every_registered_likelihood_has_a_case() -> None:
    covered = {type(case.likelihood) for case in CASES.values()}
    own = {cls for cls in LIKELIHOODS.values() if cls.__module__.startswith("metaprior.likelihoods.")}
    assert own <= covered


@pytest.mark.parametrize("name", REAL)
def test_the_density_integrates_to_one_and_gives_mean_variance_and_cdf(name: str) -> None:
    case = CASES[name]
    edges = repeated(case, 1).quantile(LEVELS).flatten().tolist()
    if isinstance(one := repeated(case, 1), QuantileForecast):  # whose density has steps
        edges = sorted([*edges, *one.points.flatten().tolist()])
    nodes, weights = (torch.cat(part) for part in zip(*(quadrature(*ends) for ends in pairwise(edges)), strict=True))
    atoms = torch.tensor([atom for atom in case.atoms if edges[0] <= atom <= edges[-1]], dtype=torch.float64)
    forecast = repeated(case, len(nodes) + len(atoms))
    values = torch.cat([nodes, atoms])
    # nodes of panels between two equal quantiles are at an atom, with weight zero
    close = 1e-4 if isinstance(case.likelihood, mp.CensoredGaussian) else 2e-7  # nodes within rounding of a limit
    mass = forecast.log_prob(values[:, None]).exp() * torch.cat([weights, torch.ones_like(atoms)])
    assert float(mass.sum()) == pytest.approx(1.0, abs=close)
    mean = float((mass * values).sum())
    assert float(forecast.mean[0]) == pytest.approx(mean, abs=10 * close)
    # what the weights do not know has S - 1 in its denominator where components are samples of them
    shares = 1 / SAMPLES if forecast.weights is None else 0.0
    between = float(forecast.epistemic[0].square()) * shares
    assert float(forecast.std[0].square()) - between == pytest.approx(
        float((mass * (values - mean) ** 2).sum()), rel=100 * close
    )
    for edge in edges[1:-1]:
        up_to = float(mass[values <= edge + 1e-9].sum())
        assert up_to == pytest.approx(float(forecast.cdf(torch.full_like(forecast.mean, edge))[0]), abs=10 * close)


@pytest.mark.parametrize("name", COUNTS)
def test_masses_sum_to_one_and_give_mean_variance_and_cdf(name: str) -> None:
    values = torch.arange(3000, dtype=torch.float64)[:, None]
    forecast = repeated(CASES[name], len(values))
    mass = forecast.log_prob(values).exp()
    assert float(mass.sum()) == pytest.approx(1.0, abs=1e-9)
    mean = float((mass * values[:, 0]).sum())
    assert float(forecast.mean[0]) == pytest.approx(mean, rel=1e-9)
    variance = float((mass * (values[:, 0] - mean) ** 2).sum()) + float(forecast.epistemic[0] ** 2) / SAMPLES
    assert float(forecast.std[0] ** 2) == pytest.approx(variance, rel=1e-8)
    torch.testing.assert_close(forecast.cdf(values)[:, 0], mass.cumsum(0), rtol=0, atol=1e-11)
    torch.testing.assert_close(forecast.below(values + 1), forecast.cdf(values))
    torch.testing.assert_close(forecast.cdf(values - 0.5)[1:], forecast.cdf(values)[:-1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_quantile_is_the_smallest_value_whose_cdf_reaches_the_level(name: str) -> None:
    case = CASES[name]
    forecast = case.likelihood.forecast(case.outputs(SAMPLES, 20), case.parameters)
    levels = (0.001, 0.05, 0.5, 0.9, 0.999)
    found = forecast.quantile(levels)
    assert found.shape == (5, 20, case.channels)
    assert bool((found[1:] >= found[:-1]).all())
    for level, values in zip(levels, found, strict=True):
        torch.testing.assert_close(values, forecast.quantile(level))
        reached = forecast.cdf(values + 1e-8)
        before = (
            forecast.cdf(values - (1 if name in COUNTS else 1e-6) * forecast.std.clamp_min(1e-3))
            if not (case.atoms or name in COUNTS)
            else forecast.below(values)
        )
        assert bool((reached >= level - 1e-7).all())
        assert bool((before <= level + 1e-7).all())
    low, high = forecast.interval(0.9)
    torch.testing.assert_close(low, found[1])
    assert bool((high >= low).all())
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        forecast.quantile(1.0)


@pytest.mark.parametrize("name", CASES)
def test_log_prob_of_one_component_is_the_negative_nll(name: str) -> None:
    case = CASES[name]
    outputs, targets = case.outputs(12), case.targets(12)
    targets = case.likelihood.check_targets(targets, outputs.shape)
    forecast = case.likelihood.forecast(outputs.expand(4, *outputs.shape), case.parameters)
    assert float(forecast.epistemic.abs().max()) < 1e-12 or name == "mixture"
    assert forecast.log_prob(targets).shape == (12,)
    if case.trained_by_density:
        torch.testing.assert_close(-forecast.log_prob(targets), case.likelihood.nll(outputs, targets, case.parameters))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_of_extreme_outputs_are_finite(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    parameters = {key: value.to(dtype).requires_grad_() for key, value in case.parameters.items()}
    targets = case.targets(6)
    targets = case.likelihood.check_targets(targets, case.outputs(6).shape)
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    for size in (0.0, 1.0, 30.0, 1e4):
        for column in range(case.num_outputs):
            for sign in (-1, 1):
                outputs = torch.zeros(6, case.num_outputs, dtype=dtype)
                outputs[:, column] = sign * size
                outputs.requires_grad_()
                loss = case.likelihood.nll(outputs, targets, parameters).sum()
                grads = torch.autograd.grad(loss, [outputs, *parameters.values()])
                assert bool(loss.isfinite()), (size, column, sign)
                assert all(bool(grad.isfinite().all()) for grad in grads), (size, column, sign)


@pytest.mark.parametrize("name", CASES)
def test_missing_targets_are_left_out(name: str) -> None:
    case = CASES[name]
    outputs = case.outputs(12).requires_grad_()
    targets = case.likelihood.check_targets(case.targets(12), outputs.shape)
    gone = torch.arange(targets.numel()).reshape(targets.shape) % 3 == 1
    holes = targets.masked_fill(gone, -100 if case.kind == "classes" else torch.nan)
    assert case.likelihood.masking(targets) is case.likelihood
    masked = case.likelihood.masking(case.likelihood.check_targets(holes, outputs.shape))
    counts = (~gone).to(outputs)
    expected = case.likelihood.counted_nll(outputs, targets, case.parameters, counts).masked_fill(gone, 0.0)
    found = masked.nll(outputs, holes, case.parameters)
    torch.testing.assert_close(found, expected.reshape(12, -1).sum(1))
    assert bool(torch.autograd.grad(found.sum(), outputs)[0].isfinite().all())
    forecast = case.likelihood.forecast(case.outputs(SAMPLES, 12), case.parameters)
    assert bool(forecast.log_prob(holes).isfinite().all())
    if not case.likelihood.labels:
        assert isinstance(forecast, GaussianForecast | MixtureForecast)
        assert torch.equal(forecast.cdf(holes).isnan(), gone)


@pytest.mark.parametrize("name", CASES)
def test_vmap_gives_what_a_loop_gives(name: str) -> None:
    case = CASES[name]
    outputs, targets = case.outputs(SAMPLES, 5), case.targets(5)
    targets = case.likelihood.check_targets(targets, outputs[0].shape)
    found = vmap(lambda own: case.likelihood.nll(own, targets, case.parameters))(outputs)
    expected = torch.stack([case.likelihood.nll(own, targets, case.parameters) for own in outputs])
    torch.testing.assert_close(found, expected)


# --- units ------------------------------------------------------------------------------------------------------------


def units_of(case: Case) -> TargetScale:
    loc = torch.tensor([-20.0, 3.0], dtype=torch.float64)[: case.channels]
    scale = torch.tensor([0.3, 70.0], dtype=torch.float64)[: case.channels]
    return TargetScale(torch.zeros_like(loc) if case.likelihood.keeps_zero else loc, scale)


@pytest.mark.parametrize("name", REAL)
def test_forecasts_change_units(name: str) -> None:
    case, units = CASES[name], units_of(CASES[name])
    forecast = case.likelihood.forecast(case.outputs(SAMPLES, 9), case.parameters)
    changed, y = forecast.rescaled(*units), case.targets(9)
    in_units = units.loc + units.scale * y
    assert changed.mean.dtype == torch.float64
    torch.testing.assert_close(changed.mean, units.loc + units.scale * forecast.mean)
    for part in ("std", "epistemic", "aleatoric"):
        torch.testing.assert_close(getattr(changed, part), units.scale * getattr(forecast, part))
    levels = (0.05, 0.5, 0.95)
    torch.testing.assert_close(changed.quantile(levels), units.loc + units.scale * forecast.quantile(levels))
    torch.testing.assert_close(changed.cdf(in_units), forecast.cdf(y))
    atom = torch.zeros_like(y, dtype=torch.bool)
    for value in case.atoms:
        atom |= y == value
    assert bool(atom.any()) == bool(case.atoms)
    shift = torch.where(atom, 0.0, units.scale.log()).sum(1)
    torch.testing.assert_close(changed.log_prob(in_units), forecast.log_prob(y) - shift)


@pytest.mark.parametrize("name", ["fixed", "student_fixed", "censored_fixed", "gaussian", "zero_inflated", "quantiles"])
def test_a_likelihood_in_other_units_is_the_same_likelihood(name: str) -> None:
    """Numbers in the users' units (noise, limits) move with the targets; the density changes by the scale alone."""
    case, units = CASES[name], units_of(CASES[name])
    likelihood, y = case.likelihood.in_units_of(units), case.targets(9)
    if not name.endswith("fixed"):
        assert likelihood == case.likelihood
        return
    outputs = case.outputs(SAMPLES, 9)
    mine = case.likelihood.forecast(outputs, case.parameters)
    theirs = likelihood.forecast((outputs - units.loc) / units.scale, case.parameters).rescaled(*units)
    torch.testing.assert_close(mine.log_prob(y), theirs.log_prob(y))
    torch.testing.assert_close(mine.mean, theirs.mean)
    torch.testing.assert_close(mine.quantile(0.9), theirs.quantile(0.9))
    own = likelihood.nll((outputs[0] - units.loc) / units.scale, units.to_internal(y), case.parameters)
    atom = torch.zeros_like(y, dtype=torch.bool)
    for value in case.atoms:
        atom |= y == value
    shift = torch.where(atom, 0.0, units.scale.log()).sum(1)
    torch.testing.assert_close(own + shift, case.likelihood.nll(outputs[0], y, case.parameters))


@pytest.mark.parametrize("name", [name for name in CASES if name not in REAL])
def test_labels_and_counts_have_no_other_units(name: str) -> None:
    case = CASES[name]
    assert not case.likelihood.continuous
    forecast = case.likelihood.forecast(case.outputs(SAMPLES, 4), case.parameters)
    identity = TargetScale.identity(forecast.mean)
    assert forecast.rescaled(*identity) is forecast
    with pytest.raises(TypeError, match="cannot be put back into the units"):
        forecast.rescaled(identity.loc, 2 * identity.scale)


def test_zeros_stay_zeros() -> None:
    forecast = CASES["zero_inflated"].likelihood.forecast(CASES["zero_inflated"].outputs(SAMPLES, 4), {})
    with pytest.raises(ValueError, match="loc must be 0, because a zero must stay a zero"):
        forecast.rescaled(torch.ones(()), torch.ones(()))
    y = torch.tensor([[0.0, 1.0], [3.0, 0.0], [4.0, 7.0]], dtype=torch.float64)
    scale = TargetScale.standardising(y, keep_zero=True)
    assert torch.equal(scale.to_internal(y) == 0, y == 0)
    torch.testing.assert_close(scale.to_internal(y).square().mean(0), torch.ones(2, dtype=torch.float64))


# --- spread, shapes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEW)
def test_a_wider_forecast_is_wider(name: str) -> None:
    case = CASES[name]
    forecast = case.likelihood.forecast(case.outputs(SAMPLES, 9), case.parameters)
    for factor in (1.7, torch.full((9, case.channels), 1.7, dtype=torch.float64)):
        wide = forecast.widened(factor)
        if isinstance(forecast, CensoredForecast):  # the Gaussians behind the limits are wider
            behind = GaussianForecast(forecast.means, forecast.scales).widened(factor)
            y = torch.full_like(forecast.mean, 0.1)
            torch.testing.assert_close(wide.cdf(y), behind.cdf(y))
            torch.testing.assert_close(wide.lower, forecast.lower)
        elif isinstance(forecast, ZeroInflatedForecast):  # the logarithms are
            behind = GaussianForecast(forecast.means, forecast.scales).widened(factor)
            torch.testing.assert_close((wide.means, wide.scales), (behind.means, behind.scales))
            assert torch.equal(wide.zeros, forecast.zeros)
        else:
            torch.testing.assert_close(wide.std, 1.7 * forecast.std)
            torch.testing.assert_close(wide.mean, forecast.mean)
    torch.testing.assert_close(forecast.widened(1.0).std, forecast.std)
    if case.kind == "counts":
        narrow = forecast.widened(0.01)
        assert torch.equal(narrow.samples, forecast.samples)
        torch.testing.assert_close(narrow.aleatoric, forecast.mean.sqrt())


@pytest.mark.parametrize("name", NUMBERS)
def test_targets_without_a_channel_axis_have_forecasts_without_one(name: str) -> None:
    forecast = repeated(CASES[name], 5)
    flat = forecast.squeezed()
    y = CASES[name].targets(5)[:, :1]
    for part in ("mean", "std", "aleatoric", "epistemic"):
        assert torch.equal(getattr(flat, part), getattr(forecast, part)[:, 0])
    assert torch.equal(flat.quantile(0.3), forecast.quantile(0.3)[:, 0])
    torch.testing.assert_close(flat.log_prob(y[:, 0]), forecast.log_prob(y))
    torch.testing.assert_close(flat.cdf(y[:, 0]), forecast.cdf(y)[:, 0])


@pytest.mark.parametrize("name", NEW)
def test_weights_count_like_repeated_components(name: str) -> None:
    case = CASES[name]
    if case.likelihood.outputs_per_target > 1 and name == "mixture":
        pytest.skip("its components are weighted already")
    outputs, y = case.outputs(3, 6), case.targets(6)
    plain = case.likelihood.forecast(outputs, case.parameters)
    many = case.likelihood.forecast(outputs[[0, 1, 1, 2]], case.parameters)
    weighted = type(plain)(**{**plain._fields(), "weights": torch.tensor([1.0, 2.0, 1.0])})
    for part in ("mean", "aleatoric"):
        torch.testing.assert_close(getattr(weighted, part), getattr(many, part))
    torch.testing.assert_close(weighted.log_prob(y), many.log_prob(y))
    torch.testing.assert_close(weighted.quantile(0.8), many.quantile(0.8))
