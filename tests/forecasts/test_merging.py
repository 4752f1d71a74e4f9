"""The mixture of an ensemble's forecasts."""

import numpy as np
import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast
from metaprior.forecasts.numpy_forecast import NumpyForecast
from metaprior.hierarchy.hierarchical_posterior import HierarchicalForecast, UncertaintySplit

N = 6


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussian(samples: int, seed: int, weights: Tensor | None = None) -> GaussianForecast:
    return GaussianForecast(normal(samples, N, 2, seed=seed), 0.1 + normal(1, 1, 2, seed=seed).abs(), weights=weights)


def log_average(members: list[Forecast], shares: Tensor, y: Tensor) -> Tensor:
    return torch.logsumexp(torch.stack([one.log_prob(y) for one in members]) + shares.log()[:, None], 0)


@pytest.mark.parametrize("shares", [None, [1.0, 3.0, 2.0]])
def test_densities_and_distribution_functions_are_averaged(shares: list[float] | None) -> None:
    members = [gaussian(4, 0), gaussian(7, 1), gaussian(5, 2, torch.arange(1.0, 6))]
    merged = mp.Forecast.mixture(members, shares)
    own, y = torch.tensor(shares or [1.0] * 3).double(), normal(N, 2, seed=9)
    own = own / own.sum()
    torch.testing.assert_close(merged.log_prob(y), log_average(members, own, y))
    of_members = torch.stack([one.cdf(y) for one in members])
    torch.testing.assert_close(merged.cdf(y), (own[:, None, None] * of_members).sum(0))
    torch.testing.assert_close(merged.cdf(merged.quantile(0.3)), torch.full((N, 2), 0.3).double(), rtol=1e-6, atol=0)


def test_the_law_of_total_variance_holds_and_differences_between_members_are_epistemic() -> None:
    members = [gaussian(4, 0, torch.ones(4)), gaussian(5, 2, torch.arange(1.0, 6))]
    merged = Forecast.mixture(members, [0.25, 0.75])
    own = torch.tensor([0.25, 0.75]).double()[:, None, None]
    means, stds, aleatoric, epistemic = (
        torch.stack([getattr(one, name) for one in members]) for name in ("mean", "std", "aleatoric", "epistemic")
    )
    between = (own * (means - merged.mean).square()).sum(0)
    torch.testing.assert_close(merged.mean, (own * means).sum(0))
    torch.testing.assert_close(merged.std.square(), (own * stds.square()).sum(0) + between)
    torch.testing.assert_close(merged.epistemic.square(), (own * epistemic.square()).sum(0) + between)
    torch.testing.assert_close(merged.aleatoric.square(), (own * aleatoric.square()).sum(0))
    torch.testing.assert_close(merged.std.square(), merged.epistemic.square() + merged.aleatoric.square())


