import math
from dataclasses import replace

import pytest
import torch

from metaprior.metagrad import AmortizedELBO
from metaprior.metagrad.memory import peak_memory
from metaprior.metagrad.problem import NonFinite, OuterTerms
from metaprior.training.epoch import Summary, run_steps, step_bar
from metaprior.training.settings import Phase
from metaprior.training.trainer import StepReport
from tests.bars import bars_at_once
from tests.training.lines import LEARNED, EndlessLines, damaged, lines, make_problem, make_trainer

PHASE = Phase("everything", 0, 9)


def report(loss: float, tasks: int, failures: int = 0) -> StepReport:
    parts = [torch.tensor(loss * share) for share in (0.1, 0.6, 0.2, 0.1)]
    failed = tuple(NonFinite(f"bad {i}", 0, "nll", math.nan) for i in range(failures))
    return StepReport(PHASE, loss, OuterTerms(*parts), tasks, failed, {"means": loss + 1})


def test_steps_count_by_their_tasks() -> None:
    summary = Summary()
    for step in (report(4.0, 3), report(math.nan, 0, failures=4), report(8.0, 1, failures=3)):
        summary.add(step)
    assert (summary.steps, summary.tasks, summary.bad_tasks) == (3, 4, 7)
    assert summary.loss == pytest.approx((3 * 4 + 8) / 4)
    assert summary.means["nll_query"] == pytest.approx(0.6 * 5)
    assert summary.means["grad_norm_means"] == pytest.approx(6)
    assert [text.split(":")[0] for text in summary.failures] == ["bad 0", "bad 1", "bad 2", "bad 3", "bad 0"]  # five


def test_an_epoch_without_a_finite_task_has_no_loss() -> None:
    summary = Summary()
    summary.add(report(math.nan, 0, failures=4))
    assert math.isnan(summary.loss)
    assert summary.means == {}


def test_terms_add_up_to_the_loss() -> None:
    problem = make_problem(LEARNED, AmortizedELBO(9))
    trainer, seen = make_trainer(lines(9), problem, epochs=1, tasks_per_epoch=12, search_step_size=False), list[float]()
    summary = run_steps(trainer, 3, lambda report: seen.append(report.losses["loss"]))
    parts = [summary.means[name] for name in ("nll_support", "nll_query", "kl", "hyperprior")]
    assert summary.loss == pytest.approx(sum(parts), rel=1e-12)
    assert summary.loss == pytest.approx(sum(seen) / 3, rel=1e-12)
    assert all(part != 0 for part in parts)


def test_no_more_steps_than_there_are() -> None:
    trainer = make_trainer(EndlessLines(), epochs=1, tasks_per_epoch=20, meta_batch=4, warm_start=2)
    assert run_steps(trainer, 2).phase == "warm start"
    assert run_steps(trainer, 3).steps == 3
    assert not trainer.done
    assert run_steps(trainer, 100).steps == 2
    assert trainer.done
    assert run_steps(trainer, 100).steps == 0


@pytest.fixture
def bar_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bars_at_once(monkeypatch)


def test_the_bar_shows_what_happens(capsys: pytest.CaptureFixture[str], bar_at_once: None) -> None:
    tasks = [damaged(task) if i == 2 else task for i, task in enumerate(lines(4))]
    trainer = make_trainer(tasks, epochs=1, tasks_per_epoch=8, meta_batch=4, warm_start=0)
    trainer._check(lines(1)[0])  # a task of this shape is known
    summary = Summary()
    with step_bar(trainer, range(2), "Meta-Training", progress=True) as tell:
        for _ in range(2):
            summary.add(trainer.step())
            tell(summary)
    bar = capsys.readouterr().err
    assert "Meta-Training" in bar
    assert "8/8" in bar
    assert f"loss={summary.loss:.3g}, bad=2, peak=" in bar


def test_the_bar_of_an_epoch_that_was_begun_goes_on_and_shows_what_it_is_given(
    capsys: pytest.CaptureFixture[str], bar_at_once: None
) -> None:
    trainer = make_trainer(lines(4), epochs=1, tasks_per_epoch=12, meta_batch=4)
    trainer.step()
    capsys.readouterr()
    summary = Summary()
    with step_bar(trainer, range(3), "Epoch 7", progress=True, shown={"valid": "0.123"}) as tell:
        summary.add(trainer.step())
        tell(summary)
    bar = capsys.readouterr().err
    assert "Epoch 7:  33%" in bar
    assert "8/12" in bar
    assert f"loss={summary.loss:.3g}, valid=0.123, peak=" in bar
    with step_bar(trainer, range(3), "Epoch 7", progress=False) as tell:
        tell(summary)
    assert capsys.readouterr().err == ""


def test_peak_memory_is_in_bytes() -> None:
    assert 2**24 < peak_memory() < 2**45


def test_a_norm_is_a_mean_over_the_steps_that_have_one() -> None:
    summary = Summary()
    summary.add(replace(report(1.0, 2), grad_norms={"scales": 3.0}))
    summary.add(replace(report(1.0, 2), grad_norms={"means": 2.0, "scales": 5.0}))
    assert summary.means["grad_norm_means"] == 2.0
    assert summary.means["grad_norm_scales"] == 4.0
