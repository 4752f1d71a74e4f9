"""Random numbers and processes."""

import numpy as np

from metaprior.solar.sites.simulator.processes import Purpose, normals, ornstein_uhlenbeck, smoothed, uniforms


def test_numbers_depend_on_seed_plant_and_purpose_alone() -> None:
    many, few = normals(1, range(5), Purpose.FRONTS, 50), normals(1, [3], Purpose.FRONTS, 30)
    np.testing.assert_array_equal(many[3, :30], few[0])
    for other in (normals(2, [3], Purpose.FRONTS, 30), normals(1, [3], Purpose.CLOUDS, 30)):
        assert not np.allclose(few, other)
    drawn = uniforms(1, range(5), Purpose.JUMPS, 1000)
    assert drawn.min() >= 0
    assert drawn.max() < 1


def test_processes_have_variance_one_and_forget_at_their_lifetime() -> None:
    lifetimes = np.array([0.5, 4.0, 20.0])
    values = ornstein_uhlenbeck(normals(0, range(3), Purpose.FRONTS, 200_000), lifetimes)
    np.testing.assert_allclose(values.std(axis=1), 1, atol=0.05)
    lag = 4
    found = [np.corrcoef(row[:-lag], row[lag:])[0, 1] for row in values]
    np.testing.assert_allclose(found, np.exp(-lag / lifetimes), atol=0.03)


def test_processes_are_stationary_from_the_first_step() -> None:
    values = ornstein_uhlenbeck(normals(0, range(4000), Purpose.FRONTS, 4), np.full(4000, 10.0))
    np.testing.assert_allclose(values.std(axis=0), 1, atol=0.05)


def test_smoothing_is_the_recursion_and_keeps_constants() -> None:
    values = np.array([[1.0, 1.0, 4.0, 0.0], [2.0, 2.0, 2.0, 2.0], [3.0, 1.0, 2.0, 5.0]], np.float32)
    lifetimes = np.array([2.0, 5.0, 0.0])
    expected = values.astype(np.float64)
    for row, decay in enumerate([np.exp(-1 / 2), np.exp(-1 / 5), 0.0]):
        for step in range(1, 4):
            expected[row, step] = decay * expected[row, step - 1] + (1 - decay) * values[row, step]
    np.testing.assert_allclose(smoothed(values, lifetimes), expected, rtol=1e-6)
