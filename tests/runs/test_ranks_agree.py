"""Ranks that were given different things, or have become different, stop with both values; threads for processes."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from metaprior.runs import opening
from metaprior.runs.program import train
from metaprior.runs.sources import GeneratedTasks
from metaprior.tasks import Sinusoids
from metaprior.team import OtherRankFailed, Team
from metaprior.team.agreement import Disagreement
from metaprior.training.trainer import StepReport, Trainer
from tests.runs.tiny import assert_same_run, request
from tests.team.fake import outcomes, together


def run_of(folder: Path, *changes: Callable[[int], str]) -> list[object]:
    """What becomes of two ranks, each with its own changes of the configuration."""

    def work(team: Team) -> None:
        train(request(folder, *(change(team.rank) for change in changes)), lambda _: None)

    return outcomes(2, work)


def assert_refused(found: list[object], folder: Path, *parts: str) -> None:
    first, second = found
    assert isinstance(first, Disagreement)
    assert isinstance(second, OtherRankFailed), "what rank 0 says need not be said twice"
    for part in parts:
        assert part in str(first)
    assert not folder.exists(), "nothing was written"


def in_turn(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Any, int], Any]) -> None:
    """Let a function of ``opening`` give the ranks, whichever comes first, different things."""
    real, numbers = getattr(opening, name), count()
    monkeypatch.setattr(opening, name, lambda *given, **options: change(real(*given, **options), next(numbers)))


def test_two_ranks_train_in_one_process(tmp_path: Path) -> None:
    """As often as one likes: what follows is not refused for another reason."""
    for name in ("one", "two"):
        together(2, lambda _, name=name: train(request(tmp_path / name), lambda _: None))  # type: ignore[misc]
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_another_configuration(tmp_path: Path) -> None:
    found = run_of(tmp_path / "run", lambda rank: f"meta.lr={0.1 + rank}", lambda rank: f"run.seed={rank}")
    lines = ("  meta.lr: rank 0 has 0.1, rank 1 has 1.1", "  run.seed: rank 0 has 0, rank 1 has 1")
    assert_refused(found, tmp_path / "run", *lines)


def test_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_turn(monkeypatch, "code_facts", lambda facts, number: {**facts, "code of metaprior": f"digest {number}"})
    found = run_of(tmp_path / "run")
    assert_refused(found, tmp_path / "run", "  code of metaprior: rank", "'digest 0'", "'digest 1'")


def test_other_data_under_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_turn(monkeypatch, "open_tasks", lambda _, number: GeneratedTasks(Sinusoids(3, 2, seed=number)))
    found = run_of(tmp_path / "run")
    assert_refused(found, tmp_path / "run", "  data of the first training task: rank 0 has ")
    assert "meta" not in str(found[0])


@pytest.mark.parametrize("options", [{"resume": True}, {"resume": True, "resume_from": "best"}])
def test_other_options(tmp_path: Path, options: dict[str, Any]) -> None:
    def work(team: Team) -> None:
        train(request(tmp_path / "run", **(options if team.rank else {})), lambda _: None)

    assert_refused(outcomes(2, work), tmp_path / "run", "  --resume: rank 0 has False, rank 1 has True")


def test_a_rank_that_cannot_open_its_data_is_the_one_that_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone_for_the_second(tasks: Any, number: int) -> Any:
        if number:
            raise FileNotFoundError("archive.nc is not there")
        return tasks

    in_turn(monkeypatch, "open_tasks", gone_for_the_second)
    found = run_of(tmp_path / "run")
    assert {type(outcome) for outcome in found} == {FileNotFoundError, OtherRankFailed}
    assert not (tmp_path / "run").exists()


def test_thetas_that_have_drifted_apart_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that errs in a bit, or machines that compute differently."""
    real = Trainer.step

    def step(self: Trainer) -> StepReport:
        report = real(self)
        if self.progress.step == 4 and self.team.rank == 1:
            with torch.no_grad():
                self.theta.mu[0] = torch.nextafter(self.theta.mu[0], torch.tensor(9.0))
        return report

    monkeypatch.setattr(Trainer, "step", step)
    found = run_of(tmp_path / "run")
    assert {type(outcome) for outcome in found} == {Disagreement}
    assert str(found[0]).splitlines()[1].startswith("  theta, which was the same at the start")
    assert '"step": 3' in (tmp_path / "run" / "checkpoints" / "last" / "checkpoint.json").read_text()
