"""Inputs of the network: free of units, finite whatever is missing, and of nothing but frames and what is known."""

import math

import pytest
import torch
from torch import Tensor

from metaprior.solar.maps.nowcast.inputs import (
    CANDIDATES,
    CHANNELS,
    INPUTS,
    LARGEST_LIGHT,
    LEADS,
    LEAST_LIGHT,
    MAPS,
    SCALARS,
    Known,
    Light,
    Prepared,
    filled,
    prepare,
)
from metaprior.solar.maps.nowcast.motion import displacements, estimate_flow, moved
from metaprior.solar.simulator.worlds import draw_world

LIT, STILL_LIT = slice(1 + LEADS, 1 + 2 * LEADS), slice(1 + 2 * LEADS, CANDIDATES)
ARCHIVE = slice(CANDIDATES + MAPS - (LEADS + 2) - 4, CANDIDATES + MAPS - 4)
SUN = slice(CANDIDATES + MAPS - 4, CANDIDATES + MAPS)
PRESENT = ARCHIVE.start - 1
MINUTES = torch.tensor([15.0])


@pytest.fixture(scope="module")
def window() -> tuple[Tensor, Known]:
    """Return a window of irradiance, in float64, with the sun and two earlier days."""
    worlds = (draw_world(seed, size=32, days=3, frames=8, kind="irradiance", cadence=15) for seed in range(20))
    world = next(one for one in worlds if one.sine.min() > 0.2 and not torch.from_numpy(one.values).isnan().any())
    values = torch.from_numpy(world.values).double()
    sine = torch.from_numpy(world.sine).double()
    earlier = values[:2]
    known = Known(sine[2:], earlier.mean(0, keepdim=True), earlier.amin((0, 1))[None])
    return values[2:, :INPUTS], known


def prepared(frames: Tensor, known: Known | None = None) -> Prepared:
    return prepare(frames, known or Known.nothing(frames), MINUTES.expand(len(frames)))


def test_inputs_have_their_channels_and_units(window: tuple[Tensor, Known]) -> None:
    frames, known = window
    found = prepared(frames, known)
    assert found.x.shape == (1, CHANNELS, 32, 32)
    assert found.loc.shape == found.scale.shape == (1, 1, 1, 1)
    assert CHANNELS == CANDIDATES + MAPS + SCALARS
    assert float(found.loc) == pytest.approx(float(frames.mean()))
    last = found.loc + found.scale * found.x[:, :1]
    torch.testing.assert_close(last, frames[:, -1:])
    scalars = found.x[:, -SCALARS:]
    torch.testing.assert_close(scalars, scalars[:, :, :1, :1].expand_as(scalars))
    spread = frames.std(correction=0)
    assert float(scalars[0, 0, 0, 0]) == pytest.approx(math.log(float(found.scale / spread)))
    assert float(scalars[0, -1, 0, 0]) == 0  # 15 minutes


def test_candidates_are_the_last_frame_and_where_it_moves(window: tuple[Tensor, Known]) -> None:
    frames, _ = window
    found = prepared(frames)
    paths = displacements(estimate_flow((frames - found.loc) / frames.std(correction=0)), LEADS)
    warped = torch.cat([moved(frames[:, -1:], paths[:, lead]) for lead in range(LEADS)], 1)
    torch.testing.assert_close(found.loc + found.scale * found.x[:, 1 : 1 + LEADS], warped)
    torch.testing.assert_close(found.x[:, LIT], found.x[:, 1 : 1 + LEADS])  # without the sun, light stays
    torch.testing.assert_close(found.x[:, STILL_LIT], found.x[:, :1].expand(-1, LEADS, -1, -1))


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**20])
def test_a_power_of_two_as_unit_changes_no_bit(window: tuple[Tensor, Known], factor: float) -> None:
    frames, known = (window[0].float(), Known(*(part.float() for part in window[1])))
    for what in (None, known):
        scaled = what and Known(what.sine, factor * what.typical, factor * what.darkest)
        one, other = prepared(frames, what), prepared(factor * frames, scaled)
        assert torch.equal(other.x, one.x)
        assert torch.equal(other.loc, factor * one.loc)
        assert torch.equal(other.scale, factor * one.scale)


