"""``metaprior plan`` of a solar configuration: from sizes alone."""

from pathlib import Path

import pytest

from metaprior.runs import build
from metaprior.runs.build import training_tasks
from metaprior.runs.planning import choices_of, task_of_the_size
from metaprior.runs.reading import read_config
from tests.runs.test_configs import CONFIGS as ALL
from tests.runs.tiny import request as waves
from tests.runs.tiny_solar import NIGHTS, request

pytestmark = NIGHTS

CONFIGS = ALL[0].parent


def test_a_task_of_the_size_has_the_shapes_of_a_real_one(june: Path, tmp_path: Path) -> None:
    config = request(tmp_path / "run", june).config
    noise, real = task_of_the_size(config), training_tasks(config)[0]
    assert noise is not None
    for part, of in ((noise.support, real.support), (noise.query, real.query)):
        assert (part.x.shape, part.y.shape) == (of.x.shape, of.y.shape)


def test_nothing_is_opened_for_a_plan(june: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_source", lambda *_: pytest.fail("opened"))
    choices = choices_of(request(tmp_path / "run", june).config)
    assert all(choice.peak > 0 for choice in choices)


def test_where_the_size_is_not_known_a_real_task_is_needed(june: Path, tmp_path: Path) -> None:
    assert task_of_the_size(request(tmp_path / "run", june, "tasks.patch=0").config) is None
    assert task_of_the_size(waves(tmp_path / "waves").config) is None
    simulated = task_of_the_size(read_config(CONFIGS / "solar.toml", ["tasks.patch=0", "tasks.size=20"]))
    assert simulated is not None
    assert simulated.support.x.shape == (5, 8, 20, 20)
