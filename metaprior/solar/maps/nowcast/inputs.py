r"""What the network sees of a window, and the units of its forecasts.

Everything is measured by the window itself: values $v$ are centred by the mean $c$ of the input frames and divided by
their standard deviation $S$, and errors are measured by $e$, the root mean squared error with which the flow leads from
each input frame to the next (at least ``LEAST_ERROR`` S). The network forecasts $y = (v - c) / e$: a target of 1
differs from the mean by what the flow is usually wrong in one time step. So a network trained on other products,
cadences and units knows how predictable this one is.

Candidates for each lead time are among the inputs, in units of y: the last frame, the last frame moved along the flow,
and the moved frame in the light of the target time,

$$\ell_l = f + (w_l - f)\,\frac{s_l}{s_0(x - d_l)},$$

where $w_l$ is the moved frame, $d_l$ its displacement, $f$ the value of darkness (0, or the least value if it is
negative) and $s$ the light. Where the sun's elevation is known, light is its sine to the power with which the window's
brightness has followed it (irradiance feels a low sun more, thermal radiation not at all); or else it is the mean of
the archive's earlier days at the same time of day. The last frame in the light of the target without any motion is the
fourth. The network adds the fifth, $w_l + l\,T$ with the trend T of the brightness.

Missing values of input frames are filled with the pixel's latest earlier value, or else its earliest later one, or else
the mean; a channel marks them. What is not known (sun, earlier days) is zero in its channels, beside a channel that
says so.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.solar.maps.nowcast.motion import displacements, estimate_flow, gaussian_blur, inside, moved

INPUTS, LEADS = 4, 4
"""Numbers of frames that are seen and forecast."""
LEAST_ERROR = 0.03
"""Least unit of errors, in standard deviations of the values."""
LEAST_LIGHT = 0.03
"""Light that is added to the sine of the sun's elevation: a ratio of two low suns would be one of errors."""
CLOUDS_CHANGE, LARGEST_RESPONSE = 0.01, 2.0
"""Squared change of a frame's mean brightness by clouds, as far as the sun's effect is judged, and the largest power of
the sun's light that is believed."""
LIGHT_CONTRAST = 0.01
"""Standard deviation in shares of the mean from which values are taken for light."""
LARGEST_RATIO = 8.0
"""Largest factor by which light changes a candidate."""
FULL_LIGHT = 0.15
"""Light in which a frame has full weight when the sun's effect is judged: night tells nothing about it."""
LARGEST_LIGHT = 100.0
"""Largest change of a candidate by light, in units of y: a window of one value has no unit to speak of."""
LARGEST_INPUT = 8.0
"""Largest absolute value of an input channel, except candidates."""
NEAR, WIDE = 3.0, 12.0
"""Standard deviations in pixels of the neighbourhoods over which errors and trends are averaged."""

CANDIDATES = 1 + 3 * LEADS
"""Channels of candidates: the last frame, moved frames, both in the light of the target."""
SCALARS = 9
"""Channels that have one value for the whole window, behind all others."""
MAPS = (INPUTS - 1) + 2 + 4 + 2 + 1 + 1 + (LEADS + 2) + 4
CHANNELS = CANDIDATES + MAPS + SCALARS


class Known(NamedTuple):
    """What is known beside the frames, NaN where it is not.

    ``sine`` (N, I + L, H, W) is that of the sun's elevation at the times of inputs and targets; ``typical`` (N, I + L,
    H, W) is the mean of the archive's earlier days at these times of day; ``darkest`` (N, H, W) their least value.
    """

    sine: Tensor
    typical: Tensor
    darkest: Tensor

    @staticmethod
    def nothing(frames: Tensor) -> "Known":
        """Return that nothing is known beside these frames (N, I, H, W)."""
        count, _, height, width = frames.shape
        unknown = frames.new_full((count, INPUTS + LEADS, height, width), torch.nan)
        return Known(unknown, unknown, unknown[:, 0])


class Prepared(NamedTuple):
    """Inputs of the network (N, CHANNELS, H, W), and loc and scale (N, 1, 1, 1) of ``value = loc + scale * y``."""

    x: Tensor
    loc: Tensor
    scale: Tensor


