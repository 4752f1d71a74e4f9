"""Every configuration that comes with the package loads, and trains."""

import functools
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.common import application
from benchmarks.common.omniglot import IMAGES
from metaprior.runs.build import learner_of
from metaprior.runs.config import KINDS, Config
from metaprior.runs.reading import read_config
from metaprior.runs.sources import open_tasks
from metaprior.solar import simulator
from metaprior.solar.simulator import simulate, write_frames
from tests.conftest import folder_with

FOLDERS = (Path(__file__).parents[2] / "configs", Path(application.__file__).parent / "configs")
CONFIGS = [path for folder in FOLDERS for path in sorted(folder.glob("*.toml"))]


def test_there_is_one_for_every_kind_of_tasks() -> None:
    kinds = {part.kind: path.stem for path in CONFIGS for part in read_config(path).tasks.parts}
    assert sorted(kinds) == sorted(KINDS["tasks"])
    assert set(kinds.values()) == {path.stem for path in CONFIGS}


Read = Callable[..., Config]


SMALL = {"days": 7, "size": 33, "start": "2025-06-01"}
simulated_once = functools.cache(simulate)


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """A configuration, with the small frames that it needs, if any; skipped where there are no data."""
    monkeypatch.setattr(simulator, "simulate", lambda *, progress, seed, **_: simulated_once(**SMALL))

    def opened(path: Path, *changes: str) -> Config:
        few = ["tasks.k_shot=2", "tasks.k_query=2"]
        if path.stem == "omniglot":
            folder_with(IMAGES)
        if path.stem == "sites":
            return read_config(path, [*changes, "tasks.plants=20", "tasks.days=40"])
        if path.stem == "solar":
            return read_config(path, [*changes, *few])
        if path.stem == "nowcast":
            write_frames(simulated_once(**SMALL), tmp_path / "sim.nc", overwrite=True)
            sizes = [f"tasks.{part}.{key}" for part in (0, 1) for key in ("patch=32", "k_shot=1", "k_query=2")]
            own = ["model.width=4", "model.levels=2", "warm_start.weights=", f"tasks.0.path={tmp_path / 'sim.nc'}"]
            return read_config(path, [*changes, *sizes, *own])
        if path.stem == "frames":
            write_frames(simulated_once(**SMALL), tmp_path / "sim.nc", overwrite=True)
            return read_config(path, [*changes, *few, f"tasks.path={tmp_path / 'sim.nc'}"])
        return read_config(path, changes)

    return opened


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_it_takes_steps_of_every_phase_with_finite_losses(path: Path, read: Read) -> None:
    small = (
        "meta.epochs=1",
        "meta.tasks_per_epoch=4",
        "meta.meta_batch=2",
        "meta.scales_first=0.5",
        "meta.search_step_size=false",
        "meta.balance_step_sizes=false",
    )
    warm = path.stem in ("drifting_blobs", "solar", "frames", "nowcast")
    config = read(path, *small, f"meta.warm_start={int(warm)}")
    source = open_tasks(config.task_settings, progress=False)
    pooled = source.pooled(config.meta.meta_batch) if warm else None
    trainer = learner_of(config).trainer(source.tasks("train"), config.meta, pooled)
    reports = [trainer.step() for _ in range(config.meta.steps)]
    assert [report.phase.name for report in reports][-2:] == ["scales", "everything"]
    assert all(math.isfinite(report.loss) for report in reports)
    assert all(report.tasks == 2 for report in reports)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_tasks_to_validate_and_to_test_are_others(path: Path, read: Read) -> None:
    config = read(path)
    source = open_tasks(config.task_settings, progress=False)
    firsts = [source.tasks(purpose, 2)[0].support.x for purpose in ("train", "val", "test")]
    assert not firsts[0].equal(firsts[1])
    assert not firsts[1].equal(firsts[2])
    assert not firsts[0].equal(firsts[2])
    first, again = source.tasks("val", 2), source.tasks("val", 2)
    assert first[1].support.x.equal(again[1].support.x)
    assert source.examples_per_shot == {"omniglot": 5, "sites": 24}.get(path.stem, 1)
