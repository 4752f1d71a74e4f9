"""Learning from windows lowers the loss on them; held-out forecasts are by networks that did not see the window."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from metaprior.solar.maps.nowcast import adapting
from metaprior.solar.maps.nowcast.adapting import adapted, fine_tuned, learned_from
from metaprior.solar.maps.nowcast.backtest import score_forecast
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.network import NowcastNetwork
from metaprior.solar.maps.nowcast.training import relative_loss
from tests.solar.maps.nowcast.small import moments, nowcaster


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapting, "CROP", 16)


def windows(count: int = 4) -> list[Batch]:
    archive = moments()
    return [archive.batch(int(one)) for one in archive.whole()[:count]]


def test_training_goes_on_and_the_start_is_kept() -> None:
    own, seen = nowcaster().networks[0], learned_from(windows())
    before = {name: value.clone() for name, value in own.state_dict().items()}
    tuned = fine_tuned(own, seen, steps=20)
    with torch.no_grad():
        losses = [sum(float(relative_loss(net(one.x), one.x, one.targets)) for one in seen) for net in (own, tuned)]
    assert losses[1] < losses[0]
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())


def test_every_window_has_a_forecast_by_networks_that_did_not_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapting, "SHARES", (1.0,))
    given = windows(4)
    found = adapted(nowcaster(), given, steps=6)
    assert len(found.held_out) == 4
    assert len(found.forecaster.networks) == 4
    changed = list(given)
    changed[2] = given[2]._replace(targets=given[2].targets + 100)
    again = adapted(nowcaster(), changed, steps=6)
    assert torch.equal(found.held_out[2].mean, again.held_out[2].mean)
    assert not torch.equal(found.held_out[1].mean, again.held_out[1].mean)


def test_the_prior_keeps_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapting, "SHARES", (0.5, 1.0))
    prior = nowcaster()
    found = adapted(prior, windows(3), most=0.5, steps=2).forecaster
    assert found.networks[-2:] == prior.networks
    assert sum(found.shares) == pytest.approx(1)
    assert sum(found.shares[-2:]) == pytest.approx(0.5)


def test_what_does_not_help_on_windows_held_back_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def ruined(network: NowcastNetwork, *_: object, **__: object) -> NowcastNetwork:
        copy = deepcopy(network)
        with torch.no_grad():
            copy.output.residual.bias += 50.0
        return copy

    monkeypatch.setattr(adapting, "fine_tuned", ruined)
    prior, given = nowcaster(), windows(3)
    found = adapted(prior, given)
    assert found.share == 0
    assert found.forecaster.networks == prior.networks
    assert torch.equal(found.held_out[1].mean, prior.predict(given[1]).mean)


def test_the_share_is_that_with_the_lowest_crps_on_windows_held_back() -> None:
    given = [one._replace(targets=one.frames[:, -1:].expand(-1, 4, -1, -1) + 3.0) for one in windows(4)]
    found = adapted(nowcaster(), given, steps=30)
    assert found.share > 0
    own = np.mean([score_forecast(one, w.targets).crps for one, w in zip(found.held_out, given, strict=True)])
    as_it_was = np.mean([score_forecast(nowcaster().predict(w), w.targets).crps for w in given])
    assert own < as_it_was


def test_without_any_target_nothing_is_used() -> None:
    absent = [one._replace(targets=torch.full_like(one.targets, torch.nan)) for one in windows(3)]
    assert adapted(nowcaster(), absent, steps=1).share == 0
