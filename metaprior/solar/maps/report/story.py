"""Write the story of a run in a few paragraphs from its scores, including where another method is better."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metaprior.report.wording import VISIBLE, Change, calibration, counted
from metaprior.solar.scores.lead_scores import LeadTimeScores, compare

ENOUGH_DAYS = 5
"""Test days below which the story warns that intervals rest on few of them."""
REFERENCES = {
    "skill_persistence": "persistence (the last frame, held)",
    "skill_smart_persistence": "smart persistence (the last clear-sky index, held)",
}
LEVEL, ENOUGH = 0.9, 0.8
"""The level of the intervals that are judged, and the coverage that a single task should reach."""


@dataclass(frozen=True, kw_only=True)
class StoryFacts:
    """What the story needs besides the scores; methods are named as in the scores.

    Args:
        trained_on: Continues "A prior over the weights of a network was learned from".
        tested_on: Continues "It was then adapted, from five windows each, to 40 tasks that it had not seen:".
        shots: Windows that a task is adapted to.
        unadapted: The same prior without adaptation.
        rival: The method that one would use without meta-learning.
        rival_is: What that is, in words.
        test_days: Number of days that the tasks are of, if known; a few days are told to be few.
        remarks: Complete sentences to end with.
    """

    trained_on: str
    tested_on: str
    shots: int
    unadapted: str | None = None
    rival: str | None = None
    rival_is: str = "the same network, trained on everything and fine-tuned on the same windows"
    test_days: int | None = None
    remarks: Sequence[str] = ()


def story(ours: str, scores: Mapping[str, LeadTimeScores], facts: StoryFacts) -> str:
    """Return paragraphs: what was done, references that learn nothing, other methods, intervals."""
    own, windows = scores[ours], counted(facts.shots, "window")
    changes = {name: {of: change(own, one, of.lower()) for of in ("CRPS", "RMSE")} for name, one in scores.items()}
    done = (
        f"A prior over the weights of a network was learned from {facts.trained_on}. It was then adapted, from "
        f"{windows} each, to {counted(len(own.tasks), 'task')} that it had not seen: {facts.tested_on}. Numbers in "
        "brackets are 95 % intervals over tasks."
    )
    if facts.test_days is not None and facts.test_days < ENOUGH_DAYS:
        done += (
            f" All tasks share the weather of {counted(facts.test_days, 'day')}: too few to tell what other weather "
            "will bring, which the intervals do not show."
        )
    others = []
    if facts.rival is not None:
        rival = changes[facts.rival]
        told = f"its CRPS over all lead times is {rival['CRPS']} and its RMSE {rival['RMSE']}"
        others.append(f"Compared with {facts.rival_is}, {told}: {_verdict(rival, facts.rival)}.")
    better = []  # among the methods without a sentence of their own
    for name in sorted(changes.keys() - {ours, facts.rival, facts.unadapted}):
        lower = [of for of, one in changes[name].items() if one.value >= VISIBLE]
        better += [f"{name} ({' and '.join(lower)})"] if lower else []
    if better:
        others.append(f"Methods with lower errors than the adapted prior: {', '.join(better)}.")
    if facts.unadapted is not None:
        crps, rmse = changes[facts.unadapted].values()
        others.append(f"Compared with the prior before adaptation to {windows}, CRPS is {crps} and RMSE {rmse}.")
    paragraphs = [[done], [*_references(own)], others, [*_intervals(own), *facts.remarks]]
    return "\n\n".join(" ".join(sentences) for sentences in paragraphs if sentences)


def change(one: LeadTimeScores, other: LeadTimeScores, measure: str) -> Change:
    """Return how much lower or higher a measure of one method is than that of another, on the same tasks."""
    found = compare(one, other, measure)
    return Change(*(_number(found[name]) - 1 for name in ("ratio", "ratio_low", "ratio_high")))


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _references(own: LeadTimeScores) -> Iterator[str]:
    """Compare with references at the first and the last lead time; 1 - skill is the ratio of the two RMSE."""
    rows = {row["lead"]: row for row in own.rows()}
    leads = list(dict.fromkeys((own.lead_minutes[0], own.lead_minutes[-1])))
    for skill, name in REFERENCES.items():
        if rows["all"].get(skill) is None:
            continue
        changes = [Change(*(-_number(rows[lead][skill + end]) for end in ("", "_high", "_low"))) for lead in leads]
        said = [f"{one} {lead} minutes ahead" for one, lead in zip(changes, leads, strict=True)]
        yield f"Compared with {name}, its RMSE is {' and '.join(said)}."


def _verdict(changes: Mapping[str, Change], rival: str) -> str:
    won = [name for name, one in changes.items() if one.is_significant and one.value < 0]
    lost = [name for name, one in changes.items() if one.is_significant and one.value > 0]
    if won and lost:
        return f"the prior is better by {won[0]}, the {rival} by {lost[0]}"
    if won or lost:
        better, by = ("the prior", won) if won else (f"the {rival}", lost)
        return f"{better} is better" if len(by) == len(changes) else f"{better} is better by {by[0]}"
    return "neither is significantly better"


def _intervals(own: LeadTimeScores) -> Iterator[str]:
    together = own.row()
    inside, low, high = (together.get(f"coverage_90{end}") for end in ("", "_low", "_high"))
    if inside is None:
        return
    limits = "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f} %)"
    reached = round(own.share_of_tasks("coverage_90", at_least=ENOUGH) * len(own.tasks))
    yield (
        f"Its {100 * LEVEL:.0f} % intervals contain {100 * inside:.1f} % of the targets{limits}: they are "
        f"{calibration(LEVEL, inside, low, high)}. In {reached} of {len(own.tasks)} tasks they contain at least "
        f"{100 * ENOUGH:.0f} %."
    )
