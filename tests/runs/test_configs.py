"""Every configuration that comes with the package loads, and trains."""

import math
from pathlib import Path

import pytest

from metaprior.runs.build import examples_per_shot, learner_of, training_tasks, unseen_tasks
from metaprior.runs.reading import read_config
from metaprior.tasks.omniglot import IMAGES
from tests.conftest import folder_with

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


def test_there_is_one_for_every_kind_of_tasks() -> None:
    assert [path.stem for path in CONFIGS] == ["drifting_blobs", "omniglot", "sine_or_line", "sinusoid", "wheel"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_it_takes_steps_of_every_phase_with_finite_losses(path: Path) -> None:
    if path.stem == "omniglot":
        folder_with(IMAGES)
    small = (
        "meta.epochs=1",
        "meta.tasks_per_epoch=4",
        "meta.meta_batch=2",
        "meta.scales_first=0.5",
        "meta.search_step_size=false",
    )
    config = read_config(path, [*small, f"meta.warm_start={1 if path.stem == 'drifting_blobs' else 0}"])
    trainer = learner_of(config).trainer(training_tasks(config), config.meta)
    reports = [trainer.step() for _ in range(config.meta.steps)]
    assert [report.phase.name for report in reports][-2:] == ["scales", "everything"]
    assert all(math.isfinite(report.loss) for report in reports)
    assert all(report.tasks == 2 for report in reports)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_tasks_to_validate_and_to_test_are_others(path: Path) -> None:
    if path.stem == "omniglot":
        folder_with(IMAGES)
    config = read_config(path)
    train, val, test = training_tasks(config), unseen_tasks(config, "val", 2), unseen_tasks(config, "test", 2)
    firsts = [tasks[0].support.x for tasks in (train, val, test)]
    assert not firsts[0].equal(firsts[1])
    assert not firsts[1].equal(firsts[2])
    assert not firsts[0].equal(firsts[2])
    assert len(val) == len(test) == 2
    assert val[1].support.x.equal(unseen_tasks(config, "val", 2)[1].support.x)
    assert examples_per_shot(config) == (5 if path.stem == "omniglot" else 1)
