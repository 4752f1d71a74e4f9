"""Further training on an archive is scored on patches of the tasks of another benchmark, in the units of the frames."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.common import budget
from benchmarks.common.benchmark import Context
from benchmarks.solar.archives import himawari
from benchmarks.worlds import continued
from metaprior.solar.maps.nowcast.moments import Moments
from tests.benchmarks.tiny import TINY
from tests.solar.maps.nowcast.small import nowcaster

SETTINGS = TINY["worlds"]


def test_it_is_measured_and_told(made_up_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "TRIAL_STEPS", 3)
    rows = continued.continued(Context(SETTINGS, made_up_data), nowcaster())
    assert continued.headline_of(rows) == {"continued_crps": rows[0]["crps"]}
    assert all(np.isfinite(float(rows[0][name])) for name in ("crps", "crps_zero_shot", "crps_validation"))
    assert (rows[0]["learning_rate"], rows[0]["tasks"]) == (1e-3, 1)


def test_without_data_there_is_no_row(tmp_path: Path) -> None:
    assert continued.headline_of(continued.continued(Context(SETTINGS, tmp_path), nowcaster())) == {}


def test_a_patch_has_the_forecast_of_the_whole_frame(made_up_data: Path) -> None:
    archive, own = himawari(made_up_data), nowcaster()
    moments = Moments(archive.frames["test"])
    tasks = archive.tasks("test", seed=continued.TEST_SEED, **replace(SETTINGS, continued_patch=8).continued_sizes)
    found = continued.on_patches(own, moments, tasks)(tasks[0], 0)
    window = tasks.windows(0).query[3]
    whole = own.predict(moments.batch(window.start + 3))
    rows, columns = slice(window.y, window.y + 8), slice(window.x, window.x + 8)
    loc, scale = tasks.reader.decoding(window)
    torch.testing.assert_close((loc + scale * found.mean[3])[:, :], whole.mean[0, :, rows, columns].to(found.mean))
    torch.testing.assert_close(scale * found.std[3], whole.std[0, :, rows, columns].to(found.std))
