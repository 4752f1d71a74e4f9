"""Every method on both archives, and the ratios between them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.common.benchmark import Context
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.solar.archives import himawari, simulated
from benchmarks.solar.methods import HINDSIGHT, METHODS, OURS, Found, ensemble_of, true_crps
from benchmarks.solar.settings import PRESET, Settings
from metaprior.solar.scores.lead_scores import LeadTimeScores, compare

HIMAWARI, SIMULATED = "Himawari-9", "simulated"
SIMULATED_METHODS = ("meta", "pooled", "references")
SINGLE = ("pooled", "pooled, fine-tuned", "pooled by log-likelihood", "pooled by log-likelihood, fine-tuned", "MAML")
"""Baselines that are one network; the headline compares with the best of them."""
TUNED = "pooled, fine-tuned"
TRUTH = "true distribution"
MEASURES = ("rmse", "mae", "bias", "ssim", "crps", "nll", "coverage_50", "coverage_90", "width_90", "spread_error")

NOTES = (
    "every method has the same CPU seconds of training on one core; members of an ensemble share them",
    "simulated: no ensemble and no network trained by the log-likelihood, to save time",
    "skill: 1 - RMSE / RMSE of persistence after 30 ... 120 minutes; errors are pooled over all test tasks' pixels",
    "tasks: a place and three days, five windows to adapt to and ten later ones to forecast; Himawari-9: unseen "
    "days; simulated: unseen days and places, in W/m2",
    "*: what the headline is about, the default preset of random weights; 'head, all adapted': weights of the head "
    "are random, all others move in the inner loop as well",
    "presets share one warm start, and each has the same time of meta-training after it",
    "all networks, plain ones too, are averages over the last share of their pooled training; its learning rate "
    "does not fall",
    f"{HINDSIGHT}: uses each task's own targets, which no method can; headline crps_ratio_hindsight is its CRPS to "
    "that of the same network as it is, and so what knowing a task's bias and scale perfectly would be worth",
    "fine-tuned: Adam on all weights; steps and learning rate with the lowest CRPS on validation tasks",
    "headline *_low and *_high: 95 % limits of a bootstrap over test tasks, paired; tasks share a few test days, "
    "so the limits do not cover other weather",
    f"{TRUTH}: CRPS of the simulator's own continuations of the state at the last input frame",
)


Scored = dict[str, tuple[dict[str, Any], Found]]
"""By method: scores as JSON, because they come from another process, and the rest of ``Found``."""


def measure_methods(context: Context[Settings], name: str, methods: str) -> Scored:
    """Open the archive, train, and score."""
    settings = context.settings
    if name == HIMAWARI:
        archive = himawari(context.data)
    else:
        archive = simulated(settings.simulated_days, settings.simulated_size, settings.patch, seed=0)
        tasks = max(3, settings.test_tasks // 2)
        settings = replace(settings, seconds=settings.simulated_seconds, presets=(PRESET,), test_tasks=tasks)
    if methods == TRUTH:
        return {TRUTH: ({}, Found(None, 0.0, "", "", true_crps(archive, settings)))}  # type: ignore[arg-type]
    found = METHODS[methods](archive, settings)
    return {name: (one.scores.as_json(), one._replace(scores=None)) for name, one in found.items()}  # type: ignore[arg-type]


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every method on both archives."""
    settings = context.settings
    jobs = [(HIMAWARI, methods) for methods in METHODS]  # the longest first, so that no core waits at the end
    jobs += [(SIMULATED, methods) for methods in (*SIMULATED_METHODS, TRUTH)]
    by_archive: dict[str, dict[str, Found]] = {HIMAWARI: {}, SIMULATED: {}}
    for (archive, _), scored in zip(jobs, context.map(measure_methods, jobs), strict=True):
        for name, (scores, one) in scored.items():
            restored = LeadTimeScores.from_json(scores) if scores else None
            by_archive[archive][name] = one._replace(scores=restored)  # type: ignore[arg-type]
    truth = by_archive[SIMULATED].pop(TRUTH).validation_crps
    rows = [row for archive, found in by_archive.items() for row in rows_of(archive, found)]
    rows.append({"archive": SIMULATED, "method": TRUTH, "crps": truth})
    headline = headline_of(by_archive[HIMAWARI], settings.members) | simulated_headline(by_archive[SIMULATED], truth)
    return BenchmarkResult(headline, rows, NOTES)


def rows_of(archive: str, found: Mapping[str, Found]) -> list[Row]:
    """Return the scores over all lead times, and the skill by lead time."""
    rows = []
    for name, one in found.items():
        by_lead = {row["lead"]: row for row in one.scores.rows()}
        row: Row = {"archive": archive, "method": f"{name} *" if name == OURS else name}
        row |= {f"skill_{lead}": by_lead[lead]["skill_persistence"] for lead in by_lead if lead != "all"}
        row |= {measure: by_lead["all"].get(measure) for measure in MEASURES}
        row |= {f"crps_{end}": by_lead["all"].get(f"crps_{end}") for end in ("low", "high")}
        row |= {"training_seconds": one.seconds, "trained": one.steps, "chosen": one.chosen}
        rows.append(row)
    return rows


def headline_of(found: Mapping[str, Found], members: int) -> dict[str, float]:
    """Return skill, coverage and ratios to other methods, of which those below 1 are in favour of ABML."""
    ours, before = found[OURS].scores, found[f"{OURS}, not adapted"].scores
    by_lead = {row["lead"]: row for row in ours.rows()}
    headline = {f"skill_{lead}": by_lead[lead]["skill_persistence"] for lead in by_lead if lead != "all"}
    headline |= _ratios("rmse_ratio_finetuned", ours, found[TUNED].scores, "rmse")
    single = min((one for one in SINGLE if one in found), key=lambda one: _crps(found[one].scores))
    headline |= _ratios("crps_ratio_finetuned", ours, found[TUNED].scores, "crps")
    headline |= _ratios("crps_ratio_best_single", ours, found[single].scores, "crps")
    headline |= _ratios("crps_ratio_ensemble", ours, found[f"{ensemble_of(members)}, fine-tuned"].scores, "crps")
    headline |= _ratios("crps_ratio_hindsight", found[HINDSIGHT].scores, found["pooled"].scores, "crps")
    coverages = [row["coverage_90"] for row in ours.per_task() if row["lead"] == "all"]
    headline["coverage_90"] = sum(coverages) / len(coverages)
    headline["tasks_covered_80"] = ours.share_of_tasks("coverage_90", at_least=0.8)
    for lead in by_lead:
        adapted = compare(ours, before, "rmse", lead=lead)
        headline[f"rmse_ratio_adapted_{lead}"] = adapted["ratio"]
    return headline


def simulated_headline(found: Mapping[str, Found], truth: float) -> dict[str, float]:
    """Return the ratios to the CRPS of the true distribution."""
    ours = found[OURS].scores
    return {
        "crps_ratio_truth": _crps(ours) / truth,
        "crps_ratio_truth_finetuned": _crps(found[TUNED].scores) / truth,
        **_ratios("crps_ratio_finetuned_simulated", ours, found[TUNED].scores, "crps"),
    }


def _ratios(name: str, one: LeadTimeScores, other: LeadTimeScores, measure: str) -> dict[str, float]:
    ratio = compare(one, other, measure)
    return {name: ratio["ratio"], f"{name}_low": ratio["ratio_low"], f"{name}_high": ratio["ratio_high"]}


def _crps(scores: LeadTimeScores) -> float:
    return float(scores.row()["crps"])
