import math

import pytest
import torch
from torch import Tensor

from metaprior.tasks import SineOrLine, Sinusoids, Task


def everything(task: Task) -> tuple[Tensor, Tensor]:
    return torch.cat([task.support.x, task.query.x]).double(), torch.cat([task.support.y, task.query.y]).double()


def fitted(columns: list[Tensor], y: Tensor) -> tuple[list[float], float]:
    """Least-squares coefficients and root mean square of what is left."""
    design = torch.cat(columns, 1)
    coefficients = torch.linalg.lstsq(design, y).solution
    return coefficients[:, 0].tolist(), float((design @ coefficients - y).square().mean().sqrt())


def sine_fit(task: Task) -> tuple[float, float, float]:
    """Amplitude, phase and misfit of A sin(x + b) = A cos(b) sin(x) + A sin(b) cos(x)."""
    x, y = everything(task)
    (with_sin, with_cos), misfit = fitted([x.sin(), x.cos()], y)
    return math.hypot(with_sin, with_cos), math.atan2(with_cos, with_sin), misfit


def test_tasks_are_sine_waves_of_the_published_ranges() -> None:
    source = Sinusoids(k_shot=10, k_query=20)
    amplitudes, phases, misfits = zip(*(sine_fit(source[i]) for i in range(400)), strict=True)
    assert max(misfits) < 1e-5
    assert 0.1 - 1e-4 <= min(amplitudes) < 0.25
    assert 4.85 < max(amplitudes) <= 5 + 1e-4
    assert -1e-4 <= min(phases) < 0.1
    assert 3.04 < max(phases) <= math.pi + 1e-4
    assert abs(sum(amplitudes) / 400 - 2.55) < 4 * 4.9 / math.sqrt(12 * 400)
    assert abs(sum(phases) / 400 - math.pi / 2) < 4 * math.pi / math.sqrt(12 * 400)


def test_inputs_cover_minus_five_to_five() -> None:
    x, _ = everything(Sinusoids(k_shot=1000, k_query=1000)[0])
    assert x.shape == (2000, 1)
    assert -5 <= float(x.min()) < -4.95
    assert 4.95 < float(x.max()) <= 5
    assert abs(float(x.mean())) < 4 * 10 / math.sqrt(12 * 2000)


def test_noise_is_added_with_its_standard_deviation() -> None:
    _, _, misfit = sine_fit(Sinusoids(k_shot=2000, k_query=2000, noise=0.3)[1])
    assert abs(misfit - 0.3) < 4 * 0.3 / math.sqrt(2 * 4000)


def test_frequencies_are_drawn_from_their_range() -> None:
    source, grid = Sinusoids(k_shot=20, k_query=40, frequency=(0.5, 2.0)), torch.linspace(0.45, 2.05, 161).tolist()
    found = []
    for index in range(60):
        x, y = everything(source[index])
        misfits = [fitted([(f * x).sin(), (f * x).cos()], y)[1] for f in grid]
        found.append(grid[misfits.index(min(misfits))])
    assert 0.49 <= min(found) < 0.65
    assert 1.85 < max(found) <= 2.01


def test_a_known_frequency_changes_no_other_number() -> None:
    plain, twice = Sinusoids()[3], Sinusoids(frequency=(2.0, 2.0))[3]
    assert torch.equal(plain.support.x, twice.support.x)
    assert not torch.equal(plain.support.y, twice.support.y)


@pytest.mark.parametrize("frequency", [(2.0, 1.0), (0.0, 1.0), (1.0,), (1.0, float("nan"))])
def test_a_frequency_is_a_range(frequency: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="frequency must be a range of positive numbers"):
        Sinusoids(frequency=frequency)


def test_half_are_sines_and_half_are_lines_and_names_tell() -> None:
    source = SineOrLine(k_shot=10, k_query=20, noise=0.0)
    slopes, intercepts, sines = [], [], 0
    for index in range(400):
        task = source[index]
        x, y = everything(task)
        (slope, intercept), line_misfit = fitted([x, torch.ones_like(x)], y)
        amplitude, phase, sine_misfit = sine_fit(task)
        if task.name == f"sine {index}":
            sines += 1
            assert sine_misfit < 1e-5 < line_misfit
            assert 0.1 - 1e-4 <= amplitude <= 5 + 1e-4
            assert -1e-4 <= phase <= math.pi + 1e-4
        else:
            assert task.name == f"line {index}"
            assert line_misfit < 1e-5
            slopes.append(slope)
            intercepts.append(intercept)
    assert abs(sines - 200) < 4 * 10, "four standard deviations of 400 fair coins"
    for values in (slopes, intercepts):
        assert -3 - 1e-4 <= min(values) < -2.85
        assert 2.85 < max(values) <= 3 + 1e-4


def test_sines_and_lines_are_noisy_by_default() -> None:
    source = SineOrLine(k_shot=1000, k_query=1000)
    line = next(source[i] for i in range(50) if source[i].name.startswith("line"))
    x, y = everything(line)
    assert abs(fitted([x, torch.ones_like(x)], y)[1] - 0.3) < 4 * 0.3 / math.sqrt(2 * 2000)
