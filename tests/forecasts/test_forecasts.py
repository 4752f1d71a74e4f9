import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from metaprior import scores
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, GaussianForecast
from metaprior.forecasts.numpy_forecast import NumpyForecast

S, N = 7, 5


@pytest.fixture
def gaussian() -> GaussianForecast:
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(S, N, dtype=torch.float64, generator=generator)
    scales = 0.1 + torch.rand(S, N, dtype=torch.float64, generator=generator)
    return GaussianForecast(means, scales)


def mixture_of(forecast: GaussianForecast) -> MixtureSameFamily:
    own = torch.ones(len(forecast.means), 1) if forecast.weights is None else forecast.weights
    weights = Categorical(own.double().expand_as(forecast.means).T)
    return MixtureSameFamily(weights, Normal(forecast.means.T, forecast.scales.T))


def test_gaussian_summary_is_that_of_the_mixture(gaussian: GaussianForecast) -> None:
    expected = mixture_of(gaussian)
    targets = torch.linspace(-1, 1, N, dtype=torch.float64)
    torch.testing.assert_close(gaussian.mean, expected.mean)
    torch.testing.assert_close(gaussian.log_prob(targets), expected.log_prob(targets))
    torch.testing.assert_close(gaussian.cdf(targets), expected.cdf(targets))
    spread_of_means = gaussian.epistemic**2 * (S - 1) / S  # torch's mixture variance has S in the denominator
    torch.testing.assert_close(spread_of_means + gaussian.aleatoric**2, expected.variance)
    torch.testing.assert_close(gaussian.std**2, gaussian.epistemic**2 + gaussian.aleatoric**2)


@pytest.mark.parametrize("level", [1e-4, 0.05, 0.5, 0.9, 0.9999])
def test_quantile_inverts_the_distribution_function(gaussian: GaussianForecast, level: float) -> None:
    torch.testing.assert_close(gaussian.cdf(gaussian.quantile(level)), torch.full((N,), level, dtype=torch.float64))


def test_interval_holds_its_share_of_draws(gaussian: GaussianForecast) -> None:
    torch.manual_seed(0)
    draws = mixture_of(gaussian).sample((20_000,))
    low, high = gaussian.interval(0.8)
    torch.testing.assert_close(
        ((draws > low) & (draws < high)).double().mean(0), torch.full((N,), 0.8).double(), atol=0.02, rtol=0
    )


def test_rescaling_changes_units(gaussian: GaussianForecast) -> None:
    loc, scale = torch.tensor(10.0, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)
    targets = torch.linspace(-1, 1, N, dtype=torch.float64)
    rescaled = gaussian.rescaled(loc, scale)
    torch.testing.assert_close(rescaled.mean, loc + scale * gaussian.mean)
    torch.testing.assert_close(rescaled.std, scale * gaussian.std)
    torch.testing.assert_close(rescaled.quantile(0.3), loc + scale * gaussian.quantile(0.3))
    torch.testing.assert_close(rescaled.log_prob(loc + scale * targets), gaussian.log_prob(targets) - math.log(3))


def test_class_probabilities_entropy_and_mutual_information() -> None:
    sure_but_split = torch.tensor([[[99.0, -99.0]], [[-99.0, 99.0]]])  # two weight samples, each certain, that disagree
    agreed_coin = torch.zeros(2, 1, 2)
    split, coin = CategoricalForecast(sure_but_split), CategoricalForecast(agreed_coin)
    for forecast in (split, coin):
        torch.testing.assert_close(forecast.probabilities, torch.full((1, 2), 0.5))
        torch.testing.assert_close(forecast.entropy, torch.full((1,), math.log(2)))
    torch.testing.assert_close(split.mutual_information, torch.full((1,), math.log(2)))
    torch.testing.assert_close(coin.mutual_information, torch.zeros(1))
    assert float(split.aleatoric.max()) == 0
    assert float(coin.epistemic.max()) == 0
    torch.testing.assert_close(coin.std, torch.full((1, 2), 0.5))
    torch.testing.assert_close(split.std, torch.full((1, 2), 0.5))


