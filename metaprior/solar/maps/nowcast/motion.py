r"""Motion between frames, and frames moved on along it.

A pattern that moves keeps its brightness, $z_{t}(x) = z_{t-1}(x - v)$. Around each pixel the flow $v$ minimises the
squared difference of both sides over a Gaussian neighbourhood (Lucas & Kanade 1981),

$$\Big(\sum_k G * \nabla z_k \nabla z_k^T + \epsilon I\Big)\,\delta
  = -\sum_k G * \nabla z_k\,(z_k - \tilde z_{k-1}),$$

where $\tilde z_{k-1}$ is the earlier frame moved by the flow found so far. Two flows are estimated. The *smooth* one
has wide neighbourhoods and all pairs of frames; the increments $\delta$ are found from coarse to fine (Bouguet 2000).
The *fine* one adds an increment of small neighbourhoods and the last pair alone. Which of them is better differs
between products and places, so both are also estimated without the last frame, and the flow that moves the frame before
closer to it has more weight.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

COARSEST = 16
"""Pixels along the shorter side of the coarsest level of the pyramid, at least."""
SMOOTH, FINE = 6.0, 1.5
"""Standard deviations of the two neighbourhoods, in pixels of a level."""
DAMPING = 0.005
"""Variance of gradients, in shares of the frames' variance, below which the flow found so far is kept."""
ROUNDS = 2
"""Increments of the smooth flow on each level."""
BACKGROUND = 64.0
"""Standard deviation, in pixels, of the large-scale brightness that is subtracted before motion is estimated: the sun
changes it."""
ROUNDING = 1e-5
"""Detail of frames, in shares of their largest value, that is only rounding."""
BAND = 192
"""Averages along an axis that are computed together."""
LARGEST_STEP = 1.5
"""Longest increment in pixels of a level: a longer one is a coincidence of a flat neighbourhood."""
SHARPNESS, TRIED_OVER = 20.0, 12.0
"""How much better a flow must be to be taken: weights are the inverse of the squared error, over a neighbourhood of
this standard deviation, to half this power."""


def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    """Return images (N, C, H, W) averaged over a Gaussian neighbourhood; beyond the edge lie copies of the edge.

    Wide averages are computed on a grid four times as coarse.
    """
    height, width = images.shape[-2:]
    if sigma >= 6 and min(height, width) >= 16:
        small = F.avg_pool2d(images, 4, ceil_mode=True, count_include_pad=False)
        return F.interpolate(
            gaussian_blur(small, sigma / 4), size=(height, width), mode="bilinear", align_corners=False
        )
    return _averaged(_averaged(images, sigma).transpose(-1, -2), sigma).transpose(-1, -2)


def _averaged(images: Tensor, sigma: float) -> Tensor:
    """Return images averaged along their last axis, by products with banded matrices, which are fast on any device."""
    length, radius = images.shape[-1], max(1, math.ceil(2.5 * sigma))
    parts = []
    for start in range(0, length, BAND):
        stop = min(start + BAND, length)
        first, last = max(0, start - radius), min(length, stop + radius)
        parts.append(images[..., first:last] @ _band(start, stop, first, last, length, sigma, radius, images))
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _band(start: int, stop: int, first: int, last: int, length: int, sigma: float, radius: int, like: Tensor) -> Tensor:
    """Return the weights (last - first, stop - start) of pixels in the averages from ``start`` to ``stop``."""
    offsets = torch.arange(-radius, radius + 1, device=like.device)
    kernel = torch.exp(-0.5 * (offsets.to(like.dtype) / sigma) ** 2)
    kernel = kernel / kernel.sum()
    columns = torch.arange(start, stop, device=like.device)
    rows = (columns[:, None] + offsets).clamp(0, length - 1) - first
    band = like.new_zeros(stop - start, last - first)
    return band.scatter_add_(1, rows, kernel.expand(stop - start, -1)).T


