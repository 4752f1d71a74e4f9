"""Quantiles of mixtures of Gaussians on which a search without safeguards fails, against slow bisections."""

import math

import pytest
import torch
from torch import Tensor

from benchmarks.prediction import LEVELS, Mixture, hard_mixtures
from metaprior import mixture

HARD = hard_mixtures(100)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def uniform(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def tail(parts: Mixture, values: Tensor, level: float) -> Tensor:
    """Return the probability of the tail that ``level`` bounds: below for levels up to one half, else above."""
    means, scales, weights = parts
    z = (values - means.double()) / scales.double()
    own = None if weights is None else weights / weights.sum(0)
    return mixture.average(torch.special.ndtr(z if level <= 0.5 else -z), own)


def bisected(parts: Mixture, level: float) -> Tensor:
    """Return the quantile by 150 bisections between the quantiles of the components that have a weight."""
    means, scales = parts[0].double(), parts[1].double()
    of_components = means + torch.special.ndtri(torch.tensor(level, dtype=torch.float64)) * scales
    none = torch.zeros_like(means, dtype=torch.bool) if parts[2] is None else (parts[2] == 0).expand_as(means)
    low, high = (of_components.masked_fill(none, end * math.inf) for end in (1, -1))
    low, high = low.amin(0), high.amax(0)
    for _ in range(150):
        middle = (low + high) / 2
        excess = tail(parts, middle, level) - min(level, 1 - level)
        below = excess < 0 if level <= 0.5 else excess > 0
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


@pytest.mark.parametrize("name", HARD)
def test_quantiles_are_those_of_bisections(name: str) -> None:
    """Within 1e-6 standard deviations; or on a plateau, where any point of the right probability is a quantile."""
    parts = HARD[name]
    means, scales = parts[0].double(), parts[1].double()
    weights = None if parts[2] is None else parts[2] / parts[2].sum(0)
    std = mixture.average((means - mixture.average(means, weights)).square() + scales.square(), weights).sqrt()
    for level, found in zip(LEVELS, mixture.quantiles(parts[0], parts[1], LEVELS, parts[2]), strict=True):
        away = (found - bisected(parts, level)).abs() / std
        wrong = (tail(parts, found, level) - min(level, 1 - level)).abs() / min(level, 1 - level)
        assert bool(((away < 1e-6) | (wrong < 1e-6)).all()), f"level {level}: {away.max()}, {wrong.max()}"


def test_the_distribution_function_is_right_on_plateaus() -> None:
    for share in (0.05, 0.5):
        parts = HARD[f"a plateau at {share:g}"]
        found = mixture.quantiles(parts[0], parts[1], [share], parts[2])[0]
        torch.testing.assert_close(
            mixture.cumulative(parts[0], parts[1], found, parts[2]), torch.full_like(found, share)
        )


@pytest.mark.parametrize("level", [1e-30, 1e-100])
def test_levels_of_the_smallest_probabilities_are_exact(level: float) -> None:
    means, scales = 0.1 * normal(5, 10), 0.5 + uniform(5, 10)
    found = mixture.quantiles(means, scales, [level])[0]
    log_tail = torch.logsumexp(torch.special.log_ndtr((found - means) / scales), 0) - math.log(5)
    torch.testing.assert_close(log_tail, torch.full_like(log_tail, math.log(level)))


def test_parts_and_levels_together_change_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    means, scales = 5 * normal(7, 50), 0.1 + uniform(7, 50)
    whole = mixture.quantiles(means, scales, LEVELS)
    monkeypatch.setattr(mixture, "NUMBERS_AT_ONCE", 100)
    for level, found in zip(LEVELS, whole, strict=True):
        torch.testing.assert_close(mixture.quantiles(means, scales, [level])[0], found, rtol=1e-9, atol=1e-9)


def test_mixtures_that_are_not_numbers_have_no_quantile_and_disturb_no_other() -> None:
    means, scales = normal(5, 3), 0.5 + uniform(5, 3)
    expected = mixture.quantiles(means, scales, [0.1])[0]
    means[2, 1] = math.nan
    found = mixture.quantiles(means, scales, [0.1])[0]
    assert found.isnan().tolist() == [False, True, False]
    torch.testing.assert_close(found[[0, 2]], expected[[0, 2]])


def test_components_without_a_spread_are_points() -> None:
    points = torch.tensor([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]]).double()
    found = mixture.quantiles(points, torch.zeros_like(points), [0.1, 0.5, 0.9])
    torch.testing.assert_close(found, torch.tensor([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]]).double())


def test_a_search_ends_after_few_steps_on_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes it fast: three evaluations of a mixture, where 60 bisections take 60."""
    evaluated = []
    step = mixture._halley

    def counted(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        evaluated.append(arguments[-1].numel())
        return step(*arguments)

    monkeypatch.setattr(mixture, "_halley", counted)
    mixture.quantiles(0.5 * normal(50, 1000), 0.5 + uniform(50, 1000), [0.05, 0.95])
    assert sum(evaluated) / 2000 < 3.5