@pytest.mark.parametrize("logit", [2.0, 17.0, 200.0])
def test_log_mass_of_unlikely_labels_is_exact(logit: float) -> None:
    """In float32, where probabilities themselves would underflow or cancel."""
    bernoulli = BernoulliForecast(torch.full((2, 1), logit))
    assert float(bernoulli.log_prob(torch.zeros(1))) == pytest.approx(-logit - math.log1p(math.exp(-logit)))
    categorical = CategoricalForecast(torch.tensor([[[logit, 0.0]]]).expand(2, 1, 2))
    assert float(categorical.log_prob(torch.ones(1, dtype=torch.long))) == pytest.approx(
        -logit - math.log1p(math.exp(-logit))
    )


def test_bernoulli_offers_both_probabilities() -> None:
    forecast = BernoulliForecast(torch.tensor([[0.8, 0.1], [0.6, 0.3]]).logit())
    torch.testing.assert_close(forecast.probabilities, torch.tensor([[0.3, 0.7], [0.8, 0.2]]))
    assert forecast.labels.tolist() == [1, 0]
    torch.testing.assert_close(forecast.log_prob(torch.tensor([1.0, 0.0])), torch.tensor([0.7, 0.8]).log())
    torch.testing.assert_close(forecast.quantile(0.5), torch.tensor([0.7, 0.2]))
    split = BernoulliForecast(torch.tensor([[99.0, 0.0], [-99.0, 0.0]]))  # certain and opposite; agreed on a coin
    torch.testing.assert_close(split.mutual_information, torch.tensor([math.log(2), 0.0]))


def test_one_sample_is_not_enough() -> None:
    with pytest.raises(ValueError, match="at least 2 weight samples"):
        GaussianForecast(torch.zeros(1, 3), torch.ones(1, 3))


def test_levels_outside_of_0_to_1_are_refused(gaussian: GaussianForecast) -> None:
    for measure in (gaussian.quantile, gaussian.interval):
        for level in (-0.5, 1.0):
            with pytest.raises(ValueError, match="strictly between 0 and 1"):
                measure(level)


def test_quantiles_deep_in_the_tail_are_right_in_single_precision() -> None:
    forecast = GaussianForecast(torch.zeros(2, 1), torch.tensor([[1.0], [0.1]]))  # half of the tail is the wide part's
    assert float(forecast.quantile(1 - 5e-8)) == pytest.approx(5.1993, abs=1e-3)


def test_targets_of_another_shape_are_refused_and_never_broadcast(gaussian: GaussianForecast) -> None:
    for forecast, targets in (
        (gaussian, torch.zeros(N, 1)),
        (BernoulliForecast(torch.zeros(2, N)), torch.zeros(N, 1)),
        (CategoricalForecast(torch.zeros(2, N, 3)), torch.zeros(N, 1, dtype=torch.long)),
    ):
        with pytest.raises(ValueError, match=r"targets have shape \(5, 1\), but the predictions have \(5,\)"):
            forecast.log_prob(targets)
    with pytest.raises(ValueError, match="targets have shape"):
        gaussian.cdf(torch.zeros(N, 1))


def test_targets_may_be_numpy_arrays_and_are_checked(gaussian: GaussianForecast) -> None:
    y = np.linspace(-1, 1, N)
    torch.testing.assert_close(gaussian.log_prob(y), gaussian.log_prob(torch.as_tensor(y)))
    categorical = CategoricalForecast(torch.randn(2, N, 3))
    labels = np.array([0, 1, 2, 0, 1], dtype=np.uint8)
    torch.testing.assert_close(categorical.log_prob(labels), categorical.log_prob(torch.as_tensor(labels).long()))
    with pytest.raises(ValueError, match=r"labels must be 0\.\.2, got 0 to 3"):
        categorical.log_prob(np.array([0, 1, 2, 0, 3]))
    with pytest.raises(ValueError, match="infinite"):
        gaussian.log_prob(np.full(N, np.inf))


