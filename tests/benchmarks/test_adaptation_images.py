"""The image parts of the adaptation benchmark, on small made-up data."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.adaptation import maps, omniglot
from benchmarks.adaptation.map_tasks import DayBefore
from benchmarks.common.benchmark import Context
from benchmarks.solar.archives import himawari
from metaprior.evaluation import Evaluation
from metaprior.tasks.task import Examples
from tests.benchmarks.tiny import CHARACTERS, PLACES

pytestmark = pytest.mark.usefixtures("short_search")


def test_one_training_on_many_classes_is_scored_at_both_numbers_of_shots(made_up_data: Path) -> None:
    part = omniglot.measure(Context(CHARACTERS, made_up_data))
    cells = {(row["method"], row["shots"]): row for row in part.rows}
    methods = (omniglot.CLOSED_FORM, omniglot.PROTOTYPE)
    assert list(cells) == [(method, shots) for method in methods for shots in omniglot.SHOTS]
    assert all(row["tasks"] == CHARACTERS.test_tasks and row["accuracy"] > 0.5 for row in part.rows)
    own = [cells[omniglot.CLOSED_FORM, shots] for shots in omniglot.SHOTS]
    assert part.headline == {
        "omniglot_1": own[0]["accuracy"],
        "omniglot_5": own[1]["accuracy"],
        "omniglot_ece": max(row["ece"] for row in own),
    }


@pytest.mark.parametrize(("module", "settings"), [(omniglot, CHARACTERS), (maps, PLACES)])
def test_without_data_a_part_is_skipped_with_the_reason(module: object, settings: object, tmp_path: Path) -> None:
    part = module.measure(Context(settings, tmp_path))  # type: ignore[attr-defined]
    assert not part.rows
    assert not part.headline
    assert "skipped" in part.notes[0]
    assert "does not exist" in part.notes[0]


def test_channels_are_last_in_memory_from_the_first_convolution_on() -> None:
    network = omniglot.network(CHARACTERS)
    x = torch.randn(2, 1, 28, 28)
    features = network[:2](x)
    assert features.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(network[1:](x), network(x))
    assert network(x).shape == (2, CHARACTERS.ways)


def test_the_nearest_prototype_is_the_mean_of_a_class() -> None:
    support = Examples(torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 0, 1]))
    forecast = omniglot.Prototypes(nn.Identity(), support, temperature=2.0).predict(torch.tensor([[1.0, 1.0]]))
    torch.testing.assert_close(forecast.logits, -torch.tensor([[[1.0, 10.0]]]), rtol=1e-5, atol=1e-5)


def test_support_windows_are_of_the_day_before(made_up_data: Path) -> None:
    archive = himawari(made_up_data)
    tasks = DayBefore(archive, "test", sizes=(0, 3), k_query=2, patch=16, seed=0)
    drawn = [tasks[index] for index in range(6)]
    assert {task.support.size for task in drawn} == {0, 3}
    assert all(task.query.size == 2 and task.query.y.shape[1:] == (4, 16, 16) for task in drawn)
    assert torch.equal(tasks[3].query.x, drawn[3].query.x)
    frames = archive.frames["test"]
    task = next(task for task in drawn if task.support.size)
    row, column, day = re.fullmatch(r"row (\d+), column (\d+) on (\S+)", task.name).groups()  # type: ignore[union-attr]
    for examples, later in ((task.support, 0), (task.query, 1)):
        own = frames.sel(time=str(np.datetime64(day) + later))[
            :, int(row) : int(row) + 16, int(column) : int(column) + 16
        ]
        for x, y in zip(*examples, strict=True):
            window = (torch.cat([x, y]).numpy() + 1) / 2 * 255
            assert any(np.allclose(own[start : start + 8], window, atol=0.01) for start in range(len(own) - 7))
    with pytest.raises(ValueError, match="no task found"):
        replace(tasks, k_query=100)[0]


def test_maps_are_scored_beside_the_pooled_network(made_up_data: Path) -> None:
    part = maps.measure(Context(PLACES, made_up_data))
    assert [(row["method"], row["shots"]) for row in part.rows] == [
        (maps.POOLED, 0),
        *((maps.CLOSED_FORM, shots) for shots in maps.SHOTS),
    ]
    assert part.rows[0]["ratio"] == 1
    assert all(0 < row["temperature"] < 1 and 0 <= row["coverage_90"] <= 1 for row in part.rows)
    assert part.headline == {"map_ratio_1": part.rows[2]["ratio"], "map_ratio_5": part.rows[3]["ratio"]}


def test_the_ratio_is_of_mean_scores_with_the_error_of_paired_differences() -> None:
    def scored(*crps: float) -> Evaluation:
        rows = [{"shots": 0, "crps": sum(crps) / len(crps), "crps_se": 0.0, "tasks": 2, "coverage_90": 0.9, "steps": 0}]
        return Evaluation(rows, [{"shots": 0, "crps": value} for value in crps], {})

    row = maps.row_of("x", scored(1.1, 3.3), 0, scored(1.0, 3.0))
    assert row["ratio"] == pytest.approx(1.1)
    assert row["ratio_se"] == pytest.approx(0.05)
