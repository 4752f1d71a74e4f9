"""A nowcaster forecasts in the units of the frames, whatever they are, and comes back from its folder the same."""

from pathlib import Path

import pytest
import torch

from metaprior.errors import CheckpointError
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.forecaster import PRIOR, Nowcaster
from metaprior.solar.maps.nowcast.inputs import INPUTS, LEADS, Known
from tests.solar.maps.nowcast.small import moments, nowcaster


def window(height: int = 24, width: int = 20, scale: float = 1.0) -> Batch:
    frames = scale * torch.rand(1, INPUTS, height, width, generator=torch.Generator().manual_seed(0))
    targets = frames.new_full((1, LEADS, height, width), torch.nan)
    return Batch(frames, targets, Known.nothing(frames), torch.tensor([15.0]))


def test_units_do_not_matter() -> None:
    own = nowcaster()
    one, other = own.predict(window()), own.predict(window(scale=1e4))
    torch.testing.assert_close(other.mean, 1e4 * one.mean, rtol=1e-3, atol=1.0)
    torch.testing.assert_close(other.std, 1e4 * one.std, rtol=1e-3, atol=1.0)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 40), (13, 11), (61, 51)])
def test_frames_of_any_size_are_forecast(height: int, width: int) -> None:
    found = nowcaster().predict(window(height, width))
    assert found.mean.shape == (1, LEADS, height, width)
    assert bool(found.mean.isfinite().all())
    assert float(found.std.min()) > 0


def test_factors_widen_each_lead_time() -> None:
    own = nowcaster()
    wide = own.with_factors((1.0, 2.0, 3.0, 0.5)).predict(window())
    ratio = (wide.std / own.predict(window()).std).mean((0, 2, 3))
    torch.testing.assert_close(ratio, torch.tensor([1.0, 2.0, 3.0, 0.5]))


def test_a_saved_nowcaster_forecasts_the_same(tmp_path: Path) -> None:
    own = nowcaster().with_factors((1.0, 1.1, 1.2, 1.3))
    own.save(tmp_path / "prior")
    again = Nowcaster.pretrained(tmp_path / "prior")
    assert (again.shares, again.factors, again.told) == (own.shares, own.factors, own.told)
    assert torch.equal(again.predict(window()).mean, own.predict(window()).mean)


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises((CheckpointError, FileNotFoundError)):
        Nowcaster.pretrained(tmp_path)


def test_the_prior_of_the_package_is_small_and_better_than_persistence_on_a_world_it_has_not_seen() -> None:
    assert sum(path.stat().st_size for path in PRIOR.iterdir()) < 5_000_000
    archive = moments(days=4, frames=10, size=32)
    own, errors = Nowcaster.pretrained(), []
    for position in archive.whole()[-3:].tolist():
        seen = archive.batch(position)
        last = seen.frames[:, -1:]
        found = own.predict(seen)
        errors.append([float(((point - seen.targets) ** 2).nanmean()) for point in (found.mean, last)])
    ours, persistence = torch.tensor(errors).mean(0).tolist()
    assert ours < persistence
