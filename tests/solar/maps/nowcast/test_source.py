"""Windows of archives and worlds as tasks: what they hold, what they may not see, and what cannot be."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.solar.maps.nowcast.bank import Bank
from metaprior.solar.maps.nowcast.inputs import CHANNELS, LEADS
from metaprior.solar.maps.nowcast.moments import Moments
from metaprior.solar.maps.nowcast.source import (
    POOLED_WINDOWS,
    ArchiveSource,
    WindowTasks,
    WorldSource,
    WorldWindows,
    pooled_settings,
    positions_within,
)
from metaprior.solar.maps.nowcast.task_settings import NowcastTasks, WindowSettings, WorldsTasks
from metaprior.tasks.task import Task
from tests.solar.maps.nowcast.small import moments, world

SMALL = {"k_shot": 3, "k_query": 5, "patch": 16, "crops": 2}


def frames(days: int = 8, scale: float = 1.0) -> xr.DataArray:
    whole = world(days=days).to_frames()
    made = (whole * scale).assign_attrs(whole.attrs)
    for name in ("data_min", "data_max"):
        made.attrs[name] = scale * whole.attrs[name]
    return made


def archive(scale: float = 1.0, **changes: object) -> ArchiveSource:
    return ArchiveSource(NowcastTasks(path="world.nc", **{**SMALL, **changes}), frames(scale=scale))  # type: ignore[arg-type]


def equal(one: Task, other: Task) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip((*one.support, *one.query), (*other.support, *other.query), strict=True)
    )


def test_a_task_has_windows_as_the_network_sees_them_and_is_a_function_of_its_index() -> None:
    tasks = archive().tasks("train")
    task = tasks[3]
    assert task.support.x.shape == (3, CHANNELS, 16, 16)
    assert task.query.y.shape == (5, LEADS, 16, 16)
    assert bool(task.query.x.isfinite().all())
    assert equal(task, archive().tasks("train")[3])
    assert not equal(task, tasks[4])
    assert tasks.thread_safe


def test_units_of_the_archive_do_not_matter() -> None:
    one, other = (archive(scale).tasks("train")[0] for scale in (1.0, 1000.0))
    torch.testing.assert_close(one.query.y, other.query.y, rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(one.query.x, other.query.x, rtol=1e-2, atol=5e-2)


def test_purposes_have_days_of_their_own_and_query_windows_come_after_the_support_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, asked = archive(), list[int]()
    assert list(source.days) == ["train", "val", "test"]
    assert source.days["train"].last < source.days["val"].first
    real = Moments.batch
    monkeypatch.setattr(Moments, "batch", lambda own, position: asked.append(position) or real(own, position))
    times = source.moments.times
    for purpose, days in source.days.items():
        for index in range(4):
            asked.clear()
            source.tasks(purpose)[index]  # type: ignore[arg-type]
            support, query = asked[:2], asked[2:]
            assert len(query) == 3
            assert max(support) + LEADS < min(query) - 3
            assert days.first <= times[min(query) - 3]
            assert purpose != "train" or days.first <= times[min(support) - 3]
            assert times[max(query) + LEADS] < days.stop


def test_pooled_tasks_have_a_batch_of_windows_together_of_any_training_days() -> None:
    source = archive()
    for meta_batch in (1, 4, 16):
        task = source.pooled(meta_batch)[0]
        assert len(task.support.x) + len(task.query.x) == max(2, POOLED_WINDOWS // meta_batch)
    assert not equal(source.pooled(4)[0], source.pooled(4)[1])


def test_whole_frames_and_large_frames() -> None:
    whole = archive(patch=0).tasks("train")[0]
    assert whole.query.x.shape[-2:] == (32, 32)
    large = moments(days=4, size=48)
    positions = large.whole()
    settings = WindowSettings(**{**SMALL, "patch": 16})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaprior.solar.maps.nowcast.source.REGION", 20)
        assert WindowTasks(large, positions, positions, settings, 0)[0].query.x.shape[-2:] == (16, 16)


def test_missing_values_are_missing_targets_and_no_missing_inputs() -> None:
    holed = frames()
    holed.values[:, :20] = np.nan
    source = ArchiveSource(NowcastTasks(path="x.nc", **{**SMALL, "patch": 0}), holed)  # type: ignore[arg-type]
    task = source.tasks("train")[0]
    assert bool(task.query.x.isfinite().all())
    assert bool(task.query.y[:, :, :20].isnan().all())
    assert bool(task.query.y[:, :, 20:].isfinite().all())
    cut = ArchiveSource(NowcastTasks(path="x.nc", **SMALL), holed).tasks("train")  # type: ignore[arg-type]
    assert all(bool(cut[index].query.y.isfinite().any()) for index in range(5))


def test_few_days_are_divided_by_hours() -> None:
    source = ArchiveSource(NowcastTasks(path="x.nc", **SMALL), world(days=2, frames=70).to_frames())  # type: ignore[arg-type]
    assert source.days["train"].first.dtype == "datetime64[s]"
    assert len(source.tasks("train")[0].query.x) == 5


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"patch must fit into frames of \(32, 32\) pixels, got 40"):
        archive(patch=40)
    with pytest.raises(ValueError, match="there must be 8 frames in a row, 15 minutes apart, within"):
        positions_within(Moments(frames()[::3]), archive().days["train"])
    dark = frames()
    dark.values[:] = 0.0
    with pytest.raises(ValueError, match="a task needs windows of 8 frames that show something"):
        ArchiveSource(NowcastTasks(path="x.nc", **SMALL), dark).tasks("train")[0]  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="bank must be a folder of worlds, got nowhere"):
        WorldSource(WorldsTasks(bank="nowhere")).tasks("train")


def test_a_changed_archive_is_refused(tmp_path: Path) -> None:
    run, source = RunFolder(tmp_path), archive()
    run.write_json(source.file, source.describe())
    source.check_description(run)
    with pytest.raises(RunFolderError, match="data_max"):
        archive(scale=2.0).check_description(run)
    assert "80 frames of 32 x 32 pixels, 15 minutes apart; train" in source.summary


def test_each_world_is_a_task_of_its_own() -> None:
    source = WorldSource(WorldsTasks(k_shot=1, k_query=2, patch=32))
    train, test = source.tasks("train"), source.tasks("test")
    assert train[0].query.x.shape == (2, CHANNELS, 32, 32)
    assert equal(train[1], source.tasks("train")[1])
    assert not equal(train[0], test[0])
    assert train[0].name != train[1].name
    assert isinstance(source.pooled(8), WorldWindows)
    assert len(source.pooled(8)[0].query.x) == 1
    assert source.describe() == {}


def test_a_bank_is_trained_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SIZE", 32), ("DAYS", 2), ("FRAMES", 8)):
        monkeypatch.setattr(f"metaprior.solar.maps.nowcast.bank.{name}", value)
    bank, rng = Bank(tmp_path, 2), np.random.default_rng(0)
    bank.values[:] = rng.standard_normal(bank.values.shape).cumsum(-1) / 5
    bank.sine[:] = 0.5
    bank.facts[:] = (0.0, 1.0, 15.0, 0.0)
    source = WorldSource(WorldsTasks(bank=str(tmp_path), k_shot=1, k_query=2, patch=16))
    task = source.tasks("train")[5]
    assert task.query.x.shape == (2, CHANNELS, 16, 16)
    assert equal(task, source.tasks("train")[5])
    assert not equal(task, source.pooled(4)[5])
    assert isinstance(source.tasks("val"), WorldWindows)
    assert source.describe() == {"worlds": 2}


def test_counts_of_a_pooled_batch() -> None:
    assert pooled_settings(WorldsTasks(), 3) == replace(WorldsTasks(), k_shot=2, k_query=3)
