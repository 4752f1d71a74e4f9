import math

import pytest
import torch

from metaprior.tasks import DriftingBlobs
from metaprior.tasks.drifting_blobs import optical_depth


def torus_distance(a: float, b: float, size: int) -> float:
    return min(abs(a - b + turn * size) for turn in (-2, -1, 0, 1, 2))


def test_depth_is_a_sum_of_gaussians_pixel_by_pixel() -> None:
    size, width = 6, 0.9
    centres, depths = [(1.3, 4.0), (5.8, 0.2)], [0.7, 1.1]
    image = optical_depth(torch.tensor(centres, dtype=torch.float64), torch.tensor(depths).double(), width, size)
    for row in range(size):
        for column in range(size):
            expected = sum(
                depth
                * math.exp(-(torus_distance(row, y, size) ** 2 + torus_distance(column, x, size) ** 2) / 2 / width**2)
                for (y, x), depth in zip(centres, depths, strict=True)
            )
            assert float(image[row, column]) == pytest.approx(expected)


def test_a_step_of_whole_pixels_rolls_the_image() -> None:
    centres, depths = torch.tensor([[2.25, 7.5], [6.0, 0.5]]).double(), torch.ones(2, dtype=torch.float64)
    before = optical_depth(centres, depths, 1.1, 8)
    after = optical_depth(centres + torch.tensor([3.0, -9.0]), depths, 1.1, 8)
    torch.testing.assert_close(after, before.roll((3, -9), (0, 1)))


def test_shapes_and_range() -> None:
    task = DriftingBlobs(size=12, input_len=3, target_len=5, k_shot=2, k_query=4)[1]
    assert task.support.x.shape == (2, 3, 12, 12)
    assert task.support.y.shape == (2, 5, 12, 12)
    assert task.query.x.shape == (4, 3, 12, 12)
    assert task.query.y.shape == (4, 5, 12, 12)
    values = torch.cat([DriftingBlobs()[i].query.y.flatten() for i in range(50)])
    assert -1.3 < float(values.min()) < -0.95, "nothing is -1, up to noise"
    assert 0.6 < float(values.max()) < 1.3, "opaque is 1, up to noise"


def shift_between(frames: torch.Tensor, steps: int) -> torch.Tensor:
    """Mean displacement (down, right) from frame 0 to frame ``steps``, by the phase of the lowest frequency."""
    size = frames.shape[-1]
    depth = -torch.log(((1 - frames.double()) / 2).clamp_min(1e-3))
    spectrum = torch.fft.fft2(depth)
    turned = (spectrum[:, steps] * spectrum[:, 0].conj()).sum(0)
    return -torch.stack([turned[1, 0], turned[0, 1]]).angle() * size / (2 * math.pi)


@pytest.mark.parametrize("index", range(6))
def test_blobs_move_with_the_velocity_and_growth_of_their_task(index: int) -> None:
    source = DriftingBlobs(size=16, k_shot=100, k_query=100)
    (rules, _), task = source.weather(index), source[index]
    frames = torch.cat([task.query.x, task.query.y], 1)  # the targets go on where the inputs end
    for steps in (1, 5):
        expected = torch.tensor(rules.velocity).double() * steps
        assert (shift_between(frames, steps) - expected).abs().max() < 0.05 * (steps + 1)
    depth = -torch.log(((1 - frames.double()) / 2).clamp_min(1e-3)).mean((0, 2, 3))
    growth = float((depth[5] / depth[0]).log()) / 5
    assert growth == pytest.approx(rules.growth, abs=0.02)


def test_the_last_input_frame_has_the_depth_that_gain_and_width_say() -> None:
    source = DriftingBlobs(size=16, k_shot=400, k_query=1)
    for index in range(4):
        rules, _ = source.weather(index)
        depth = -torch.log(((1 - source[index].support.x[:, -1].double()) / 2).clamp_min(1e-3))
        expected = rules.gain * 3 * 1.0 * 2 * math.pi * rules.width**2 / 16**2  # three blobs of mean depth 1
        assert float(depth.mean()) == pytest.approx(expected, rel=0.06)


def test_noise_is_that_of_the_task() -> None:
    source = DriftingBlobs(size=32, k_shot=200, k_query=200)
    checkers = (-1.0) ** (torch.arange(32)[:, None] + torch.arange(32))  # a pattern that smooth blobs have nothing of
    for index in range(3):
        task = source[index]
        frames = torch.cat([torch.cat([part.x, part.y], 1) for part in (task.support, task.query)]).flatten(0, 1)
        seen = float(((frames * checkers).sum((1, 2)) / 32).std())
        assert seen == pytest.approx(source.weather(index)[0].noise, rel=4 / math.sqrt(2 * len(frames)))


def test_tasks_differ_in_all_their_rules() -> None:
    rules = [DriftingBlobs(size=20).weather(i)[0] for i in range(300)]
    ranges = {
        "gain": (0.5, 1.5),
        "growth": (-0.15, 0.15),
        "width": (0.08 * 20, 0.16 * 20),
        "noise": (0.005, 0.05),
    }
    for name, (low, high) in ranges.items():
        values = [getattr(rule, name) for rule in rules]
        assert low <= min(values) < low + 0.03 * (high - low)
        assert high - 0.03 * (high - low) < max(values) <= high
    velocities = torch.tensor([rule.velocity for rule in rules])
    assert torch.allclose(velocities.amin(0), torch.tensor(-1.5), atol=0.05)
    assert torch.allclose(velocities.amax(0), torch.tensor(1.5), atol=0.05)
