import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from metaprior.forecasts import GaussianForecast
from metaprior.report.page.content import PageContent
from metaprior.solar.maps.report.content import page_content
from metaprior.solar.maps.report.story import StoryFacts, change, story
from metaprior.solar.scores.lead_scores import LeadTimeScores

FACTS = StoryFacts(trained_on="19 days", tested_on="other days", shots=5)
SHAPE = (1, 2, 16, 16)
CALIBRATED = torch.special.ndtri((torch.arange(256, dtype=torch.float64) + 0.5) / 256).reshape(16, 16)


def point(*errors: float) -> LeadTimeScores:
    """Score tasks with targets 0 and these errors; the errors of persistence are 1."""
    scores = LeadTimeScores([30, 60], value_range=1.0)
    for number, error in enumerate(errors):
        _add(scores, number, torch.full(SHAPE, error, dtype=torch.float64), torch.zeros(SHAPE, dtype=torch.float64))
    return scores


def spread(z: Tensor, tasks: int = 3) -> LeadTimeScores:
    """Score standard normal forecasts of targets z."""
    scores = LeadTimeScores([30, 60], value_range=1.0)
    for number in range(tasks):
        means = torch.zeros(2, *SHAPE, dtype=torch.float64)
        _add(scores, number, GaussianForecast(means, torch.ones_like(means)), z.double().expand(SHAPE))
    return scores


def _add(scores: LeadTimeScores, number: int, forecast: GaussianForecast | Tensor, targets: Tensor) -> None:
    scores.add(forecast, targets, task=f"task {number}", references={"persistence": targets + 1})


def test_the_story_says_what_was_done_and_how_much_better_it_is() -> None:
    told = story("ours", {"ours": point(0.75, 0.75)}, replace(FACTS, remarks=["And so on."]))
    assert told == (
        "A prior over the weights of a network was learned from 19 days. It was then adapted, from five windows each, "
        "to two tasks that it had not seen: other days. Numbers in brackets are 95 % intervals over tasks.\n\n"
        "Compared with persistence (the last frame, held), its RMSE is 25 % lower (25 to 25 %) 30 minutes ahead "
        "and 25 % lower (25 to 25 %) 60 minutes ahead.\n\n"
        "And so on."
    )


@pytest.mark.parametrize(("days", "told"), [(None, False), (2, True), (5, False)])
def test_intervals_that_rest_on_few_days_say_so(days: int | None, told: bool) -> None:
    text = story("ours", {"ours": point(0.75, 0.75)}, replace(FACTS, test_days=days))
    assert ("All tasks share the weather of two days: too few to tell what other weather will bring" in text) is told


@pytest.mark.parametrize(
    ("ours", "rival", "verdict"),
    [
        ((0.5, 0.25), (0.6, 0.3), "the prior is better"),
        ((0.75, 0.65), (0.6, 0.6), "the tuned one is better"),
        ((0.75, 0.25), (0.5, 0.5), "neither is significantly better"),
    ],
)
def test_the_rival_is_named_where_it_wins(ours: tuple[float, ...], rival: tuple[float, ...], verdict: str) -> None:
    scores = {"ours": point(*ours), "tuned one": point(*rival)}
    told = story("ours", scores, replace(FACTS, rival="tuned one", rival_is="a tuned one"))
    assert "Compared with a tuned one, its CRPS over all lead times is " in told
    assert f": {verdict}." in told


def test_a_split_verdict_names_both() -> None:
    """RMSE weighs one large error more than the mean absolute error does."""
    uneven, even = LeadTimeScores([30], value_range=1.0), LeadTimeScores([30], value_range=1.0)
    targets = torch.zeros(1, 1, 16, 16, dtype=torch.float64)
    few = targets.clone()
    few[..., :2, :] = 2.0  # mean 0.25, root mean square 0.71
    for number in range(2):
        _add(uneven, number, few, targets)
        _add(even, number, targets + 0.5, targets)
    told = story("ours", {"ours": uneven, "tuned one": even}, replace(FACTS, rival="tuned one"))
    assert "its CRPS over all lead times is 50 % lower (50 to 50 %) and its RMSE 41 % higher" in told
    assert "the prior is better by CRPS, the tuned one by RMSE" in told


def test_others_with_lower_numbers_are_named() -> None:
    scores = {"ours": point(0.5, 0.5), "flow": point(0.4, 0.4), "worse": point(0.6, 0.6)}
    assert "Methods with lower errors than the adapted prior: flow (CRPS and RMSE)." in story("ours", scores, FACTS)
    assert "lower errors" not in story("flow", scores, FACTS)


def test_what_the_windows_are_worth() -> None:
    scores = {"ours": point(0.45, 0.45), "before": point(0.5, 0.5)}
    told = story("ours", scores, replace(FACTS, unadapted="before", shots=1))
    assert "Compared with the prior before adaptation to one window, CRPS is 10 % lower" in told


@pytest.mark.parametrize(
    ("z", "told"),
    [
        (CALIBRATED, "89.8 % of the targets (89.8 to 89.8 %): they are close to calibrated. In 3 of 3 tasks"),
        (torch.full((16, 16), 3.0), "0.0 % of the targets (0.0 to 0.0 %): they are too narrow. In 0 of 3 tasks"),
        (torch.zeros(16, 16), "100.0 % of the targets (100.0 to 100.0 %): they are too wide. In 3 of 3 tasks"),
    ],
)
def test_intervals_are_judged(z: Tensor, told: str) -> None:
    assert f"Its 90 % intervals contain {told}" in story("ours", {"ours": spread(z)}, FACTS)


def test_a_single_task_has_no_interval() -> None:
    single = change(point(0.5), point(0.4), "rmse")
    assert single.value == pytest.approx(0.25)
    assert math.isnan(single.low)


def content(**others: object) -> PageContent:
    scores = {"ours": spread(CALIBRATED), "held": point(1.0, 1.0, 1.0)}
    arguments = {"title": "t", "ours": "ours", "scores": scores, "facts": FACTS, "units": "W/m²", **others}
    return page_content(**arguments)  # type: ignore[arg-type]


def test_scores_become_rows_and_reliability() -> None:
    page = content()
    assert [(row["method"], row["lead_minutes"]) for row in page.scores] == [
        (method, lead) for method in ("ours", "held") for lead in (30, 60, "all")
    ]
    assert page.scores[0]["rmse"] == pytest.approx(float(CALIBRATED.square().mean().sqrt()))
    assert set(page.reliability) == {"ours"}  # what is held has no intervals
    assert dict(page.reliability["ours"])[0.5] == pytest.approx(0.5, abs=0.01)


def test_methods_without_scores_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rival must be a method of scores \(ours, held\), got 'tuned'"):
        content(facts=replace(FACTS, rival="tuned"))
    with pytest.raises(ValueError, match="ours must be a method of scores"):
        content(ours="theirs")