def test_missing_targets_are_left_out_of_the_log_probability() -> None:
    """An observation's missing targets are integrated out; one without any target has probability one."""
    generator = torch.Generator().manual_seed(0)
    means, gone = torch.randn(7, N, 2, generator=generator).double(), torch.zeros(N, 2, dtype=torch.bool)
    gone[1, 0] = gone[3] = True
    y = torch.randn(N, 2, generator=generator).double()
    labels = torch.randint(3, (N, 2), generator=generator)
    logits = torch.randn(7, N, 3, 2, generator=generator).double()
    kinds = [
        (GaussianForecast, {"means": means, "scales": torch.full_like(means, 0.3)}, y, torch.nan),
        (BernoulliForecast, {"logits": means}, (y > 0).double(), torch.nan),
        (CategoricalForecast, {"logits": logits}, labels, -100),
    ]
    for kind, tensors, targets, missing in kinds:
        found = kind(**tensors).log_prob(targets.masked_fill(gone, missing))
        whole = kind(**tensors).log_prob(targets)
        second = kind(**{name: value[..., 1:] for name, value in tensors.items()}).log_prob(targets[:, 1:])
        torch.testing.assert_close(found, torch.where(gone.all(1), 0.0, torch.where(gone.any(1), second, whole)))


def repeated(values: torch.Tensor, counts: list[int]) -> torch.Tensor:
    return values.repeat_interleave(torch.tensor(counts), 0)


def test_weights_count_like_repeated_components(gaussian: GaussianForecast) -> None:
    counts, targets = [1, 4, 2, 0, 3, 1, 1], torch.linspace(-1, 1, N, dtype=torch.float64)
    weighted = GaussianForecast(gaussian.means, gaussian.scales, weights=torch.tensor(counts))
    by_hand = GaussianForecast(repeated(gaussian.means, counts), repeated(gaussian.scales, counts))
    for name in ("log_prob", "cdf"):
        torch.testing.assert_close(getattr(weighted, name)(targets), getattr(by_hand, name)(targets))
    torch.testing.assert_close(scores.crps(weighted, targets), scores.crps(by_hand, targets))
    torch.testing.assert_close(weighted.quantile([0.1, 0.6]), by_hand.quantile([0.1, 0.6]))
    torch.testing.assert_close(weighted.quantile(0.6), weighted.quantile([0.1, 0.6])[1])
    torch.testing.assert_close(weighted.mean, by_hand.mean)
    torch.testing.assert_close(weighted.aleatoric, by_hand.aleatoric)
    torch.testing.assert_close(weighted.epistemic, by_hand.means.std(0, correction=0))
    for each in (weighted.weights, weighted.weights.expand(S, N)):  # type: ignore[union-attr]
        same = GaussianForecast(gaussian.means[..., None], gaussian.scales[..., None], weights=each).squeezed()
        torch.testing.assert_close(same.log_prob(targets), weighted.log_prob(targets))
        torch.testing.assert_close(same.quantile(0.3), weighted.quantile(0.3))
        torch.testing.assert_close(scores.crps(same, targets), scores.crps(weighted, targets))


