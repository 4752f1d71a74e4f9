"""Keys of tasks for the network of nowcasts are checked before anything is opened."""

from pathlib import Path

import pytest

from metaprior.runs.config import Choice
from metaprior.solar.maps.nowcast.inputs import CHANNELS, LEADS
from metaprior.solar.maps.nowcast.task_settings import NowcastTasks, WorldsTasks


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"patch": 8}, "patch must be at least 16 pixels, or 0 for the whole frame, got 8"),
        ({"crops": 0}, "crops must be an integer of at least 1, got 0"),
        ({"train_before": "2026-2-1"}, "train_before must be a day such as 2026-02-10"),
        ({"train_before": "2026-02-02", "test_from": "2026-02-01"}, "test_from must be at least a day after"),
    ],
)
def test_keys_of_an_archive(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        NowcastTasks(path="x.nc", **given)  # type: ignore[arg-type]


def test_keys_of_worlds() -> None:
    with pytest.raises(ValueError, match="patch must be at most 128, the pixels of a world"):
        WorldsTasks(patch=200)
    with pytest.raises(ValueError, match="patch must be a multiple of 4 with a bank, got 18"):
        WorldsTasks(bank="bank", patch=18)


def test_they_are_for_the_network_of_nowcasts() -> None:
    fitting = Choice("nowcast", {})
    assert WorldsTasks().misfits(fitting, fitting) == []
    assert WorldsTasks().misfits(Choice("unet", {}), Choice("crps", {})) == [
        "model.kind is 'unet'; these tasks need 'nowcast'",
        "likelihood.kind is 'crps'; these tasks need 'nowcast'",
    ]


def test_a_task_for_planning_and_what_comes_next() -> None:
    task = NowcastTasks(path="x.nc", k_shot=1, k_query=2, patch=16).task_of_the_size(Choice("nowcast", {}))
    assert task is not None
    assert (task.support.x.shape, task.query.y.shape) == ((1, CHANNELS, 16, 16), (2, LEADS, 16, 16))
    assert NowcastTasks(path="x.nc", patch=0).task_of_the_size(Choice("nowcast", {})) is None
    out = "--out mine_forecast.nc"
    assert NowcastTasks(path="x.nc").next_commands(Path("mine")) == [f"metaprior nowcast x.nc --prior mine {out}"]
    assert WorldsTasks().next_commands(Path("mine")) == [f"metaprior nowcast archive.nc --prior mine {out}"]