def _pixels(height: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.arange(height, dtype=like.dtype, device=like.device)
    x = torch.arange(width, dtype=like.dtype, device=like.device)
    return y[:, None], x


def moved(images: Tensor, displacement: Tensor) -> Tensor:
    """Return images (N, C, H, W) whose pixels come from ``displacement`` (N, 2, H, W; rows, columns) pixels before.

    Bilinear; beyond the edge lie copies of the edge.
    """
    height, width = images.shape[-2:]
    y, x = _pixels(height, width, displacement)
    rows = (y - displacement[:, 0]) * (2 / max(height - 1, 1)) - 1
    columns = (x - displacement[:, 1]) * (2 / max(width - 1, 1)) - 1
    grid = torch.stack([columns, rows], -1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=True)


def estimate_flow(frames: Tensor) -> Tensor:
    """Return the flow (N, 2, H, W) of frames (N, I, H, W), in pixels along rows and columns for each time step.

    All frames must be finite; I is at least 2. Frames without structure have no flow: it is 0 there.
    """
    detail = frames - gaussian_blur(frames, BACKGROUND)
    scale = detail.square().mean((1, 2, 3), keepdim=True).sqrt()
    least = ROUNDING * frames.abs().amax((1, 2, 3), keepdim=True)
    detail = torch.where(scale > least, detail / scale.clamp_min(torch.finfo(frames.dtype).tiny), 0.0)
    smooth = _smooth_flow(detail)
    if frames.shape[1] < 3:
        return smooth
    fine = _fine_flow(detail[:, -2:], smooth)
    earlier = _smooth_flow(detail[:, :-1])
    tried = earlier, _fine_flow(detail[:, -3:-1], earlier)
    return smooth + _share_of_second(tried, detail[:, -2:]) * (fine - smooth)


def _smooth_flow(frames: Tensor) -> Tensor:
    """Return the flow of all pairs of frames, from coarse to fine, on half the resolution: it is smooth."""
    pyramid = [frames]
    while min(pyramid[-1].shape[-2:]) >= 2 * COARSEST:
        pyramid.append(F.avg_pool2d(pyramid[-1], 2))
    finest = min(1, len(pyramid) - 1)
    flow = frames.new_zeros(len(frames), 2, *pyramid[-1].shape[-2:])
    for level in reversed(range(finest, len(pyramid))):
        flow = _enlarged(flow, pyramid[level].shape[-2:])
        for _ in range(ROUNDS):
            flow = flow + _increment(pyramid[level], flow, SMOOTH)
        flow = gaussian_blur(flow, 2.0)
    return _enlarged(flow, frames.shape[-2:])


def _enlarged(flow: Tensor, size: torch.Size) -> Tensor:
    """Return the flow of the next finer level, in its pixels."""
    if flow.shape[-2:] == size:
        return flow
    return 2 * F.interpolate(flow, size=size, mode="bilinear", align_corners=False)


def _fine_flow(pair: Tensor, flow: Tensor) -> Tensor:
    """Return the flow with an increment of small neighbourhoods, of two frames (N, 2, H, W)."""
    return gaussian_blur(flow + _increment(pair, flow, FINE), 1.0)


def _share_of_second(flows: tuple[Tensor, Tensor], pair: Tensor) -> Tensor:
    """Return the weight (N, 1, H, W) of the second of two flows by how well they lead from a frame to the next."""
    errors = torch.cat([(pair[:, 1:] - moved(pair[:, :1], flow)).square() for flow in flows], 1)
    errors = gaussian_blur(errors, TRIED_OVER) + 0.5 * errors.mean((2, 3), keepdim=True)
    errors = errors.clamp_min(torch.finfo(errors.dtype).tiny)
    return torch.softmax(-0.5 * SHARPNESS * errors.log(), 1)[:, 1:]


def _increment(images: Tensor, flow: Tensor, sigma: float) -> Tensor:
    """Return what to add to the flow so that each frame, moved by it, comes closer to the next."""
    count, pairs = len(images), images.shape[1] - 1
    before, after = images[:, :-1], images[:, 1:]
    warped = moved(before, flow)
    both = 0.5 * (warped + after)
    padded = F.pad(both, (1, 1, 1, 1), mode="replicate")
    gradient_y = 0.5 * (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1])
    gradient_x = 0.5 * (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2])
    change = after - warped
    products = torch.stack(
        [
            (gradient_y * gradient_y).sum(1),
            (gradient_x * gradient_x).sum(1),
            (gradient_y * gradient_x).sum(1),
            (gradient_y * change).sum(1),
            (gradient_x * change).sum(1),
        ],
        1,
    )
    yy, xx, yx, yt, xt = gaussian_blur(products, sigma).unbind(1)
    noise = DAMPING * pairs * images.square().mean((1, 2, 3)).reshape(count, 1, 1)
    yy, xx = yy + noise, xx + noise
    determinant = (yy * xx - yx * yx).clamp_min(torch.finfo(images.dtype).tiny)
    # after(x) = before(x - v): the residual falls along -gradient
    step = -torch.stack([xx * yt - yx * xt, yy * xt - yx * yt], 1) / determinant.unsqueeze(1)
    return step.clamp(-LARGEST_STEP, LARGEST_STEP)


def displacements(flow: Tensor, steps: int) -> Tensor:
    """Return the displacement (N, steps, 2, H, W) of what arrives after 1, ..., ``steps`` time steps.

    The flow at a place stays as it is, and air follows it: a trajectory is traced back from each pixel, one step of
    time after the other (semi-Lagrangian; Germann & Zawadzki 2002).
    """
    total = flow
    found = [total]
    for _ in range(steps - 1):
        total = total + moved(flow, total)
        found.append(total)
    return torch.stack(found, 1)


def inside(displacement: Tensor) -> Tensor:
    """Return where the air came from within the frame, as 0 or 1: (N, 2, H, W) -> (N, 1, H, W)."""
    height, width = displacement.shape[-2:]
    y, x = _pixels(height, width, displacement)
    rows, columns = y - displacement[:, 0], x - displacement[:, 1]
    within = (rows >= 0) & (rows <= height - 1) & (columns >= 0) & (columns <= width - 1)
    return within.unsqueeze(1).to(displacement.dtype)
