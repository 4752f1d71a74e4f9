"""The likelihood of nowcasts is their distribution: scored by its CRPS, forecast with its two Gaussians."""

import pytest
import torch

from metaprior import mixture
from metaprior.checkpoint import describe, restore
from metaprior.likelihoods import LIKELIHOODS
from metaprior.solar.maps.nowcast.distribution import NowcastForecast, components
from metaprior.solar.maps.nowcast.likelihood import NowcastLikelihood


def outputs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_loss_is_the_weighted_crps_of_the_forecast() -> None:
    likelihood, given = NowcastLikelihood(weight=3.0), outputs(2, 16, 5, 6)
    targets = outputs(2, 4, 5, 6)
    loss = likelihood.elementwise_nll(given, targets, {})
    forecast = likelihood.forecast(given[None], {})
    means, scales = forecast.means.flatten(1), forecast.scales.flatten(1)
    expected = mixture.crps(means, scales, targets.flatten(), torch.full((2, 1), 0.5, dtype=torch.float64))
    torch.testing.assert_close(loss.flatten(), 3 * expected)
    assert likelihood.nll(given, targets, {}).shape == (2,)


def test_a_forecast_of_several_samples_is_their_mixture() -> None:
    given = outputs(3, 2, 16, 5, 6)
    forecast = NowcastLikelihood().forecast(given, {})
    assert isinstance(forecast, NowcastForecast)
    assert forecast.means.shape == (6, 2, 4, 5, 6)
    for sample in range(3):
        means, scales = components(given[sample])
        assert torch.equal(forecast.means[2 * sample : 2 * sample + 2], means)
        assert torch.equal(forecast.scales[2 * sample : 2 * sample + 2], scales)
    torch.testing.assert_close(forecast.mean, given[:, :, :4].mean(0))
    assert float(forecast.epistemic.min()) > 0


def test_missing_targets_are_left_out_and_other_shapes_refused() -> None:
    likelihood, given, targets = NowcastLikelihood(), outputs(2, 16, 5, 6), outputs(2, 4, 5, 6)
    targets[0, 0] = torch.nan
    masked = likelihood.masking(targets).elementwise_nll(given, targets, {})
    assert bool((masked[0, 0] == 0).all())
    assert bool((masked[0, 1] > 0).all())
    assert likelihood.check_targets(targets, given.shape) is targets
    with pytest.raises(ValueError, match="the network must have 4 output maps for each target map"):
        likelihood.check_targets(targets, torch.Size((2, 15, 5, 6)))
    with pytest.raises(ValueError, match="means, distances and two scales of each"):
        likelihood.check_targets(outputs(2, 3, 5, 6), given.shape)
    with pytest.raises(ValueError, match="weight must be"):
        NowcastLikelihood(weight=0.0)


def test_it_is_known_by_its_name() -> None:
    import metaprior.solar.maps.application  # noqa: F401

    assert LIKELIHOODS["nowcast"] is NowcastLikelihood
    described = describe(NowcastLikelihood(2.0), LIKELIHOODS.values())
    assert restore(described, LIKELIHOODS.values()) == NowcastLikelihood(2.0)
