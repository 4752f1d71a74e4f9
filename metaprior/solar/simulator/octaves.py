r"""Random textures by octaves of scale, on a torus of pixels.

An octave contains the wavelengths $[\lambda, 2\lambda)$ of white noise $W$, filtered in Fourier space,
$f = \mathcal F^{-1}(H\,\mathcal F W)$ with $H(k) \propto |k|^{-4/3}$ inside the octave and 0 outside (the amplitudes
of a spectrum $E(k) \propto k^{-5/3}$), scaled to variance 1. Octaves share no wavenumbers, so the octaves of one white
field are independent of each other, and one field of noise gives all of them.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SLOPE = -4 / 3


OCTAVES = ((48.0, math.inf, 12.0), (24.0, 48.0, 6.0), (12.0, 24.0, 3.0), (6.0, 12.0, 1.5))
"""Shortest and longest wavelength in pixels, and the hours after which correlation has fallen to 1 / e."""


def band(torus: int, shortest: float, longest: float) -> Tensor:
    """Return the filter H (torus, torus // 2 + 1) that scales these wavelengths of white noise to variance 1."""
    frequencies = torch.fft.fftfreq(torus, dtype=torch.float64)
    wavenumber = torch.hypot(frequencies[:, None], frequencies)  # cycles per pixel, on the whole plane
    inside = (wavenumber * shortest <= 1) & (wavenumber * longest > 1) & (wavenumber > 0)
    amplitude = torch.where(inside, wavenumber.clamp_min(1 / torus) ** SLOPE, 0.0)
    amplitude /= amplitude.square().mean().sqrt()
    return amplitude[:, : torus // 2 + 1].float()


def filtered(white: Tensor, filters: Tensor) -> Tensor:
    """Return white noise (..., M, M) after the filters (O, M, M // 2 + 1): (..., O, M, M)."""
    spectrum = torch.fft.rfft2(white).unsqueeze(-3)
    fields: Tensor = torch.fft.irfft2(spectrum * filters, s=white.shape[-2:])
    return fields


def advected(fields: Tensor, displacement: Tensor) -> Tensor:
    """Return fields (C, O, M, M) moved over the torus by the displacement (C, M, M, 2), in pixels along y and x.

    Semi-Lagrangian: a pixel takes the value at the place where its air was one step before, by bicubic interpolation.
    """
    torus = fields.shape[-1]
    pixels = torch.arange(torus, dtype=fields.dtype)
    y = (pixels[:, None] - displacement[..., 0]) % torus
    x = (pixels - displacement[..., 1]) % torus
    # The cubic needs two pixels of the opposite side at each edge; -1 and 1 are then the outermost ones.
    padded = F.pad(fields, (2, 2, 2, 2), mode="circular")
    grid = (torch.stack([x, y], -1) + 2) * (2 / (torus + 3)) - 1
    return F.grid_sample(padded, grid, mode="bicubic", padding_mode="border", align_corners=True)
