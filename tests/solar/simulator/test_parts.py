"""What a frame is made of, against answers that are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from metaprior.noise import Noise
from metaprior.solar.simulator import Region, Simulator
from metaprior.solar.simulator.octaves import OCTAVES, advected, band, filtered
from metaprior.solar.simulator.region import Maps, draw_maps
from metaprior.solar.simulator.weather import (
    Clock,
    Dynamics,
    Innovations,
    State,
    clear_sky_index,
    draw,
    fog_depth,
    threshold,
    transmission,
)

TORUS = 64


def filters() -> torch.Tensor:
    return torch.stack([band(TORUS, shortest, longest) for shortest, longest, _ in OCTAVES])


def test_octaves_share_no_wavenumber_and_have_variance_one() -> None:
    parts = filters().double()
    assert ((parts > 0).sum(0) <= 1).all()
    twice = torch.full((TORUS // 2 + 1,), 2.0, dtype=torch.float64)  # columns of the other half of the plane
    twice[[0, -1]] = 1
    torch.testing.assert_close((parts.square() * twice).sum((1, 2)) / TORUS**2, torch.ones(4).double())
    fields = filtered(Noise(1).normal(torch.empty(50, TORUS, TORUS)), filters())
    assert fields.shape == (50, 4, TORUS, TORUS)
    torch.testing.assert_close(fields.var((0, 2, 3)), torch.ones(4), rtol=0.15, atol=0)


def test_a_wave_passes_the_octave_of_its_length() -> None:
    wave = torch.cos(2 * math.pi * torch.arange(TORUS) / 16).expand(TORUS, TORUS)  # 16 pixels: the third octave
    strength = filtered(wave, filters()).abs().amax((1, 2))
    assert strength[2] > 1
    assert strength[[0, 1, 3]].max() < 1e-4


def test_advection_by_whole_pixels_is_a_roll_and_by_parts_of_them_a_shift() -> None:
    fields = filtered(Noise(2).normal(torch.empty(1, TORUS, TORUS)), filters())
    whole = torch.tensor([3.0, -70.0]).expand(1, TORUS, TORUS, 2)
    torch.testing.assert_close(advected(fields, whole), fields.roll((3, -70), (2, 3)), rtol=0, atol=1e-4)
    wave = torch.arange(TORUS) * (2 * math.pi / TORUS)
    moved = advected(wave.sin().expand(1, 1, TORUS, TORUS), torch.tensor([0.3, 1.4]).expand(1, TORUS, TORUS, 2))
    shifted = (wave - 1.4 * 2 * math.pi / TORUS).sin()
    torch.testing.assert_close(moved[0, 0, 5], shifted, rtol=0, atol=4e-3)  # 0.04 pixels


def still(**numbers: float) -> Region:
    return Region(wind=(0.0, 0.0), wind_spread=0.0, wind_regime=0.0, **numbers)  # type: ignore[arg-type]


def test_without_wind_and_innovations_octaves_fade_at_their_own_rates() -> None:
    region = still()
    dynamics = Dynamics(region, draw_maps(region, TORUS, Noise()), hours=0.5)
    state = State(7, torch.ones(1, 4, TORUS, TORUS), torch.ones(1, 4))
    later = dynamics.advance(state, 0.0, Innovations(torch.zeros(1, TORUS, TORUS), torch.zeros(1, 4)))
    assert later.step == 8
    rates = [math.exp(-0.5 / hours) for _, _, hours in OCTAVES]
    torch.testing.assert_close(later.octaves[0, :, 3, 3], torch.tensor(rates))
    torch.testing.assert_close(later.regime, torch.exp(torch.tensor([[-0.5 / 36, -0.5 / 36, -0.5 / 48, -0.5 / 48]])))


def test_innovations_keep_the_variance() -> None:
    """Many continuations of nothing tend to variance 1 - a^(2n) in every octave and regime."""
    region = still()
    dynamics = Dynamics(region, draw_maps(region, TORUS, Noise()), hours=6.0)
    state = State(0, torch.zeros(64, 4, TORUS, TORUS), torch.zeros(64, 4))
    for step in range(3):
        state = dynamics.advance(state, 0.0, draw(Noise(3).at(step=step), TORUS, range(64)))
    expected = torch.tensor([1 - math.exp(-2 * 18 / hours) for _, _, hours in OCTAVES])
    torch.testing.assert_close(state.octaves.var((0, 2, 3)), expected, rtol=0.15, atol=0)
    regime = torch.tensor([1 - math.exp(-2 * 18 / hours) for hours in (36, 36, 48, 48)])
    torch.testing.assert_close(state.regime.var(0), regime, rtol=0.5, atol=0)


def test_regimes_turn_the_wind() -> None:
    region = Region(wind=(5.0, -2.0), wind_spread=0.0, wind_regime=3.0)
    dynamics = Dynamics(region, draw_maps(region, TORUS, Noise()), hours=1.0)
    state = State(0, torch.zeros(2, 4, TORUS, TORUS), torch.tensor([[0.0, 0, 9, 9], [1.0, -1.0, 9, 9]]))
    metres = dynamics.displacement(state, season=0.7)[:, 4, 4] * 5559.75 / 3600
    torch.testing.assert_close(metres, torch.tensor([[-2.0, 5.0], [1.0, 2.0]]))


def test_maps_have_the_means_and_spreads_of_the_region() -> None:
    region = Region(wind=(6.0, -3.0), wind_spread=2.0, cloudiness=0.3, cloudiness_spread=0.4)
    maps = draw_maps(region, TORUS, Noise(4))
    torch.testing.assert_close(maps.wind.mean((1, 2)), torch.tensor([-3.0, 6.0]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(maps.wind.std((1, 2)), torch.tensor([2.0, 2.0]))
    assert maps.cloudiness.mean().item() == pytest.approx(0.3, abs=1e-4)
    assert maps.cloudiness.std().item() == pytest.approx(0.4, rel=1e-4)
    torch.testing.assert_close(maps.weights.square().sum(0), torch.ones(TORUS, TORUS))
    assert maps.weights[3].std() > 0.02
    for heights in (maps.ridge, maps.valley):
        assert heights.min() == 0
        assert heights.max() == 1
    assert (maps.ridge * maps.valley).max() == 0


def flat(**fields: float) -> Maps:
    """Maps of 2 x 2 pixels that are zero but for these."""
    nothing = {name: torch.zeros(2, 2) for name in Maps._fields}
    return Maps(**{**nothing, **{name: torch.full((2, 2), value) for name, value in fields.items()}})


def regime(cloudiness: float = 0.0, fog: float = 0.0) -> State:
    return State(0, torch.zeros(1, 4, 2, 2), torch.tensor([[0.0, 0.0, cloudiness, fog]]))


def test_transmission_of_known_clouds() -> None:
    depth = torch.tensor([0.0, 1 / 0.075, 40.0], dtype=torch.float64)
    torch.testing.assert_close(transmission(depth), torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64))


def test_threshold_is_place_season_regime_and_ridges_in_the_afternoon() -> None:
    region = Region(cloudiness_regime=0.5, orography=2.0)
    maps = flat(cloudiness=0.1, cloudiness_season=0.2, ridge=0.5)
    afternoon = threshold(regime(cloudiness=3.0), region, maps, Clock(hour=15.0, season=-1.0))
    assert afternoon.flatten().tolist() == pytest.approx([0.1 - 0.2 + 1.5 + 1.0] * 4)
    winter = threshold(regime(cloudiness=3.0), region, maps, Clock(hour=15.0, season=1.0))
    assert winter.flatten().tolist() == pytest.approx([0.1 + 0.2 + 1.5] * 4)
    earlier = threshold(regime(cloudiness=3.0), region, maps, Clock(hour=12.5, season=-1.0))
    assert earlier[0, 0, 0].item() == pytest.approx(1.4 + math.exp(-0.5))


def test_fog_fills_valleys_until_it_burns_off() -> None:
    region, maps = Region(fog=20.0), flat(valley=0.5)

    def depth(hour: float, fog: float = 0.0, season: float = 1.0) -> float:
        return fog_depth(regime(fog=fog), region, maps, Clock(hour, season))[0, 0, 0].item()

    assert depth(4.0) == pytest.approx(10.0, rel=1e-4)
    assert depth(10.0) == pytest.approx(5.0)
    assert depth(11.0, fog=1.0) == pytest.approx(10.0)
    assert depth(16.0) < 1e-3
    assert depth(10.0, season=-1.0) == pytest.approx(2.5)
    assert depth(4.0, fog=-1.5) == 0.0


def test_clear_sky_index_of_an_even_texture() -> None:
    """Above the threshold by 1 everywhere: D softplus(1), and no fog."""
    maps = replace_weights(flat(cloudiness=0.4), 0.5)
    state = State(0, torch.tensor([0.5, 0.3, 0.2, 0.2])[None, :, None, None].expand(1, 4, 2, 2), torch.zeros(1, 4))
    region = replace(Region(), depth=10.0)
    index = clear_sky_index(state, region, maps, Clock(12.0, 0.0), shown=1)
    assert index.shape == (1, 1, 1)
    assert index.item() == pytest.approx(1 / (1 + 0.075 * 10 * math.log1p(math.exp(4.0)) / 4), rel=1e-5)


def replace_weights(maps: Maps, weight: float) -> Maps:
    return maps._replace(weights=torch.full((4, 2, 2), weight))


def test_seasons_are_opposite_in_the_south() -> None:
    north, south = (
        Simulator(days=1, size=4, start="2025-12-21", region=Region(latitude=latitude, longitude=30.0))
        for latitude in (40.0, -40.0)
    )
    assert north._clock(0).season == pytest.approx(1.0)
    assert south._clock(0).season == pytest.approx(-1.0)
    assert north._clock(1).hour == pytest.approx(2.5)  # half past midnight in UTC, 30 degrees east
    assert len(south.times) > len(north.times)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"latitude": 75.0}, "latitude must be -60 to 60"),
        ({"wind": (np.inf, 0.0)}, r"wind \(eastward\) of a region must be a finite number, got inf"),
        ({"fog": -1.0}, "fog of a region must be a number of at least 0, got -1.0"),
    ],
)
def test_invalid_regions_are_refused(numbers: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Region(**numbers)  # type: ignore[arg-type]