def test_weighted_labels_count_like_repeated_components() -> None:
    counts, logits = [1, 0, 3], torch.randn(3, N, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(N) % 4
    for kind, targets in ((CategoricalForecast, labels), (BernoulliForecast, torch.rand(N, 4).round())):
        weighted, by_hand = kind(logits, weights=torch.tensor(counts)), kind(repeated(logits, counts))
        torch.testing.assert_close(weighted.log_prob(targets), by_hand.log_prob(targets))
        for name in ("mean", "epistemic", "aleatoric", "entropy", "mutual_information"):
            torch.testing.assert_close(getattr(weighted, name), getattr(by_hand, name))
        low, high = weighted.quantile([0.2, 0.5])
        torch.testing.assert_close(low, torch.minimum(*weighted.samples[[0, 2]]))
        assert (high >= low).all()


def test_parts_of_the_variance_add_up(gaussian: GaussianForecast) -> None:
    parts = gaussian.parts
    torch.testing.assert_close(parts["task"], gaussian.epistemic)
    assert not parts["prior"].any()
    within = 0.5 * gaussian.scales
    weights = torch.arange(1.0, 7)
    six = GaussianForecast(gaussian.means[:6], gaussian.scales[:6], weights=weights, task_scales=within[:6], thetas=3)
    torch.testing.assert_close(sum(part.square() for part in six.parts.values()), six.std.square())
    torch.testing.assert_close(six.std.square(), mixture_of(six).variance)
    torch.testing.assert_close(six.aleatoric.square(), (weights[:, None] / 21 * 0.75 * six.scales**2).sum(0))
    of_groups = (weights[:, None] * six.means).unflatten(0, (3, 2)).sum(1) / torch.tensor([[3.0], [7.0], [11.0]])
    centred = of_groups - six.mean
    expected = (torch.tensor([[3.0], [7.0], [11.0]]) / 21 * centred**2).sum(0)
    torch.testing.assert_close(six.parts["prior"].square(), expected)
    wide = six.widened(2.0)
    torch.testing.assert_close(wide.mean, six.mean)
    for name, part in wide.parts.items():
        torch.testing.assert_close(part, 2 * six.parts[name])


def test_one_component_that_is_the_distribution_is_a_gaussian() -> None:
    one = GaussianForecast(
        torch.zeros(1, 2), torch.full((1, 2), 5.0), weights=torch.ones(1), task_scales=torch.full((1, 2), 3.0)
    )
    torch.testing.assert_close(one.std, torch.full((2,), 5.0))
    torch.testing.assert_close(one.parts["task"], torch.full((2,), 3.0))
    torch.testing.assert_close(one.parts["data"], torch.full((2,), 4.0))
    torch.testing.assert_close(one.interval(0.9)[1], torch.full((2,), 5 * 1.6448536))
    with pytest.raises(ValueError, match="weights must be 1 numbers"):
        GaussianForecast(torch.zeros(1, 2), torch.ones(1, 2), weights=torch.ones(3))


@pytest.mark.parametrize("kind", [CategoricalForecast, BernoulliForecast])
def test_wider_labels_are_less_certain_and_in_the_same_order(kind: type[CategoricalForecast]) -> None:
    logits = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    forecast = kind(logits)
    wider = forecast.widened(2.0)
    assert torch.equal(wider.logits, logits / 2)
    assert bool(wider.entropy.sum() > forecast.entropy.sum())
    assert torch.equal(forecast.widened(1.0).samples, forecast.samples)


def test_forecasts_say_their_shape_and_ranges_and_complete_in_notebooks(gaussian: GaussianForecast) -> None:
    shown = repr(NumpyForecast(gaussian))
    assert shown.startswith(f"NumpyForecast(GaussianForecast(components: {S}, shape ({N},), mean ")
    assert len(shown) < 150
    assert {"mean", "std", "quantile", "log_prob", "interval", "tensors"} <= {*dir(NumpyForecast(gaussian))}
    assert "shape (5, 3)" in repr(CategoricalForecast(torch.zeros(2, N, 3)))


@pytest.mark.parametrize("kind", [CategoricalForecast, BernoulliForecast])
def test_labels_have_no_interval(kind: type[CategoricalForecast | BernoulliForecast]) -> None:
    with pytest.raises(TypeError, match=rf"got a {kind.__name__}. Try probabilities, and quantile\(0.1\)"):
        kind(torch.zeros(3, 2, 2)).interval(0.8)
