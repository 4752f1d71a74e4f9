"""Processes that torchrun has started again, and a folder that is theirs or somebody else's; threads for processes."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from metaprior.runs import finish
from metaprior.runs.checkpoints import CheckpointName
from metaprior.runs.finish import evaluate_run
from metaprior.runs.folder import RunFolderError
from metaprior.runs.program import SAVED, STARTED, train
from metaprior.team import OtherRankFailed, Team
from metaprior.team.agreement import Disagreement
from metaprior.training.trainer import StepReport, Trainer
from tests.runs.tiny import PowerFailure, assert_same_run, request
from tests.team.fake import outcomes


def start(folder: Path, kept: str = "", resume_from: CheckpointName = "last") -> tuple[Sequence[object], list[str]]:
    """Two ranks; what became of them, and what was said."""
    said: list[str] = []
    asked = replace(request(folder, resume=resume_from != "last"), resume_from=resume_from)

    def work(team: Team) -> str:
        train(asked, said.append if team.first else lambda _: None)
        return team.kept()

    return outcomes(2, work, kept), said


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of two ranks that nobody has disturbed, and one of which all processes ended at step 9."""
    folder, real = tmp_path_factory.mktemp("two"), Trainer.step

    def step(self: Trainer) -> StepReport:
        if self.progress.step == 9:
            raise PowerFailure
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "draw", lambda *_: [])
        start(folder / "undisturbed")
        patch.setattr(Trainer, "step", step)
        found, _ = start(folder / "begun")
    assert {type(outcome) for outcome in found} == {PowerFailure}
    return {name: folder / name for name in ("undisturbed", "begun")}


@pytest.fixture
def begun(by_two: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(by_two["begun"], tmp_path / "begun")


@pytest.mark.parametrize("kept", [STARTED, SAVED])
def test_what_is_started_again_goes_on_without_being_told_to(begun: Path, by_two: dict[str, Path], kept: str) -> None:
    found, said = start(begun, kept)
    assert found == [SAVED, SAVED], "and says so to those that may be started next"
    assert said[0] == "resuming from checkpoints/last, step 9"
    assert_same_run(begun, by_two["undisturbed"])


def test_a_folder_that_is_not_theirs_is_not_gone_on_with(begun: Path) -> None:
    found, _ = start(begun)
    assert isinstance(found[0], RunFolderError)
    assert isinstance(found[1], OtherRankFailed)


@pytest.mark.parametrize(("kept", "step"), [("", 8), (STARTED, 8), (SAVED, 9)])
def test_another_checkpoint_is_begun_from_once(begun: Path, kept: str, step: int) -> None:
    """Not again when the processes have gone on from there."""
    _, said = start(begun, kept, "previous")
    assert f", step {step}" in said[0]


def test_ranks_that_are_asked_for_different_evaluations_stop(by_two: dict[str, Path]) -> None:
    found = outcomes(2, lambda team: evaluate_run(by_two["undisturbed"], tasks=2 + team.rank))
    assert isinstance(found[0], Disagreement)
    assert "--tasks: rank 0 has 2, rank 1 has 3" in str(found[0])
