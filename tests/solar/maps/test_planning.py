"""``metaprior plan`` of a configuration: from sizes alone, where they are known."""

from pathlib import Path

import pytest

from metaprior.runs.build import choices_of
from metaprior.runs.reading import read_config
from metaprior.solar.maps import source
from tests.runs.test_configs import CONFIGS as ALL
from tests.solar.maps.tiny_run import request

CONFIGS = ALL[0].parent


def test_a_task_of_the_size_has_the_shapes_of_a_real_one(june: Path, tmp_path: Path) -> None:
    config = request(tmp_path / "run", june).config
    settings = config.task_settings
    noise, real = settings.task_of_the_size(config.model), settings.open(progress=False).tasks("train")[0]
    for part, of in ((noise.support, real.support), (noise.query, real.query)):
        assert (part.x.shape, part.y.shape) == (of.x.shape, of.y.shape)


def test_nothing_is_opened_for_a_plan(june: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SolarSource", lambda *_, **__: pytest.fail("opened"))
    choices = choices_of(request(tmp_path / "run", june).config)
    assert all(choice.peak > 0 for choice in choices)


def test_where_the_size_is_not_known_a_real_task_is_needed(june: Path, tmp_path: Path) -> None:
    whole = request(tmp_path / "run", june, "tasks.patch=0").config
    assert whole.task_settings.task_of_the_size(whole.model) is None
    simulated = read_config(CONFIGS / "solar.toml", ["tasks.patch=0", "tasks.size=20"])
    assert simulated.task_settings.task_of_the_size(simulated.model).support.x.shape == (5, 8, 20, 20)
