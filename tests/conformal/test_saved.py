"""A calibration is the same after it was saved, and no other file is one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from metaprior import conformal
from metaprior.errors import CheckpointError
from tests.conformal.made_up import classes, drawn, drawn_labels, normal
from tests.conformal.test_tasks import Blind, fitted, offsets


def saved(calibration: Any, folder: Path) -> Any:
    conformal.save(calibration, folder / "conformal.json")
    return conformal.load(folder / "conformal.json")


def test_intervals(tmp_path: Path) -> None:
    x, y = drawn(40, 2), drawn(40, 2, seed=1)
    y[:35, 1] = float("nan")
    with pytest.warns(UserWarning, match="infinite"):
        found = conformal.intervals(normal(x), y, score="std")
    again = saved(found, tmp_path)
    assert repr(again) == repr(found)
    for one, other in zip(found.interval(normal(x)), again.interval(normal(x)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("names", [("a", "b"), (1, 2), (0.5, 1.5)])
def test_sets_by_groups(tmp_path: Path, names: tuple[Any, Any]) -> None:
    probabilities, groups = drawn(80, 3).softmax(1), [*names] * 40
    found = conformal.sets(classes(probabilities), drawn_labels(probabilities), groups=groups)
    again = saved(found, tmp_path)
    assert again.groups.keys() == found.groups.keys()
    assert torch.equal(found.sets(classes(probabilities), groups), again.sets(classes(probabilities), groups))


def test_over_tasks(tmp_path: Path) -> None:
    found = fitted(Blind(6, 1), offsets(12, 6, 1), shots=(0, 2, None), share=0.5)
    again = saved(found, tmp_path)
    assert repr(again) == repr(found)
    assert again.after(None).as_json() == found.after(None).as_json()


@pytest.mark.parametrize(
    "change",
    [{"format": "other"}, {"level": 2}, {"score": "aps"}, {"kind": "Other"}, {"more": 1}, {"threshold": [1, 2]}],
)
def test_other_files_raise(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "conformal.json"
    conformal.save(conformal.intervals(normal(drawn(20)), drawn(20)), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=r"conformal\.json"):
        conformal.load(path)
    path.write_text("[1, 2")
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        conformal.load(path)