def prepare(frames: Tensor, known: Known, minutes: Tensor) -> Prepared:
    """Return the network's inputs for windows of frames (N, I, H, W) with NaN where values are missing.

    Args:
        frames: Values in any units.
        known: What is known beside the frames.
        minutes: Time between frames, (N,).

    Raises:
        ValueError: Frames have another number of inputs.
    """
    if frames.ndim != 4 or frames.shape[1] != INPUTS:
        raise ValueError(f"frames must have the shape (N, {INPUTS}, H, W), got {tuple(frames.shape)}")
    values, present = filled(frames)
    known = known._replace(typical=_every_time(known.typical))
    loc = values.mean((1, 2, 3), keepdim=True)
    spread = (values - loc).square().mean((1, 2, 3), keepdim=True).sqrt()
    spread = spread.clamp_min(1e-6 * loc.abs().clamp_min(1e-30))
    z = (values - loc) / spread
    flow = estimate_flow(z)
    paths = displacements(flow, LEADS)
    last = z[:, -1:]
    warped = torch.cat([moved(last, paths[:, lead]) for lead in range(LEADS)], 1)
    changes = torch.cat([z[:, k : k + 1] - moved(z[:, k - 1 : k], flow) for k in range(1, INPUTS)], 1)
    unit = changes.square().mean((1, 2, 3), keepdim=True).sqrt().clamp_min(LEAST_ERROR)
    light = Light.of(known, values)
    dark = (light.floor - loc) / spread
    ratio = torch.cat([light.ratio(paths[:, lead], INPUTS - 1, INPUTS + lead) for lead in range(LEADS)], 1)
    most = LARGEST_LIGHT * unit
    still = torch.zeros_like(flow)
    ratio_still = torch.cat([light.ratio(still, INPUTS - 1, INPUTS + lead) for lead in range(LEADS)], 1)
    lit, still_lit = (
        frame + torch.clamp((factor - 1) * (frame - dark), -most, most)
        for frame, factor in ((warped, ratio), (last, ratio_still))
    )
    errors = _hindcast_errors(z, paths, light, dark)
    candidates = torch.cat([last, warped, lit, still_lit], 1) / unit
    maps = [
        z[:, :-1],
        _trends(changes) / unit,
        changes[:, -1:] / unit,
        *(gaussian_blur(error.abs(), NEAR) / unit for error in (changes[:, -1:], errors.two_steps, errors.still)),
        flow / 2,
        torch.stack([inside(paths[:, lead]) for lead in range(LEADS)]).mean(0),
        present[:, -1:],
        _archive_maps(known, loc, spread),
        _sun_maps(known.sine),
    ]
    scalars = torch.cat([unit.log(), *_scalars(changes, errors, unit), _pace(minutes, unit)], 1)
    limited = torch.cat(maps, 1).clamp(-LARGEST_INPUT, LARGEST_INPUT)
    constant = scalars.clamp(-LARGEST_INPUT, LARGEST_INPUT).expand(-1, -1, *frames.shape[-2:])
    return Prepared(torch.cat([candidates, limited, constant], 1), loc, spread * unit)


def filled(frames: Tensor) -> tuple[Tensor, Tensor]:
    """Return frames without missing values, and where values are present, as 0 or 1."""
    present = frames.isfinite()
    if bool(present.all()):
        return frames, torch.ones_like(frames)
    mean = torch.where(present, frames, torch.zeros_like(frames)).sum((1, 2, 3)) / present.sum((1, 2, 3)).clamp_min(1)
    values = list(frames.unbind(1))
    for order in (range(1, len(values)), range(len(values) - 2, -1, -1)):
        for k in order:
            neighbour = values[k - 1] if order.step > 0 else values[k + 1]
            values[k] = torch.where(values[k].isfinite(), values[k], neighbour)
    stacked = torch.stack(values, 1)
    return torch.where(stacked.isfinite(), stacked, mean[:, None, None, None]), present.to(frames.dtype)


def _every_time(typical: Tensor) -> Tensor:
    """Return typical frames (N, T, H, W); a time that no earlier day has is that of the nearest time that one has."""
    there = typical.isfinite().flatten(2).any(2)
    if bool((there.all(1) | ~there.any(1)).all()):
        return typical
    times = torch.arange(typical.shape[1], device=typical.device)
    apart = (times[:, None] - times).abs().to(typical.dtype)
    nearest = torch.where(there[:, None], apart, torch.full_like(apart, torch.inf)).argmin(2)
    return typical.gather(1, nearest[:, :, None, None].expand_as(typical))


class Light(NamedTuple):
    """Light (N, I + L, H, W) in any unit, 1 where it is unknown; ``floor`` (N, 1, 1, 1) is the value of darkness."""

    level: Tensor
    floor: Tensor

    @staticmethod
    def of(known: Known, values: Tensor) -> "Light":
        """Return the light by the sun where it is known, or else by the archive's earlier days."""
        floor = values.amin((1, 2, 3), keepdim=True).clamp_max(0.0)
        sun = known.sine.clamp_min(0.0) + LEAST_LIGHT
        by_sun = sun ** _response(sun[:, :INPUTS], values - floor)
        present = known.typical.isfinite()
        typical = torch.where(present, known.typical, floor)
        share = gaussian_blur(present.to(values.dtype), WIDE / 2).clamp_min(0.05)
        above = gaussian_blur(typical - floor, WIDE / 2) / share
        least = 0.05 * (values - floor).mean((1, 2, 3), keepdim=True)
        by_days = torch.where(present.any(1, keepdim=True), above.clamp_min(0.0) + least, torch.ones_like(above))
        days = torch.where(present.flatten(1).any(1).reshape(-1, 1, 1, 1), by_days, torch.ones_like(by_days))
        return Light(torch.where(by_sun.isfinite(), by_sun, days), floor)

    def ratio(self, displacement: Tensor, before: int, after: int) -> Tensor:
        """Return the light at one time over that at an earlier time where the air came from, (N, 1, H, W)."""
        then = moved(self.level[:, before : before + 1], displacement)
        tiny = torch.finfo(then.dtype).tiny
        return (self.level[:, after : after + 1] / then.clamp_min(tiny)).clamp(0.0, LARGEST_RATIO)


