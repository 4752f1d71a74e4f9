r"""Cloud textures that live and drift: Gaussian fields on a torus of pixels, evolved in Fourier space.

A wavenumber $k$ (cycles per pixel) of a field of unit variance has the power $(k_s^2 + k_o^2)^{-s/2}$, with $k_o$ one
over the outer scale and $k_s$ the wavenumber stretched along one direction. From a frame to the next, $\Delta t$ hours
later, in the frame that moves with the mean wind,

$$F \leftarrow a F + \sqrt{1 - a^2}\;W, \qquad a = e^{-\Delta t / \tau}, \qquad
  \tau = \tau_0\,(\lambda / 30\,\mathrm{km})^p,$$

so long waves live longer. Textures that are smooth in time have this factor twice (an autoregression of order two).
The mean wind is a shift of phase, which loses nothing.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from metaprior.solar.simulator.worlds.parameters import Layer

LIFETIME_KM = 30.0
HALF_NORMAL = (math.sqrt(2 / math.pi), math.sqrt(1 - 2 / math.pi))
"""Mean and standard deviation of the size of a standard normal number."""


def wavenumbers(torus: int) -> tuple[Tensor, Tensor]:
    """Return wavenumbers in cycles per pixel along y (M, 1) and x (M // 2 + 1) of the half plane of real fields."""
    return torch.fft.fftfreq(torus)[:, None], torch.fft.rfftfreq(torus)


def amplitude(torus: int, slope: float, outer: float, stretch: float = 1.0, direction: float = 0.0) -> Tensor:
    """Return the filter (M, M // 2 + 1) that gives white noise a power law of unit variance; lengths in pixels."""
    ky, kx = wavenumbers(torus)
    along = (kx * math.cos(direction) + ky * math.sin(direction)) * stretch
    across = (ky * math.cos(direction) - kx * math.sin(direction)) / stretch
    power = (along.square() + across.square() + outer**-2) ** (-slope / 2)
    power[0, 0] = 0.0
    power[torus // 2] = power[:, -1] = 0.0  # waves of two pixels cannot be shifted
    power[:, 0] *= 2.0  # of white noise on the half plane, half the power of this column is lost
    kept = power.clone()
    kept[:, 1:] *= 2.0
    kept[:, 0] *= 0.5
    result: Tensor = (power / kept.sum()).sqrt() * torus
    return result


def white(days: int, torus: int, generator: torch.Generator) -> Tensor:
    """Return white noise of unit variance on the half plane, complex (D, M, M // 2 + 1)."""
    return torch.randn(days, torus, torus // 2 + 1, dtype=torch.complex64, generator=generator)


def evolution(
    layer: Layer, hours: float, pixel_km: float, shape: tuple[int, int], noise: torch.Generator
) -> Iterator[Tensor]:
    """Iterate over white noise (D, M, M // 2 + 1) that changes from frame to frame as the waves of the layer do.

    Args:
        layer: Its lifetimes.
        hours: Time between frames.
        pixel_km: Kilometres of a pixel.
        shape: Days and pixels of the torus.
        noise: Generator of the innovations.
    """
    days, torus = shape
    now = white(days, torus, noise)
    if not math.isfinite(layer.lifetime):
        while True:
            yield now
    ky, kx = wavenumbers(torus)
    wavelength = pixel_km / torch.hypot(ky, kx).clamp_min(1 / torus)
    rate = hours / (layer.lifetime * (wavelength / LIFETIME_KM) ** layer.lifetime_power)
    if not layer.smooth_in_time:
        keep = torch.exp(-rate)
        fresh = (1 - keep.square()).sqrt()
        while True:
            yield now
            now = (now * keep).add_(white(days, torus, noise).mul_(fresh))
    keep = torch.exp(-2 * rate)  # twice in a row: as long a life
    first = 2 * keep / (1 + keep.square())
    fresh = ((1 - keep.square()) ** 3 / (1 + keep.square())).sqrt()
    before = now
    now = before * first + white(days, torus, noise) * (1 - first.square()).sqrt()
    twice, square = 2 * keep, keep.square()
    while True:
        yield before
        before, now = now, (now * twice).sub_(before * square).add_(white(days, torus, noise).mul_(fresh))


def textures(
    layer: Layer, hours: float, pixel_km: float, shifts: Tensor, torus: int, noise: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """Return the texture of a layer and the field that makes it patchy (None without), each (D, T, M, M).

    Args:
        layer: Its spectrum, texture and lifetimes.
        hours: Time between frames.
        pixel_km: Kilometres of a pixel.
        shifts: Displacement of each frame by the mean wind, in pixels along y and x, (D, T, 2).
        torus: Pixels of the torus.
        noise: Generator of the fields.
    """
    days = len(shifts)
    ky, kx = wavenumbers(torus)
    angle = -2 * math.pi * (shifts[..., 0, None, None] * ky + shifts[..., 1, None, None] * kx)
    phase = torch.polar(torch.ones(()), angle)  # (D, T, M, M // 2 + 1)
    outer = max(layer.outer_km / pixel_km, 3.0)
    shape = amplitude(torus, layer.slope, outer, layer.stretch, layer.direction)
    field = _fields(evolution(layer, hours, pixel_km, (days, torus), noise), shape, phase)
    second = None
    if layer.patchiness > 0 or layer.texture != "plain":
        shape = amplitude(torus, layer.slope + 0.7, 2 * outer, layer.stretch, layer.direction)
        second = _fields(evolution(layer, hours, pixel_km, (days, torus), noise), shape, phase)
    if layer.texture != "plain" and second is not None:
        mean, deviation = HALF_NORMAL
        folded = field.abs_().sub_(mean).div_(deviation)
        field = folded.mul_(-0.8 if layer.texture == "ridged" else 0.8).add_(second, alpha=0.6)
    return field, second if layer.patchiness > 0 else None


def _fields(noise: Iterator[Tensor], shape: Tensor, phase: Tensor) -> Tensor:
    torus = shape.shape[0]
    spectra = (next(noise) * (phase[:, frame] * shape) for frame in range(phase.shape[1]))
    return torch.stack([torch.fft.irfft2(spectrum, s=(torus, torus), norm="ortho") for spectrum in spectra], 1)
