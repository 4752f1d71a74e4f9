"""The story of a run in a few paragraphs, written from its scores: also where another method wins."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from metaprior.solar.scores.lead_scores import Lead, LeadTimeScores, compare
from metaprior.text_table import Row

REFERENCES = {
    "skill_persistence": "persistence (the last frame, held)",
    "skill_smart_persistence": "smart persistence (the last clear-sky index, held)",
}
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
LEVEL, ENOUGH = 0.9, 0.8
"""The intervals that are looked at, and the share that is to be inside in a task too, not only on average."""
CLOSE = 0.02
"""Intervals that hold their level up to this are said to keep their promise."""


@dataclass(frozen=True, kw_only=True)
class StoryFacts:
    """What the scores do not know; methods are named as in the scores.

    Args:
        trained_on: goes on after "A prior over the weights of a network was learned from".
        tested_on: goes on after "It was then adapted, from five windows each, to 40 tasks that it had not seen:".
        shots: windows that a task is adapted to.
        unadapted: the same prior without adaptation.
        rival: what one would do without meta-learning.
        rival_is: what that is, in words.
        remarks: whole sentences that a reader needs besides.
    """

    trained_on: str
    tested_on: str
    shots: int
    unadapted: str | None = None
    rival: str | None = None
    rival_is: str = "the same network, trained on everything and fine-tuned on the same windows"
    remarks: Sequence[str] = ()


class Change(NamedTuple):
    """One over other, minus 1, with its limits over tasks: negative is less. NaN is not known."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the limits leave no doubt about its sign."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        if math.isnan(self.low) or math.isnan(self.high):
            return f"{_more_or_less(self.value)} (a single task: no limits)"
        if self.is_clear:
            near, far = sorted((abs(self.low), abs(self.high)))
            return f"{_more_or_less(self.value)} ({_percent(near)} to {_percent(far)} %)"
        limits = f"{_more_or_less(self.low)} to {_more_or_less(self.high)}"
        return f"{_more_or_less(self.value)}, which may be chance ({limits})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if abs(share) >= 0.0995 else f"{100 * share:.1f}"


def _more_or_less(change: float) -> str:
    return f"{_percent(abs(change))} % {'lower' if change < 0 else 'higher'}"


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def story(ours: str, scores: Mapping[str, LeadTimeScores], facts: StoryFacts) -> str:
    """Paragraphs: what was done; beside what needs no learning; beside what one would do instead; intervals."""
    paragraphs = [
        [_what_was_done(scores[ours], facts)],
        [*_beside_references(scores[ours])],
        [*_beside_rival(ours, scores, facts), *_others(ours, scores, facts), *_adaptation(ours, scores, facts)],
        [*_intervals(scores[ours]), *facts.remarks],
    ]
    return "\n\n".join(" ".join(sentences) for sentences in paragraphs if sentences)


def _what_was_done(own: LeadTimeScores, facts: StoryFacts) -> str:
    tasks = len(own.tasks)
    return (
        f"A prior over the weights of a network was learned from {facts.trained_on}. It was then adapted, from "
        f"{_counted(facts.shots, 'window')} each, to {_counted(tasks, 'task')} that it had not seen: {facts.tested_on}."
        " In brackets are 95 % limits over tasks."
    )


def _counted(count: int, what: str) -> str:
    return f"{WORDS[count] if count < len(WORDS) else count} {what}{'' if count == 1 else 's'}"


def _beside_references(own: LeadTimeScores) -> Iterator[str]:
    """At the first and the last lead time."""
    rows = {row["lead"]: row for row in own.rows()}
    leads = list(dict.fromkeys((own.lead_minutes[0], own.lead_minutes[-1])))
    for skill, name in REFERENCES.items():
        if rows["all"].get(skill) is None:
            continue
        said = [f"{_from_skill(rows[lead], skill)} {lead} minutes ahead" for lead in leads]
        yield f"Beside {name}, its RMSE is {' and '.join(said)}."


def _from_skill(row: Row, skill: str) -> Change:
    """1 - skill is the ratio of the two errors."""
    value, low, high = (_number(row[skill + end]) for end in ("", "_low", "_high"))
    return Change(-value, -high, -low)


def change(one: LeadTimeScores, other: LeadTimeScores, measure: str, *, lead: Lead = "all") -> Change:
    """How much less, or more, one has of a measure than the other."""
    found = compare(one, other, measure, lead=lead)
    return Change(*(_number(found[name]) - 1 for name in ("ratio", "ratio_low", "ratio_high")))


def _beside_rival(ours: str, scores: Mapping[str, LeadTimeScores], facts: StoryFacts) -> Iterator[str]:
    if facts.rival is None:
        return
    crps, rmse = (change(scores[ours], scores[facts.rival], measure) for measure in ("crps", "rmse"))
    verdict = _verdict(crps, rmse, facts.rival)
    yield f"Beside {facts.rival_is}, its CRPS over all lead times is {crps} and its RMSE {rmse}: {verdict}."


def _verdict(crps: Change, rmse: Change, rival: str) -> str:
    won = [name for name, one in (("CRPS", crps), ("RMSE", rmse)) if one.is_clear and one.value < 0]
    lost = [name for name, one in (("CRPS", crps), ("RMSE", rmse)) if one.is_clear and one.value > 0]
    if won and lost:
        return f"the prior wins by {won[0]}, the {rival} by {lost[0]}"
    if won:
        return "the prior wins" if len(won) == 2 else f"the prior wins by {won[0]}"
    if lost:
        return f"the {rival} wins" if len(lost) == 2 else f"the {rival} wins by {lost[0]}"
    return "neither wins beyond doubt"


def _others(ours: str, scores: Mapping[str, LeadTimeScores], facts: StoryFacts) -> Iterator[str]:
    """Who else has a lower number; the rival and the unadapted prior have sentences of their own."""
    better = []
    for name in scores.keys() - {ours, facts.rival, facts.unadapted}:
        changes = {measure: change(scores[ours], scores[name], measure) for measure in ("crps", "rmse")}
        lower = [measure.upper() for measure, one in changes.items() if one.value > 0]
        if lower:
            better.append(f"{name} ({' and '.join(lower)})")
    if better:
        yield f"Lower numbers than the adapted prior's are those of {', '.join(sorted(better))}."


def _intervals(own: LeadTimeScores) -> Iterator[str]:
    together = own.row()
    inside = together.get("coverage_90")
    if inside is None:
        return
    held = round(own.share_of_tasks("coverage_90", at_least=ENOUGH) * len(own.tasks))
    yield (
        f"Its {100 * LEVEL:.0f} % intervals hold {100 * inside:.1f} % of what happened{_limits(together)}: "
        f"{_judged(inside)}. On {held} of {len(own.tasks)} tasks they hold at least {100 * ENOUGH:.0f} %."
    )


def _limits(row: Row) -> str:
    low, high = row["coverage_90_low"], row["coverage_90_high"]
    return "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f} %)"


def _judged(inside: float) -> str:
    if abs(inside - LEVEL) <= CLOSE:
        return "they keep what they promise"
    return "they are too narrow" if inside < LEVEL else "they are wider than they have to be"


def _adaptation(ours: str, scores: Mapping[str, LeadTimeScores], facts: StoryFacts) -> Iterator[str]:
    if facts.unadapted is None:
        return
    before = scores[facts.unadapted]
    crps, rmse = (change(scores[ours], before, measure) for measure in ("crps", "rmse"))
    yield (f"Adapting to {_counted(facts.shots, 'window')}: beside the prior as it is, CRPS is {crps} and RMSE {rmse}.")
