"""The flow between frames, and frames moved on along it, against answers that are known."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.solar.optical_flow import optical_flow
from metaprior.solar.maps.nowcast.motion import BAND, displacements, estimate_flow, gaussian_blur, inside, moved
from metaprior.solar.simulator.worlds import draw_world
from metaprior.solar.simulator.worlds.texture import amplitude, wavenumbers, white


def drifting(height: int, width: int, step: tuple[float, float], frames: int = 4, seed: int = 0) -> Tensor:
    """Return frames (1, T, H, W) of a smooth texture that moves by this step in pixels, exactly."""
    torus = 16 * math.ceil((max(height, width) + 48) / 16)
    ky, kx = wavenumbers(torus)
    spectrum = white(1, torus, torch.Generator().manual_seed(seed)) * amplitude(torus, 3.5, 15.0)
    angles = (-2 * math.pi * frame * (step[0] * ky + step[1] * kx) for frame in range(frames))
    fields = [torch.fft.irfft2(spectrum * torch.polar(torch.ones(()), angle), s=(torus, torus)) for angle in angles]
    return torch.stack(fields, 1)[..., 24 : 24 + height, 24 : 24 + width]


def by_hand(images: Tensor, sigma: float) -> Tensor:
    """Return images averaged by one convolution with all weights of the neighbourhood."""
    radius = max(1, math.ceil(2.5 * sigma))
    line = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, dtype=images.dtype) / sigma) ** 2)
    kernel = line[:, None] * line / line.sum() ** 2
    rows = torch.arange(-radius, images.shape[-2] + radius).clamp(0, images.shape[-2] - 1)
    columns = torch.arange(-radius, images.shape[-1] + radius).clamp(0, images.shape[-1] - 1)
    padded = images[..., rows, :][..., columns]
    return F.conv2d(padded.flatten(0, 1)[:, None], kernel[None, None])[:, 0].unflatten(0, images.shape[:2])


@pytest.mark.parametrize(
    ("size", "sigma"),
    [((16, 16), 1.0), ((7, 30), 2.3), ((5, 4), 3.0), ((12, 2 * BAND + 11), 5.9), ((10, 40), 12.0), ((1, 20), 0.4)],
)
def test_a_narrow_average_is_the_convolution_with_copies_beyond_the_edge(size: tuple[int, int], sigma: float) -> None:
    images = torch.randn(2, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(gaussian_blur(images, sigma), by_hand(images, sigma))


def test_a_wide_average_is_close_to_the_convolution() -> None:
    images = drifting(96, 80, (0.0, 0.0)).double()
    images = images / images.std()
    error = (gaussian_blur(images, 8.0) - by_hand(images, 8.0)).abs()
    assert float(error[..., 12:-12, 12:-12].max()) < 0.05
    assert float(error.max()) < 0.3  # at the edge copies are of averages of 4 x 4 pixels
    constant = torch.full((1, 1, 33, 50), 3.25, dtype=torch.float64)
    torch.testing.assert_close(gaussian_blur(constant, 12.0), constant)


def test_images_move_by_whole_and_by_half_pixels_and_copy_their_edges() -> None:
    images = torch.randn(2, 3, 9, 12, generator=torch.Generator().manual_seed(0))
    shift = torch.tensor([2.0, -3.0])[:, None, None].expand(2, 2, 9, 12)
    found = moved(images, shift)
    torch.testing.assert_close(found[..., 2:, :-3], images[..., :-2, 3:], atol=1e-5, rtol=0)
    torch.testing.assert_close(found[..., :2, :-3], images[..., :1, 3:].expand(-1, -1, 2, -1), atol=1e-5, rtol=0)
    half = moved(images, torch.tensor([0.0, 0.5])[:, None, None].expand(2, 2, 9, 12))
    torch.testing.assert_close(half[..., 1:], (images[..., 1:] + images[..., :-1]) / 2, atol=1e-5, rtol=0)
    torch.testing.assert_close(moved(images, torch.zeros(2, 2, 9, 12)), images, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(40, 40), (64, 96), (131, 77)])
@pytest.mark.parametrize("step", [(0.0, 0.3), (-1.2, 0.7), (2.0, -2.5)])
def test_the_flow_of_a_drifting_texture_is_its_step(size: tuple[int, int], step: tuple[float, float]) -> None:
    flow = estimate_flow(drifting(*size, step))
    assert flow.shape == (1, 2, *size)
    error = (flow[0] - torch.tensor(step)[:, None, None]).norm(dim=0)
    assert float(error[6:-6, 6:-6].median()) < 0.05 + 0.04 * math.hypot(*step)
    assert float(error.mean()) < 0.1 + 0.12 * math.hypot(*step)


def test_two_frames_are_enough_and_more_are_better() -> None:
    frames = drifting(64, 64, (0.8, -1.0)) / 10
    noisy = frames / frames.std() + 0.3 * torch.randn(frames.shape, generator=torch.Generator().manual_seed(1))
    step = torch.tensor([0.8, -1.0])[:, None, None]
    few, many = ((estimate_flow(noisy[:, -count:])[0] - step).norm(dim=0).mean() for count in (2, 4))
    assert float(many) < float(few) < 1.0


def test_frames_without_structure_have_no_flow() -> None:
    for frames in (torch.zeros(1, 4, 40, 30), torch.full((1, 4, 40, 30), 3.3), torch.full((1, 2, 8, 8), 1e30)):
        flow = estimate_flow(frames)
        assert torch.isfinite(flow).all()
        torch.testing.assert_close(flow, torch.zeros_like(flow), atol=1e-3, rtol=0)
    still = drifting(48, 48, (0.0, 0.0))
    torch.testing.assert_close(estimate_flow(still), torch.zeros(1, 2, 48, 48), atol=1e-4, rtol=0)


def test_flat_frames_of_changing_brightness_have_no_flow() -> None:
    flat = torch.tensor([1.0, 1.0, 3.0, 2.0])[None, :, None, None].expand(1, 4, 40, 30)
    flow = estimate_flow(flat.contiguous())
    torch.testing.assert_close(flow, torch.zeros_like(flow), atol=1e-3, rtol=0)


def test_the_flow_has_no_units_and_windows_do_not_mix() -> None:
    frames = torch.cat([drifting(48, 48, step, seed=seed) for seed, step in ((0, (1.0, 0.0)), (1, (0.0, -1.0)))])
    frames = frames.double()
    flow = estimate_flow(frames)
    torch.testing.assert_close(estimate_flow(-250 * frames + 1000), flow, atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(estimate_flow(frames[1:]), flow[1:])


def test_frames_turned_or_mirrored_have_the_flow_turned_or_mirrored() -> None:
    frames = drifting(48, 48, (1.0, 0.4)).double()
    flow = estimate_flow(frames)
    torch.testing.assert_close(estimate_flow(frames.transpose(2, 3)), flow.transpose(2, 3).flip(1))
    mirrored = flow.flip(3) * torch.tensor([1.0, -1.0])[:, None, None]
    torch.testing.assert_close(estimate_flow(frames.flip(3)), mirrored, atol=1e-7, rtol=1e-6)


def test_a_constant_flow_displaces_by_its_multiples() -> None:
    flow = torch.tensor([0.7, -1.1])[None, :, None, None].expand(1, 2, 10, 12)
    found = displacements(flow, 4)
    assert found.shape == (1, 4, 2, 10, 12)
    for lead in range(4):
        torch.testing.assert_close(found[:, lead], (lead + 1) * flow)


def test_air_in_solid_rotation_is_traced_back_along_its_circle() -> None:
    y, x = torch.meshgrid(*(torch.arange(41, dtype=torch.float64) - 20,) * 2, indexing="ij")
    rate = 0.03
    flow = rate * torch.stack([x, -y])[None]  # rows fall where columns are right of the middle
    found = displacements(flow, 4)[0]
    there = torch.stack([y, x])
    for lead in range(4):
        there = there - rate * torch.stack([there[1], -there[0]])  # a linear flow is interpolated exactly
        expected = torch.stack([y, x]) - there
        inner = (slice(None), slice(4, -4), slice(4, -4))
        torch.testing.assert_close(found[lead][inner], expected[inner])
    straight = 4 * flow[0]
    assert float((found[3] - straight)[:, 4:-4, 4:-4].abs().max()) > 0.05


def test_what_enters_the_frame_is_told() -> None:
    shift = torch.tensor([1.0, -2.0])[None, :, None, None].expand(1, 2, 5, 6)
    expected = torch.ones(1, 1, 5, 6)
    expected[..., :1, :] = 0
    expected[..., -2:] = 0
    torch.testing.assert_close(inside(shift), expected)


def test_flow_and_moving_are_differentiable() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(1, 1, 5, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    shift = (0.3 + 0.4 * torch.rand(1, 2, 5, 6, dtype=torch.float64, generator=generator)).requires_grad_()
    assert torch.autograd.gradcheck(moved, (images, shift))
    assert torch.autograd.gradcheck(lambda one: displacements(one, 3), (shift,))
    assert torch.autograd.gradcheck(lambda one: gaussian_blur(one, 1.5), (images,))
    frames = drifting(8, 8, (0.3, 0.4), frames=3).double()
    frames = (frames / frames.std()).requires_grad_()
    assert torch.autograd.gradcheck(estimate_flow, (frames,), eps=1e-7, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_the_moved_frame_is_as_good_as_that_of_pysteps() -> None:
    pytest.importorskip("pysteps")
    ours, theirs = [], []
    for seed in range(500, 530):
        values = torch.from_numpy(draw_world(seed, size=96, days=1, frames=8).values)
        if values.isnan().any():
            continue
        frames, targets = (values / values.std()).split(4, 1)
        paths = displacements(estimate_flow(frames), 4)
        forecast = torch.cat([moved(frames[:, -1:], paths[:, lead]) for lead in range(4)], 1)
        ours.append(float((forecast - targets).square().mean().sqrt()))
        theirs.append(float((optical_flow(frames, 4).frames - targets).square().mean().sqrt()))
    assert sum(ours) < 1.03 * sum(theirs)
