"""The network: a pixel's forecast depends on its surroundings and the window's scalars alone."""

import math

import pytest
import torch
from torch import Tensor

from metaprior.solar.maps.nowcast.distribution import OUTPUTS
from metaprior.solar.maps.nowcast.inputs import CANDIDATES, CHANNELS, INPUTS, LEADS, SCALARS, Known, prepare
from metaprior.solar.maps.nowcast.network import FIRST_WEIGHTS, KINDS_OF_CANDIDATES, Features, NowcastNetwork, PixelNorm


def inputs(height: int, width: int, count: int = 1, seed: int = 0) -> Tensor:
    """Return random inputs whose last channels have one value for the whole window, as ``prepare`` makes them."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(count, CHANNELS - SCALARS, height, width, generator=generator)
    scalars = torch.randn(count, SCALARS, 1, 1, generator=generator)
    return torch.cat([maps, scalars.expand(-1, -1, height, width)], 1)


def network(width: int = 4, levels: int = 2, seed: int = 0) -> NowcastNetwork:
    """Return a network in which every layer matters, also those that begin as zero."""
    torch.manual_seed(seed)
    made = NowcastNetwork(width, levels)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made.eval()


@pytest.mark.parametrize(("height", "width"), [(16, 16), (37, 50), (8, 33)])
def test_means_and_scales_have_the_size_of_the_window(height: int, width: int) -> None:
    found = network(levels=3)(inputs(height, width, count=2))
    assert found.shape == (2, OUTPUTS * LEADS, height, width)
    assert torch.isfinite(found).all()


def test_features_depend_on_the_surroundings_alone() -> None:
    trunk, x = network().trunk, inputs(32, 128)
    changed = x.clone()
    changed[:, :-SCALARS, :, :4] += 5.0
    with torch.no_grad():
        before, after = trunk(x), trunk(changed)
    for one, other in zip(before, after, strict=True):
        difference = (one - other).abs().flatten(0, -2).amax(0)
        assert float(difference[:4].min()) > 0
        assert torch.equal(difference[64:], torch.zeros(64))


def test_scalars_reach_every_pixel_of_their_own_window() -> None:
    trunk, x = network().trunk, inputs(16, 48, count=2)
    changed = x.clone()
    changed[0, -1] += 1.0
    with torch.no_grad():
        difference = (trunk(x).features - trunk(changed).features).abs().amax(1)
    assert float(difference[0].min()) > 0
    assert float(difference[1].max()) == 0


def test_tiles_fit_together_without_seams() -> None:
    made, x = network(), inputs(32, 160)
    with torch.no_grad():
        whole = made(x)
        left, right = made(x[..., :112]), made(x[..., 48:])
    torch.testing.assert_close(left[..., :80], whole[..., :80], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(right[..., 32:], whole[..., 80:], atol=1e-5, rtol=1e-5)


def test_the_first_forecast_is_mostly_the_moved_frame() -> None:
    torch.manual_seed(0)
    made = NowcastNetwork(8)
    logits = made.output.weights.bias.detach().reshape(LEADS, KINDS_OF_CANDIDATES)
    torch.testing.assert_close(logits, torch.tensor(FIRST_WEIGHTS).expand(LEADS, -1))
    candidates = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])[None, None, :, None, None].expand(1, LEADS, -1, 6, 6)
    with torch.no_grad():
        features = made.trunk(inputs(48, 48)).features[..., :6, :6]
        means = made.output(Features(features, candidates))[:, :LEADS]
    expected = float(torch.tensor(FIRST_WEIGHTS).softmax(0)[1])
    assert expected > 0.6
    assert float((means - expected).abs().max()) < 0.4


def test_candidates_are_in_the_order_of_their_weights() -> None:
    frames = torch.rand(1, INPUTS, 16, 24, generator=torch.Generator().manual_seed(0))
    x = prepare(frames, Known.nothing(frames), torch.tensor([30.0])).x
    found = network().trunk(x).candidates
    assert found.shape == (1, LEADS, KINDS_OF_CANDIDATES, 16, 24)
    for lead in range(LEADS):
        assert torch.equal(found[:, lead, 0], x[:, 0])
        assert torch.equal(found[:, lead, 1], x[:, 1 + lead])
        assert torch.equal(found[:, lead, 2], x[:, 1 + LEADS + lead])
        assert torch.equal(found[:, lead, 3], x[:, 1 + 2 * LEADS + lead])
        trend = x[:, CANDIDATES + INPUTS]
        torch.testing.assert_close(found[:, lead, 4], x[:, 1 + lead] + (lead + 1) * trend)


def test_normalisation_is_of_single_pixels() -> None:
    x = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))
    found = PixelNorm()(100 * x)
    torch.testing.assert_close(found.square().mean(1), torch.ones(2, 3, 4), atol=1e-4, rtol=0)
    torch.testing.assert_close(PixelNorm()(100 * x[..., :1]), found[..., :1])


def test_a_network_is_a_function_of_the_seed_and_its_size() -> None:
    one, other = network(seed=1), network(seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert one.config == {"width": 4, "levels": 2}
    assert sum(p.numel() for p in NowcastNetwork(8).parameters()) < 150_000
    names = [name for name, _ in one.named_parameters()]
    assert any(name.startswith("output.") for name in names)
    with pytest.raises(ValueError, match="width must be an integer of at least 1, got 0"):
        NowcastNetwork(0)


def test_gradients_reach_every_weight() -> None:
    made = network()
    made(inputs(16, 16)).square().mean().backward()
    assert all(p.grad is not None and math.isfinite(float(p.grad.abs().sum())) for p in made.parameters())
    assert all(float(p.grad.abs().sum()) > 0 for p in made.parameters() if p.grad is not None)
