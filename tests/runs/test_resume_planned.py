"""Networks whose gradients are planned by memory go on as they began, whatever is free at the next start."""

import json
from pathlib import Path

import pytest

from metaprior.metagrad import memory, planner
from metaprior.runs.build import choices_of
from metaprior.runs.checkpoints import way_of_checkpoint
from tests.runs.tiny import PowerFailure, assert_same_run, at_step, fail, request, run

PLENTY = 1e12
ANOTHER_WAY = "note: gradients are now computed another way"


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny network counts as a large one, and its process as empty."""
    monkeypatch.setattr(planner, "SMALL", 10)
    for module in (memory, planner):
        monkeypatch.setattr(module, "in_use", lambda: 0.0)


@pytest.fixture
def little(tmp_path: Path) -> float:
    """Free memory of which the budget, a half, is just enough for the smallest choice."""
    return 2 * min(choice.peak for choice in choices_of(request(tmp_path / "look").config))


def free(monkeypatch: pytest.MonkeyPatch, amount: float) -> None:
    monkeypatch.setattr(memory, "available", lambda: amount)


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was killed in its twelfth step."""
    at_step(monkeypatch, 11, fail)
    with pytest.raises(PowerFailure):
        run(folder)
    return folder


def test_more_free_memory_at_the_next_start_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little: float
) -> None:
    free(monkeypatch, little)
    run(tmp_path / "undisturbed")
    folder = stopped(tmp_path / "run", monkeypatch)
    before = way_of_checkpoint(folder / "checkpoints", "last")
    free(monkeypatch, PLENTY)
    fresh = stopped(tmp_path / "fresh", monkeypatch)
    assert way_of_checkpoint(fresh / "checkpoints", "last") != before, "it would be planned differently"
    said = run(folder, resume=True)
    assert not any(ANOTHER_WAY in line for line in said)
    assert way_of_checkpoint(folder / "checkpoints", "last") == before
    assert_same_run(folder, tmp_path / "undisturbed")


def test_what_no_longer_fits_is_planned_anew_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little: float
) -> None:
    free(monkeypatch, PLENTY)
    folder = stopped(tmp_path / "run", monkeypatch)
    before = way_of_checkpoint(folder / "checkpoints", "last")
    free(monkeypatch, little)
    said = run(folder, resume=True)
    assert before is not None
    assert f"before: {before.engine}, one by one, micro-batch {before.micro_batch})" in said[1]
    assert said[1].startswith(ANOTHER_WAY)
    assert way_of_checkpoint(folder / "checkpoints", "last") != before


def test_no_checkpoint_tells_no_way(tmp_path: Path) -> None:
    assert way_of_checkpoint(tmp_path, "last") is None
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "checkpoint.json").write_text(json.dumps({"format": "other"}))
    assert way_of_checkpoint(tmp_path, "last") is None