def test_equal_members_change_nothing_but_a_denominator() -> None:
    one = gaussian(8, 3)
    merged = Forecast.mixture([one, one])
    torch.testing.assert_close(merged.mean, one.mean)
    torch.testing.assert_close(merged.epistemic.square(), one.epistemic.square() * 7 / 8)
    torch.testing.assert_close(merged.quantile([0.1, 0.7]), one.quantile([0.1, 0.7]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [CategoricalForecast, BernoulliForecast])
def test_probabilities_of_labels_are_averaged(kind: type[CategoricalForecast | BernoulliForecast]) -> None:
    members = [kind(normal(4, N, 3, seed=0)), kind(normal(6, N, 3, seed=1), weights=torch.arange(1.0, 7))]
    merged = Forecast.mixture(members, [1, 2])
    assert type(merged) is kind
    torch.testing.assert_close(merged.mean, (members[0].mean + 2 * members[1].mean) / 3)
    y = torch.arange(N) % 3 if kind is CategoricalForecast else (normal(N, 3, seed=5) > 0).double()
    torch.testing.assert_close(merged.log_prob(y), log_average(members, torch.tensor([1 / 3, 2 / 3]).double(), y))
    torch.testing.assert_close(merged.std.square(), merged.mean * (1 - merged.mean))


def test_weights_for_each_observation_and_one_column_of_weights_go_together() -> None:
    each = GaussianForecast(normal(3, N, seed=0), torch.ones(3, N).double(), weights=normal(3, N, seed=1).abs())
    same = GaussianForecast(normal(2, N, seed=2), torch.ones(2, 1).double())
    merged, y = Forecast.mixture([each, same]), normal(N, seed=3)
    torch.testing.assert_close(merged.log_prob(y), log_average([each, same], torch.tensor([0.5, 0.5]).double(), y))


def test_parts_within_components_and_draws_of_theta_are_kept() -> None:
    within = GaussianForecast(
        normal(4, N, seed=0), torch.full((4, N), 2.0).double(), task_scales=torch.ones(4, N).double(), thetas=2
    )
    merged = Forecast.mixture([within, within])
    assert merged.thetas == 4
    torch.testing.assert_close(merged.aleatoric.square(), torch.full((N,), 3.0).double())
    torch.testing.assert_close(sum(part.square() for part in merged.parts.values()), merged.std.square())
    plain = GaussianForecast(normal(4, N, seed=1), torch.full((4, N), 2.0).double())
    both = Forecast.mixture([within, plain])
    torch.testing.assert_close(both.aleatoric.square(), torch.full((N,), 3.5).double())
    assert Forecast.mixture([plain, plain]).thetas == 1  # samples of the weights: nothing is known of thetas


def test_forecasts_of_the_hierarchy_keep_a_split() -> None:
    def split(size: float) -> UncertaintySplit:
        return UncertaintySplit(*(torch.full((N,), size).double() for _ in range(3)))

    means, scales = normal(4, N, seed=0), torch.ones(1, 1).double()
    merged = Forecast.mixture(
        [
            HierarchicalForecast(means, scales, split=lambda: split(1.0)),
            HierarchicalForecast(-means, scales, split=lambda: split(3.0)),
        ]
    )
    torch.testing.assert_close(merged.split().prior.square(), torch.full((N,), 5.0).double())
    torch.testing.assert_close(sum(part.square() for part in merged.parts.values()), merged.std.square())


def test_numpy_forecasts_give_a_numpy_forecast() -> None:
    members = [gaussian(4, 0), gaussian(7, 1)]
    merged = Forecast.mixture([NumpyForecast(members[0]), members[1]])
    assert isinstance(merged, NumpyForecast)
    np.testing.assert_allclose(merged.mean, Forecast.mixture(members).mean.numpy())


def test_an_ensemble_of_networks_in_one_line() -> None:
    x, members = torch.linspace(-1, 1, 20)[:, None], []
    for seed in (0, 1):
        torch.manual_seed(seed)
        net = mp.BayesByBackprop(mp.MLP(1, [5], 1), mp.Gaussian(), seed=seed)
        members.append(net.fit(x, torch.sin(3 * x), epochs=2, progress=False))
    merged = mp.Forecast.mixture([one.predict(x) for one in members])
    assert merged.mean.shape == x.shape
    assert bool((merged.interval(0.9)[0] < merged.interval(0.9)[1]).all())


@pytest.mark.parametrize(
    ("others", "weights", "error", "message"),
    [
        ([], None, ValueError, "at least one forecast, got none"),
        (["?"], None, TypeError, r"forecasts\[0\] must be a forecast, got str. Try model.predict"),
        ([BernoulliForecast(torch.zeros(2, N, 2))], None, TypeError, "of one kind, got GaussianForecast and"),
        (
            [GaussianForecast(torch.zeros(2, N), torch.ones(2, N))],
            None,
            ValueError,
            r"same targets, got shape \(6, 2\)",
        ),
        ([gaussian(4, 1)], [1.0], ValueError, "weights must be 2 numbers >= 0"),
        ([gaussian(4, 1)], [1.0, -1.0], ValueError, "weights must be 2 numbers >= 0"),
        ([gaussian(4, 1)], [0.0, 0.0], ValueError, "not all zero"),
    ],
)
def test_what_does_not_go_together_is_refused(
    others: list[Forecast], weights: list[float] | None, error: type[Exception], message: str
) -> None:
    first = [gaussian(4, 0)] if others and not isinstance(others[0], str) else []
    with pytest.raises(error, match=message):
        Forecast.mixture([*first, *others], weights)
