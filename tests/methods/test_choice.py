"""``adaptation="auto"``: successive halving of all ways of adapting, and the last one is trained in full."""

from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior.adaptation import Adaptation, kind_of
from metaprior.methods import choice
from metaprior.methods.choice import AdaptationChoice, Round, choose, in_words, rounds_of
from metaprior.methods.validation import validation_scores
from metaprior.training.epoch import run_steps
from tests.methods.small_learner import assert_same_theta
from tests.team.fake import together
from tests.training.lines import EndlessLines, line, lines

SETTINGS: dict[str, Any] = {
    "epochs": 2,
    "tasks_per_epoch": 40,
    "meta_batch": 4,
    "search_step_size": False,
    "progress": False,
}
PAIR = (mp.Descent(steps=1), mp.ClosedForm())


def learner_of(adaptation: Any = "auto", **changes: Any) -> mp.MetaLearner:
    torch.manual_seed(0)
    return mp.MetaLearner(mp.MLP(1, [6], 1), mp.Gaussian(), adaptation=adaptation, **changes)


@pytest.fixture(autouse=True)
def two_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates_are(monkeypatch, *PAIR)
    monkeypatch.setattr(choice, "MOST_TASKS", 12)
    monkeypatch.setattr(choice, "LEAST_STEPS", 2)


def candidates_are(monkeypatch: pytest.MonkeyPatch, *candidates: Adaptation) -> None:
    monkeypatch.setattr(choose, "__kwdefaults__", {**(choose.__kwdefaults__ or {}), "candidates": candidates})


def chosen(learner: mp.MetaLearner) -> AdaptationChoice:
    assert learner.choice_ is not None
    return learner.choice_


def test_the_best_of_all_candidates_is_trained_in_full_and_the_choice_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    learner = learner_of().fit(EndlessLines(), **{**SETTINGS, "progress": True}, auto_share=0.4)
    found = chosen(learner)
    assert [trial.adaptation for trial in found.trials] == list(PAIR)
    assert found.adaptation == min(found.trials, key=lambda trial: trial.score).adaptation
    assert all(trial.seconds > 0 and not trial.reason for trial in found.trials)
    assert learner.adaptation_ == found.adaptation
    assert f"{in_words(found.adaptation)} was taken: its mean NLL over 0, 1, 2, all shots of 12" in found.sentence
    assert found.sentence.endswith("(adaptations compared: 2 after 4 meta-steps)")
    assert capsys.readouterr().out.count(found.sentence) == 1
    alone = learner_of(found.adaptation).fit(EndlessLines(), **SETTINGS)
    assert_same_theta(learner.theta_, alone.theta_)
    assert sum(record.steps for record in learner.history_) == 20


def test_the_better_half_goes_on_from_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = (mp.Descent(steps=1), *(mp.ClosedForm(rank=rank, components=1) for rank in (1, 2, 3)))
    candidates_are(monkeypatch, *candidates)
    first, again = (
        choose(learner_of(), lines(20), mp.MetaTraining(tasks_per_epoch=40, search_step_size=False), share=0.24)
        for _ in range(2)
    )
    assert first == again, "a choice is a function of the seed"
    assert sorted(trial.steps for trial in first.trials) == [3, 3, 9, 9]
    assert "(adaptations compared: 4 after 3, then 2 after 9 meta-steps)" in first.sentence
    assert "±" in first.sentence
    training, judges = choice._separated(lines(20), mp.MetaTraining(), None)
    for trial in first.trials:
        whole = learner_of(trial.adaptation)
        trainer = whole.trainer(training, mp.MetaTraining(epochs=1, tasks_per_epoch=36, search_step_size=False))
        run_steps(trainer, trial.steps)
        scores = validation_scores(whole.with_theta(trainer.theta.detached()), judges, [0, 1, 2, None])
        assert scores.score == trial.score, "the trial is one training, stopped after so many steps"
    third, second = (sorted(own.score for own in first.trials if own.steps == steps) for steps in (3, 9))
    assert first.adaptation == next(own.adaptation for own in first.trials if own.score == second[0])
    assert len(third) == len(second) == 2


@pytest.mark.parametrize(
    ("candidates", "share", "meta_steps", "expected"),
    [
        (4, 0.25, 3200, [Round(4, 100), Round(2, 300)]),
        (2, 0.25, 3200, [Round(2, 400)]),
        (3, 0.25, 2400, [Round(3, 100), Round(2, 250)]),
        (1, 0.5, 100, [Round(1, 50)]),
        (8, 1.0, 960, [Round(8, 40), Round(4, 120), Round(2, 280)]),
    ],
)
def test_rounds_take_the_share_of_the_meta_steps(
    candidates: int, share: float, meta_steps: int, expected: list[Round], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "LEAST_STEPS", 40)
    rounds = rounds_of(candidates, share, meta_steps)
    assert rounds == expected
    before = [0, *(own.steps for own in rounds)]
    assert sum(own.candidates * (own.steps - done) for own, done in zip(rounds, before, strict=False)) == pytest.approx(
        share * meta_steps
    )


@pytest.mark.parametrize(
    ("meta_steps", "expected"),
    [(1270, [Round(4, 40), Round(2, 120)]), (100, [Round(4, 40), Round(2, 100)]), (30, [Round(4, 30)])],
)
def test_a_share_that_cannot_tell_adaptations_apart_is_said(
    meta_steps: int, expected: list[Round], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "LEAST_STEPS", 40)
    with pytest.warns(UserWarning, match=rf"auto_share=0.25 of {meta_steps} .* at least {expected[0].steps} instead"):
        assert rounds_of(4, 0.25, meta_steps) == expected


def test_the_choice_is_saved_and_a_loaded_prior_shows_it_and_does_not_choose_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates_are(monkeypatch, mp.ClosedForm(head="nothing"), *PAIR)
    learner = learner_of().fit(lines(10), **SETTINGS, auto_share=0.6)
    learner.save(tmp_path)
    loaded, task, first = mp.load(tmp_path), line(30), chosen(learner)
    assert isinstance(loaded, mp.MetaLearner)
    assert loaded.adaptation == first.adaptation
    assert chosen(loaded) == first
    assert str(chosen(loaded)) == str(first)
    assert first.sentence in repr(loaded)
    found, expected = (one.adapt(task.support).predict(task.query.x).mean for one in (loaded, learner))
    assert torch.equal(found, expected)
    assert chosen(learner.fit(lines(10), **SETTINGS, auto_share=0.6)) is not first, "the tasks may be others"
    monkeypatch.setattr(choice, "choose", None)
    with pytest.warns(UserWarning, match="replaces the prior that was loaded"):
        assert chosen(loaded.fit(lines(10), **SETTINGS)) == first


def test_a_candidate_that_cannot_work_is_listed_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = (mp.ClosedForm(head="nothing"), mp.Descent(steps=1))
    candidates_are(monkeypatch, *candidates)
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
    assert choice._shots(choice._Part([line(0, support=9), line(1, support=0)], range(2)), 1) == [0, None]
    assert choice._shots(choice._Part([line(0, support=9)], range(1)), 2) == [0, 1, 2, None]


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
        (lambda: learner_of().fit(lines(5), epochs=0), ValueError, "epochs must be at least 1 with adaptation='auto'"),
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
