from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior import posterior as module
from metaprior.forecasts import GaussianForecast
from metaprior.noise import Noise
from metaprior.posterior import Posterior, sample_groups
from metaprior.scaling import TargetScale
from metaprior.team import Team
from tests.team.fake import outcomes, together


def make(net: nn.Module | None = None, stochastic: str | None = None) -> Posterior:
    torch.manual_seed(0)
    network = mp.BayesianNetwork(net or mp.MLP(2, [4], 1), stochastic)
    identity = TargetScale(torch.zeros(()), torch.ones(()))
    return Posterior(network, mp.Gaussian(noise=0.1), network.initial(), target_scale=identity, input_axes=2)


def test_prediction_does_not_depend_on_batches_or_groups_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    x, q = torch.randn(10, 2), make()
    whole = q.predict(x, samples=7).mean
    torch.testing.assert_close(q.predict(x, samples=7, batch_size=3).mean, whole)
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 1)
    torch.testing.assert_close(q.predict(x, samples=7).mean, whole)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_ranks_share_the_samples_and_get_the_forecast_of_one_process_to_the_last_bit(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, q = torch.randn(10, 2), make()
    numbers = max(len(q.weights.mu), 10 * q.network.numbers_behind(0, x))
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 3 * numbers)  # seven samples are groups of 3, 3 and 1
    alone = q.predict(x, samples=7).means
    drawn: list[tuple[int, range]] = []

    def predicted(team: Team) -> Tensor:
        class Watched(Posterior):
            def _draw(self, noise: Noise, group: range) -> Tensor:
                drawn.append((team.rank, group))
                return super()._draw(noise, group)

        forecast = Watched(**vars(q)).predict(x, samples=7)
        assert isinstance(forecast, GaussianForecast)
        return forecast.means

    for means in together(size, predicted):
        assert torch.equal(means, alone)
    assert sorted(group.start for _, group in drawn) == [0, 3, 6]
    assert len({rank for rank, _ in drawn}) == min(size, 3)


def test_outputs_of_one_rank_that_overflow_are_refused_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    q = make()
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 1)
    broken = replace(q, weights=q.weights.replace(mu=1e3 * q.weights.mu))
    for error in outcomes(2, lambda _: broken.predict(torch.full((1, 2), 3e38), samples=2)):
        assert isinstance(error, ValueError)
        assert "NaN or infinite" in str(error)


def test_groups_cover_every_sample_once() -> None:
    third = module.NUMBERS_AT_ONCE // 3
    assert [i for group in sample_groups(10, third) for i in group] == list(range(10))
    assert [len(group) for group in sample_groups(10, third)] == [3, 3, 3, 1]
    assert [len(group) for group in sample_groups(3, 10**9)] == [1, 1, 1]


def test_the_automatic_batch_follows_the_size_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    q = make()
    real = q.network.map_samples

    def watched(function: Callable[[Tensor], Tensor], phis: Tensor) -> Tensor:
        seen.append((len(phis), len(function.keywords["x"])))  # type: ignore[attr-defined]
        return real(function, phis)

    monkeypatch.setattr(q.network, "map_samples", watched)
    numbers = q.network.numbers_per_observation(q.weights, torch.zeros(1, 2))
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 10 * numbers)
    q.predict(torch.zeros(25, 2), samples=3)
    assert {rows for _, rows in seen} == {10, 5}
    assert {samples for samples, _ in seen} == {1}
    seen.clear()
    behind_the_first_weight = q.network.numbers_behind(1, torch.zeros(1, 2))
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 50 * behind_the_first_weight)
    q.predict(torch.zeros(25, 2), samples=3)
    assert seen == [(2, 25), (1, 25)]
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        q.predict(torch.zeros(25, 2), batch_size=-1)


def test_what_comes_before_the_random_weights_runs_once_for_a_group_of_samples() -> None:
    calls = []

    class Trunk(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(x))
            return super().forward(x)

    torch.manual_seed(0)
    q = make(nn.Sequential(Trunk(2, 300), nn.Tanh(), nn.Linear(300, 1)), stochastic="2.*")
    x = torch.randn(module.NUMBERS_AT_ONCE // 600, 2)
    alone = q.predict(x[:3], samples=20)
    calls.clear()
    whole = q.predict(x, samples=20)
    assert len([rows for rows in calls if rows > 1]) <= 4, "two batches; a few groups of samples, and not one for each"
    torch.testing.assert_close(whole.means[:, :3], alone.means)


def test_a_method_called_stages_that_means_something_else_does_not_matter() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(2, 3), nn.Linear(3, 1)

        def stages(self) -> list[nn.Module]:
            return [self.first]

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x))  # type: ignore[no-any-return]

    assert make(Net(), stochastic="last.*").predict(torch.zeros(4, 2), samples=3).mean.shape == (4, 1)


def test_prediction_does_not_read_the_module_again() -> None:
    q = make()
    before = q.predict(torch.ones(3, 2)).mean
    q.network.module.double()
    torch.testing.assert_close(q.predict(torch.ones(3, 2)).mean, before)


def test_outputs_that_overflow_are_refused() -> None:
    q = make()
    with pytest.raises(ValueError, match=r"the network's output has \d+ NaN or infinite values"):
        replace(q, weights=q.weights.replace(mu=1e3 * q.weights.mu)).predict(torch.full((1, 2), 3e38))


def test_a_pruned_weight_is_zero_in_every_sample() -> None:
    pruned = make().pruned(0.5).weights
    phis = pruned.sample(torch.randn(10, len(pruned.mu)))
    assert int((phis == 0).all(0).sum()) == round(0.5 * len(pruned.mu))
    with pytest.raises(ValueError, match="between 0 and 1"):
        make().pruned(1.1)


def test_inputs_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x must have 2 axes as in fit, got the shape \(5, 4, 2\)"):
        make().predict(torch.zeros(5, 4, 2))


def test_a_forecast_that_cannot_be_rescaled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    q = make()
    labels = mp.Bernoulli().forecast(torch.rand(2, 3, 1), {})
    monkeypatch.setattr(mp.Gaussian, "forecast", lambda *_: labels)
    assert q.predict(torch.randn(3, 2)).mean.shape == (3, 1)
    standardised = replace(q, target_scale=TargetScale(torch.zeros(()), torch.full((), 3.0)))
    with pytest.raises(TypeError, match="standardize=False"):
        standardised.predict(torch.randn(3, 2))
