"""The distribution of a pixel, and what of its spread is between networks."""

import torch

from metaprior import mixture
from metaprior.solar.maps.nowcast.distribution import OUTPUTS, NowcastForecast, components, mixed

LEADS = 3


def forecast(networks: int = 2) -> NowcastForecast:
    outputs = [torch.randn(1, OUTPUTS * LEADS, 4, 5, dtype=torch.float64) for _ in range(networks)]
    means, scales = (torch.cat(parts) for parts in zip(*map(components, outputs), strict=True))
    weights = torch.tensor([0.7, 0.3][:networks]).repeat_interleave(2)
    return NowcastForecast(means, scales, weights=weights)


def test_components_lie_around_the_mean_with_positive_scales() -> None:
    outputs = torch.randn(2, OUTPUTS * LEADS, 4, 5)
    means, scales = components(outputs)
    assert means.shape == scales.shape == (2, 2, LEADS, 4, 5)
    torch.testing.assert_close(means.mean(0), outputs[:, :LEADS])
    assert float(scales.min()) > 0


def test_the_parts_of_the_variance_add_up_to_that_of_the_mixture() -> None:
    torch.manual_seed(0)
    found = forecast()
    variance = mixture.variance(found.means, found.scales, found.weights)
    torch.testing.assert_close(found.std**2, variance)
    torch.testing.assert_close(found.epistemic**2 + found.aleatoric**2, variance)


def test_one_network_has_no_spread_between_networks() -> None:
    found = forecast(1)
    assert float(found.epistemic.max()) == 0
    torch.testing.assert_close(found.mean, found.means.mean(0))


def test_a_widened_forecast_keeps_its_kind_and_mean() -> None:
    torch.manual_seed(1)
    found = forecast()
    wide = found.widened(torch.tensor([2.0, 3.0, 1.0]).double()[:, None, None])
    assert isinstance(wide, NowcastForecast)
    torch.testing.assert_close(wide.mean, found.mean)
    torch.testing.assert_close(wide.std[:, 0], 2 * found.std[:, 0])


def test_a_mixture_has_the_weighted_mean_and_leaves_out_a_share_of_nothing() -> None:
    torch.manual_seed(0)
    one, other = forecast(), forecast(1)
    found = mixed([one, other], [0.25, 0.75])
    torch.testing.assert_close(found.mean, 0.25 * one.mean + 0.75 * other.mean)
    assert found.samples.shape[0] == 3
    torch.testing.assert_close(mixed([one, other], [1, 0]).mean, one.mean)
