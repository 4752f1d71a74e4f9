"""From an archive to a forecast: the time of issue, what is assumed, and how far it can be trusted."""

import numpy as np
import pytest
import torch

from metaprior.solar.maps.nowcast import blocks, nowcasting
from metaprior.solar.maps.nowcast.adapting import adapted
from metaprior.solar.maps.nowcast.nowcasting import Made, calibrated, checked_on, nowcast_archive, summary, windows_of
from tests.solar.maps.nowcast.small import moments, nowcaster


def test_the_forecast_follows_the_last_frame() -> None:
    archive = moments()
    found = nowcast_archive(archive.frames, forecaster=nowcaster())
    assert found.issued == archive.times[-1]
    assert found.valid[0] == archive.times[-1] + np.timedelta64(15, "m")
    assert found.forecast.mean.shape == (1, 4, 32, 32)
    assert bool(found.window.targets.isnan().all())
    assert "15 minutes apart" in summary(found)


def test_later_frames_change_nothing() -> None:
    archive = moments()
    found = nowcast_archive(archive.frames, at=str(archive.times[25]), forecaster=nowcaster())
    cut = archive.frames.isel(time=slice(0, 26))
    again = nowcast_archive(cut, forecaster=nowcaster())
    assert torch.equal(found.forecast.mean, again.forecast.mean)
    assert found.forecaster.factors == again.forecaster.factors


def test_adapting_later_frames_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nowcasting, "adapted", lambda *given, **options: adapted(*given, **{**options, "steps": 2}))
    archive = moments()
    found = nowcast_archive(archive.frames, at=archive.times[25], adapt=True, forecaster=nowcaster())
    again = nowcast_archive(archive.frames.isel(time=slice(0, 26)), adapt=True, forecaster=nowcaster())
    assert torch.equal(found.forecast.mean, again.forecast.mean)
    assert "have learned from" in summary(found)


def test_a_time_that_is_not_possible_names_the_nearest() -> None:
    archive = moments()
    with pytest.raises(ValueError, match=r"at must be the time of a frame .* nearest is 2023"):
        nowcast_archive(archive.frames, at="2023-01-01T00:01", forecaster=nowcaster())


def test_an_archive_without_frames_in_a_row_is_refused() -> None:
    archive = moments()
    with pytest.raises(ValueError, match="4 frames in a row, 15 minutes apart"):
        nowcast_archive(archive.frames[::3], forecaster=nowcaster())


def test_one_sequence_alone_is_forecast_and_said() -> None:
    found = nowcast_archive(moments().frames[:4], forecaster=nowcaster())
    assert found.checked is None
    assert "nothing in the archive is early enough" in summary(found)


def test_moments_of_one_day_do_not_make_bands_narrower() -> None:
    archive, prior = moments(days=1, frames=20), nowcaster()
    made = checked_on(prior, archive, archive.times[-1])
    assert made.checked is not None
    narrow = made.checked._replace(factors=(0.5, 0.9, 1.5, 2.0))
    assert calibrated(Made(prior, narrow, "")).factors == (1.0, 1.0, 1.5, 2.0)


def test_large_frames_are_checked_by_one_block_of_each_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = moments()
    positions = archive.whole()[:3]
    assert [one.frames.shape[-2:] for one in windows_of(archive, positions)] == [(32, 32)] * 3
    monkeypatch.setattr(blocks, "LARGEST", 20)
    monkeypatch.setattr(blocks, "OVERLAP", 4)
    seen = windows_of(archive, positions)
    assert [one.frames.shape[-2:] for one in seen] == [(18, 18)] * 3
    whole = archive.batch(int(positions[1]))
    assert torch.equal(seen[1].frames, whole.frames[..., :18, 14:])
    assert torch.equal(seen[1].targets, whole.targets[..., :18, 14:])


def test_first_light_is_told() -> None:
    archive = moments(days=2)
    frames = archive.frames.copy()
    frames[:, :, :] = frames.values * np.where(np.arange(len(frames)) % 10 < 5, 0.0, 1.0)[:, None, None]
    dawn = nowcast_archive(frames, at=archive.times[15], forecaster=nowcaster())
    assert any("first light" in line for line in dawn.trusted)
    day = nowcast_archive(frames, at=archive.times[18], forecaster=nowcaster())
    assert not any("first light" in line for line in day.trusted)


def test_what_the_archive_lacks_and_where_it_ends_is_told() -> None:
    frames = moments().frames.copy()
    dark = frames.copy(data=frames.values)
    dark.values[-3:] = 0.0
    dark.attrs = frames.attrs
    found = nowcast_archive(dark, forecaster=nowcaster(), checked=1)
    assert any("the archive goes on until" in line for line in found.assumed)
    night = frames.copy(data=np.zeros_like(frames.values))
    night.attrs = frames.attrs
    found = nowcast_archive(night, forecaster=nowcaster(), checked=1)
    assert found.trusted[0].startswith("the last frame seen shows almost nothing")
    short = frames[-3:]
    found = nowcast_archive(short, at=short.time.values[-1], forecaster=nowcaster())
    assert "the archive lacks 1 of the 4 frames to be seen" in found.assumed
