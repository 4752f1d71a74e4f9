"""``adaptation="auto"``: every way of adapting is tried on validation tasks, and the best one is trained in full."""

from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior.adaptation import kind_of
from metaprior.methods import choice
from metaprior.methods.choice import AdaptationChoice, choose, in_words
from tests.methods.small_learner import assert_same_theta
from tests.team.fake import together
from tests.training.lines import EndlessLines, line, lines

SETTINGS: dict[str, Any] = {"epochs": 2, "tasks_per_epoch": 40, "meta_batch": 4, "progress": False}
PAIR = (mp.Descent(steps=1), mp.ClosedForm())


def learner_of(adaptation: Any = "auto", **changes: Any) -> mp.MetaLearner:
    torch.manual_seed(0)
    return mp.MetaLearner(mp.MLP(1, [6], 1), mp.Gaussian(), adaptation=adaptation, **changes)


@pytest.fixture(autouse=True)
def two_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "__kwdefaults__", {**(choose.__kwdefaults__ or {}), "candidates": PAIR})
    monkeypatch.setattr(choice, "MOST_TASKS", 12)


def chosen(learner: mp.MetaLearner) -> AdaptationChoice:
    assert learner.choice_ is not None
    return learner.choice_


def test_the_best_of_all_candidates_is_trained_in_full_and_the_choice_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    learner = learner_of().fit(EndlessLines(), **{**SETTINGS, "progress": True}, auto_share=0.2)
    found = chosen(learner)
    assert [trial.adaptation for trial in found.trials] == list(PAIR)
    assert found.adaptation == min(found.trials, key=lambda trial: trial.score).adaptation
    assert all(trial.seconds > 0 and not trial.reason for trial in found.trials)
    assert learner.adaptation_ == found.adaptation
    assert f"{in_words(found.adaptation)} was taken: its mean NLL over 0, 1, 2, all shots of 12" in found.sentence
    assert "after 4 of 20 meta-steps each" in found.sentence
    assert capsys.readouterr().out.count(found.sentence) == 1
    alone = learner_of(found.adaptation).fit(EndlessLines(), **SETTINGS)
    assert_same_theta(learner.theta_, alone.theta_)
    assert sum(record.steps for record in learner.history_) == 20


def test_what_was_chosen_is_saved_adapts_and_is_chosen_anew_by_the_next_fit(tmp_path: Path) -> None:
    learner = learner_of().fit(lines(10), **SETTINGS)
    learner.save(tmp_path)
    loaded, task = mp.load(tmp_path), line(30)
    assert isinstance(loaded, mp.MetaLearner)
    assert loaded.adaptation == chosen(learner).adaptation
    found, expected = (one.adapt(task.support).predict(task.query.x).mean for one in (loaded, learner))
    assert torch.equal(found, expected)
    first = chosen(learner)
    assert chosen(learner.fit(lines(10), **SETTINGS)) is not first


def test_a_candidate_that_cannot_work_is_listed_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = (mp.ClosedForm(head="nothing"), mp.Descent(steps=1))
    monkeypatch.setattr(choose, "__kwdefaults__", {**choose.__kwdefaults__, "candidates": candidates})  # type: ignore[dict-item]
    learner = learner_of(stochastic="layers.2.*").fit(lines(10), **SETTINGS)
    assert chosen(learner).adaptation == candidates[1]
    assert "nothing" in chosen(learner).trials[0].reason
    assert "the only one that works" in chosen(learner).sentence
    assert chosen(learner).table().count("\n") == 3


def test_trials_hold_tasks_out_unless_there_are_validation_tasks() -> None:
    tasks = lines(12)
    training, judges = choice._separated(tasks, mp.MetaTraining(), None)
    assert [judges[index].name for index in range(len(judges))] == ["line 0", "line 5", "line 10"]
    assert len(training) == 9  # type: ignore[arg-type]
    assert choice._separated(tasks, mp.MetaTraining(), lines(2))[0] is tasks
    _, later = choice._separated(EndlessLines(), mp.MetaTraining(epochs=1, tasks_per_epoch=8), None)
    assert later[0].name == "line 8"
    assert choice._shots(choice._Part([line(0, support=9), line(1, support=0)], range(2))) == [0, None]


def test_several_ranks_choose_the_same() -> None:
    def work(_: object) -> tuple[object, dict[str, torch.Tensor]]:
        learner = learner_of().fit(lines(10), **SETTINGS)
        return chosen(learner).adaptation, learner.theta_.named()

    (one, first), (other, second) = together(2, work)
    assert one == other
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: learner_of().start(lines(3)), ValueError, "call fit.tasks., which chooses"),
        (lambda: learner_of().fit(lines(1), **SETTINGS), ValueError, "there is 1 task in all"),
        (lambda: learner_of().fit(lines(5), **SETTINGS, auto_share=2.0), ValueError, "auto_share must lie between"),
        (lambda: learner_of("best").fit(lines(5), **SETTINGS), ValueError, "adaptation must be one such as"),
        (lambda: learner_of(objective="best").fit(lines(5), **SETTINGS), ValueError, "objective must be one of"),
    ],
)
def test_what_cannot_work_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_the_candidates_are_all_ways_but_descent_after_a_context() -> None:
    kinds = ["descent", "closed_form", "context+closed_form", "context"]
    assert [kind_of(candidate) for candidate in choice.CANDIDATES] == kinds
    assert [in_words(candidate) for candidate in choice.CANDIDATES] == [
        "Descent(learn_lr='per_tensor')",
        "ClosedForm()",
        "Context() + ClosedForm()",
        "Context()",
    ]