@pytest.mark.parametrize(("factor", "offset"), [(0.37, 0.0), (1.0, 500.0), (1300.0, 77.0)])
def test_units_do_not_matter_without_light(window: tuple[Tensor, Known], factor: float, offset: float) -> None:
    frames, _ = window
    one, other = prepared(frames), prepared(factor * frames + offset)
    torch.testing.assert_close(other.x, one.x, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(other.loc, factor * one.loc + offset)
    torch.testing.assert_close(other.scale, factor * one.scale)


def test_an_offset_changes_only_what_depends_on_darkness(window: tuple[Tensor, Known]) -> None:
    frames, known = window
    moved_up = Known(known.sine, known.typical + 300, known.darkest + 300)
    one, other = prepared(frames, known), prepared(frames + 300, moved_up)
    different = (one.x - other.x).abs().amax((0, 2, 3)) > 1e-6
    lit_errors = {CANDIDATES + MAPS + 4, CANDIDATES + MAPS + 5}
    assert {*torch.nonzero(different).flatten().tolist()} <= {*range(LIT.start, STILL_LIT.stop), *lit_errors}


@pytest.mark.parametrize("power", [0.0, 0.6, 1.0, 1.5])
def test_the_moved_frame_follows_the_light_as_brightness_has_followed_the_sun(power: float) -> None:
    sine = torch.linspace(0.8, 0.1, INPUTS + LEADS)[None, :, None, None].expand(1, -1, 16, 16)
    light = (sine + LEAST_LIGHT) ** power
    still = torch.full((16, 16), 100.0)
    still[::4, ::3] = 130.0
    brightness = still * light / light[:, INPUTS - 1 : INPUTS]
    frames = brightness[:, :INPUTS].contiguous()
    found = prepared(frames, Known(sine, *Known.nothing(frames)[1:]))
    lit = found.loc + found.scale * found.x[:, LIT]
    within = 0.12 if power == 0 else 0.06  # a prior of 1 holds the power a little
    torch.testing.assert_close(lit.mean((2, 3)), brightness[:, INPUTS:].mean((2, 3)), rtol=within, atol=0.0)
    smart = found.loc + found.scale * found.x[:, STILL_LIT]
    torch.testing.assert_close(smart, brightness[:, INPUTS:], rtol=within, atol=0.0)


def test_a_window_of_one_value_has_finite_inputs_in_changing_light() -> None:
    frames = torch.full((1, INPUTS, 16, 16), 100.0)
    sine = torch.linspace(0.1, 0.8, INPUTS + LEADS)[None, :, None, None].expand(1, -1, 16, 16)
    found = prepared(frames, Known(sine, *Known.nothing(frames)[1:]))
    assert float(found.x.abs().max()) <= LARGEST_LIGHT * 1.001


def test_light_of_earlier_days_is_used_without_the_sun() -> None:
    frames = torch.rand(1, INPUTS, 20, 20, generator=torch.Generator().manual_seed(0))
    brightness = torch.linspace(1.0, 0.5, INPUTS + LEADS)[None, :, None, None].expand(1, -1, 20, 20)
    unknown = Known.nothing(frames)
    light = Light.of(unknown._replace(typical=brightness), frames)
    least = 0.05 * float(frames.mean())
    torch.testing.assert_close(light.level, brightness + least, atol=1e-4, rtol=1e-4)
    assert torch.equal(Light.of(unknown, frames).level, torch.ones(1, INPUTS + LEADS, 20, 20))
    assert float(Light.of(unknown, frames - 5).floor) == float(frames.min() - 5)
    assert float(Light.of(unknown, frames).floor) == 0


def test_missing_values_are_filled_from_earlier_then_later_frames_then_the_mean() -> None:
    frames = torch.tensor([[1.0, math.nan, math.nan, 4.0], [math.nan, 6.0, math.nan, math.nan], [math.nan] * 4])
    values, present = filled(frames.T.reshape(1, 4, 1, 3))
    assert values[0, :, 0, 0].tolist() == [1, 1, 1, 4]
    assert values[0, :, 0, 1].tolist() == [6, 6, 6, 6]
    assert values[0, :, 0, 2].tolist() == pytest.approx([11 / 3] * 4)
    assert present[0, :, 0, 0].tolist() == [1, 0, 0, 1]
    whole = torch.ones(1, 4, 2, 2)
    assert torch.equal(filled(whole)[0], whole)


def test_missing_values_are_marked_and_infinite_ones_are_missing(window: tuple[Tensor, Known]) -> None:
    frames, known = window
    holed = frames.clone()
    holed[:, -1, 3:9, 10:20] = math.nan
    holed[:, -1, 0, 0] = math.inf
    found = prepared(holed, known).x
    marked = found[0, PRESENT] == 0
    assert torch.equal(marked, ~holed[0, -1].isfinite())
    assert torch.isfinite(found).all()


def test_what_is_not_known_is_zero_beside_a_mark(window: tuple[Tensor, Known]) -> None:
    frames, known = window
    nothing, everything = prepared(frames).x, prepared(frames, known).x
    for part in (ARCHIVE, SUN):
        assert nothing[:, part].abs().max() == 0
        assert everything[:, part.stop - 1].min() == 1
        assert everything[:, part].abs().amax((0, 2, 3)).min() > 0
    sine = known.sine[0, [INPUTS - 1, INPUTS - 1 + LEADS // 2, INPUTS - 1 + LEADS]]
    torch.testing.assert_close(everything[0, SUN][:3], sine)


def awkward() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    usual = torch.rand(1, INPUTS, 24, 24, generator=generator)
    holes = torch.where(torch.rand(usual.shape, generator=generator) < 0.4, math.nan, usual)
    lost_last = usual.clone()
    lost_last[:, -1] = math.nan
    one_pixel = torch.full_like(usual, math.nan)
    one_pixel[0, 1, 3, 4] = 7.0
    steps = torch.arange(4.0)[None, :, None, None].expand_as(usual)
    return {
        "holes": holes,
        "no last frame": lost_last,
        "one value": one_pixel,
        "nothing": torch.full_like(usual, math.nan),
        "zeros": torch.zeros_like(usual),
        "constant": torch.full_like(usual, 255.0),
        "steps": steps.contiguous(),
        "tiny": 1e-12 * usual,
        "huge": 1e12 * usual,
        "negative": usual - 300,
        "far from zero": usual * 0.01 + 300,
        "one dot": torch.where(torch.arange(24 * 24).reshape(24, 24) == 77, 255.0, 0.0).expand_as(usual).contiguous(),
    }


@pytest.mark.parametrize("name", list(awkward()))
def test_inputs_are_finite_whatever_the_frames(name: str) -> None:
    frames = awkward()[name]
    generator = torch.Generator().manual_seed(1)
    sine = torch.rand(1, INPUTS + LEADS, 24, 24, generator=generator) * 2 - 1
    typical = frames.nanmean() + torch.rand(1, INPUTS + LEADS, 24, 24, generator=generator)
    parts = torch.where(torch.rand(typical.shape, generator=generator) < 0.3, math.nan, typical)
    unknown = Known.nothing(frames)
    for known in (
        unknown,
        Known(sine, typical, typical[:, 0]),
        Known(unknown.sine, parts, parts[:, 0]),
        Known(-torch.ones_like(sine), torch.zeros_like(typical), unknown.darkest),
    ):
        found = prepared(frames, known)
        assert all(torch.isfinite(part).all() for part in found), name
        assert (found.scale > 0).all()


def test_worlds_with_gaps_give_finite_inputs() -> None:
    for seed in range(40):
        values = torch.from_numpy(draw_world(seed, size=24, days=1, frames=4).values)
        if values.isnan().any():
            found = prepared(values)
            assert all(torch.isfinite(part).all() for part in found)


def test_windows_of_a_batch_do_not_see_each_other(window: tuple[Tensor, Known]) -> None:
    frames, known = window
    other = torch.rand_like(frames)
    other[:, 2, 3:, 4:] = math.nan
    unknown = Known.nothing(other)
    both = Known(*(torch.cat(parts) for parts in zip(known, unknown, strict=True)))
    found = prepare(torch.cat([frames, other]), both, torch.tensor([15.0, 60.0]))
    for number, alone in enumerate([prepared(frames, known), prepare(other, unknown, torch.tensor([60.0]))]):
        torch.testing.assert_close(found.x[number], alone.x[0])
        torch.testing.assert_close(found.scale[number], alone.scale[0])


@pytest.mark.parametrize("shape", [(1, INPUTS - 1, 8, 8), (INPUTS, 8, 8)])
def test_another_number_of_frames_raises(shape: tuple[int, ...]) -> None:
    unknown = Known.nothing(torch.zeros(1, INPUTS, 8, 8))
    with pytest.raises(ValueError, match=r"frames must have the shape \(N, 4, H, W\), got"):
        prepare(torch.zeros(shape), unknown, MINUTES)


def test_a_gap_in_earlier_days_is_not_darkness() -> None:
    frames = 1 + torch.rand(1, INPUTS, 24, 24, generator=torch.Generator().manual_seed(0))
    typical = torch.full((1, INPUTS + LEADS, 24, 24), 1.5)
    typical[:, INPUTS + 1] = math.nan
    found = prepared(frames, Known.nothing(frames)._replace(typical=typical, darkest=typical[:, 0]))
    lit = found.loc + found.scale * found.x[:, LIT]
    assert float(lit[:, 1].mean()) == pytest.approx(1.5, rel=0.2)


def test_inputs_draw_no_random_numbers_and_leave_frames_as_they_are(window: tuple[Tensor, Known]) -> None:
    frames, known = window[0].clone(), window[1]
    holed = frames.clone()
    holed[:, 0, :4] = math.nan
    before = holed.clone()
    torch.manual_seed(0)
    first = prepared(holed, known).x
    torch.manual_seed(1)
    assert torch.equal(prepared(holed, known).x, first)
    assert torch.equal(holed.nan_to_num(-1), before.nan_to_num(-1))


def test_a_large_offset_is_no_light(window: tuple[Tensor, Known]) -> None:
    frames, known = window
    nothing = Known.nothing(frames)
    sun = known._replace(typical=nothing.typical, darkest=nothing.darkest)
    far = prepared(1e6 + frames, sun)
    still, lit = (far.x[:, 1 : 1 + LEADS], far.x[:, LIT])
    plain = prepared(frames)
    torch.testing.assert_close(still, plain.x[:, 1 : 1 + LEADS], rtol=1e-4, atol=1e-4)
    assert float((lit - still).abs().max()) < 2  # 100 were it light