def _response(sun: Tensor, above: Tensor) -> Tensor:
    """Return the power (N, 1, 1, 1) of the sun's light with which the brightness of the window has changed.

    It is 1 where the sun hardly changes: the slope of a line through the logarithms of the frames' means, held to 1 by
    a prior that corresponds to clouds that change the mean by some per cent. Frames by night have no weight. Where
    values vary by less than a per cent of their mean, most of it is no light, and the line is held to 0.
    """
    seen, light = above.mean((2, 3)), sun.mean((2, 3))
    weight = ((light - LEAST_LIGHT) / FULL_LIGHT).clamp(1e-6, 1.0)
    weight = weight / weight.sum(1, keepdim=True)
    x, y = light.log(), seen.clamp_min(0.01 * seen.amax(1, keepdim=True).clamp_min(1e-30)).log()
    x, y = (one - (weight * one).sum(1, keepdim=True) for one in (x, y))
    held = CLOUDS_CHANGE / INPUTS
    contrast = above.std((1, 2, 3)) / above.mean((1, 2, 3)).clamp_min(1e-30)
    usual = (contrast / LIGHT_CONTRAST).clamp_max(1.0).square()
    slope = ((weight * x * y).sum(1) + held * usual) / ((weight * x * x).sum(1) + held)
    return slope.clamp(0.0, LARGEST_RESPONSE).reshape(-1, 1, 1, 1)


class Errors(NamedTuple):
    """Errors (N, 1, H, W) of forecasts of the last frame from earlier ones."""

    two_steps: Tensor
    three_steps: Tensor
    still: Tensor
    in_light: Tensor
    still_in_light: Tensor


def _hindcast_errors(z: Tensor, paths: Tensor, light: Light, dark: Tensor) -> Errors:
    last, first = z[:, -1:], z[:, -4:-3]
    three = moved(first, paths[:, 2])
    lit, still_lit = (
        light.ratio(path, INPUTS - 4, INPUTS - 1) * (frame - dark) + dark
        for path, frame in ((paths[:, 2], three), (torch.zeros_like(paths[:, 2]), first))
    )
    return Errors(
        last - moved(z[:, -3:-2], paths[:, 1]), last - three, last - z[:, -2:-1], last - lit, last - still_lit
    )


def _trends(changes: Tensor) -> Tensor:
    """Return how brightness changes in a time step as it moves: over near and over wide neighbourhoods."""
    recent = changes[:, -2:].mean(1, keepdim=True)
    return torch.cat([gaussian_blur(recent, NEAR), gaussian_blur(recent, WIDE)], 1)


def _rms(values: Tensor) -> Tensor:
    return values.square().mean((1, 2, 3), keepdim=True).sqrt()


def _scalars(changes: Tensor, errors: Errors, unit: Tensor) -> list[Tensor]:
    least = 0.2 * LEAST_ERROR
    two, three, still, lit, still_lit = (_rms(error).clamp_min(least) for error in errors)
    before, now = (changes[:, -2:].mean((2, 3), keepdim=True) / unit).split(1, 1)
    by_light = [2 * (error / three).log() for error in (lit, still_lit)]
    return [(two / unit).log(), (three / unit).log(), (still / unit).log(), *by_light, now, before]


def _pace(minutes: Tensor, like: Tensor) -> Tensor:
    return (minutes.to(like) / 15).log2().reshape(-1, 1, 1, 1) / 2


def _archive_maps(known: Known, loc: Tensor, spread: Tensor) -> Tensor:
    """Return the darkest value, the usual changes until each target, and whether they are known."""
    usual = gaussian_blur(torch.nan_to_num(known.typical - loc) / spread, NEAR)
    change = usual[:, INPUTS:] - usual[:, INPUTS - 1 : INPUTS]
    darkest = (known.darkest.unsqueeze(1) - loc) / spread
    there = darkest.isfinite()
    parts = [
        torch.where(there, darkest, torch.zeros_like(darkest)),
        torch.where(there, change, torch.zeros_like(change)),
    ]
    return torch.cat([*parts, there.to(loc.dtype)], 1)


def _sun_maps(sine: Tensor) -> Tensor:
    """Return the sine of the sun's elevation now, in the middle and at the end, and whether it is known."""
    some = sine[:, [INPUTS - 1, INPUTS - 1 + LEADS // 2, INPUTS - 1 + LEADS]]
    there = some.isfinite().all(1, keepdim=True)
    return torch.cat([torch.where(there, some, torch.zeros_like(some)), there.to(sine.dtype)], 1)
