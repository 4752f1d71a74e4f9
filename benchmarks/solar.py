"""Forecast maps beside what one would do without meta-learning, at the same training time.

Two archives: Himawari-9 frames of the data folder (luminance, no coordinates), and the simulator, where the true
distribution of futures is known. A task is a place and three days: five windows to adapt to, ten later ones to
forecast. All networks are the same U-Net, trained by the CRPS; one more plain one by the ordinary log-likelihood.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.jobs import run_all
from benchmarks.result import BenchResult, Row
from benchmarks.solar_archives import Archive, himawari, simulated
from benchmarks.solar_methods import HINDSIGHT, METHODS, OURS, PRESET, Found, Settings, ensemble_of, true_crps
from metaprior.solar.maps import baselines
from metaprior.solar.maps.plain_network import Tuning
from metaprior.solar.scores.lead_scores import LeadTimeScores, compare

QUICK = Settings(
    seconds=6.0,
    simulated_seconds=4.0,
    meta_share=0.5,
    width=4,
    levels=2,
    presets=("head", "output"),
    abml_steps=(5,),
    members=2,
    tunings=(Tuning(0, 0.0), Tuning(5, 3e-5)),
    validation_tasks=2,
    test_tasks=3,
    samples=5,
    simulated_days=12,
    simulated_size=64,
    continuations=10,
)
HIMAWARI, SIMULATED = "Himawari-9", "simulated"
SIMULATED_METHODS = ("meta", "pooled", "references")
SINGLE = ("pooled", "pooled, fine-tuned", "pooled by log-likelihood", "pooled by log-likelihood, fine-tuned", "MAML")
"""Baselines that are one network, of which the best is what CRPS is compared with."""
TUNED = "pooled, fine-tuned"
TRUTH = "true distribution"
MEASURES = ("rmse", "mae", "bias", "ssim", "crps", "nll", "coverage_50", "coverage_90", "width_90", "spread_error")


class Job(NamedTuple):
    """Some methods on one archive."""

    archive: str
    methods: str
    folder: Path
    settings: Settings


class Done(NamedTuple):
    """Scores as JSON, because they come from another process; the rest of ``Found`` beside them."""

    found: dict[str, tuple[dict[str, Any], Found]]


def measure(job: Job) -> Done:
    """Open the archive, train, score."""
    settings = job.settings
    archive = _archive(job)
    if job.methods == TRUTH:
        return Done({TRUTH: ({}, _of_truth(true_crps(archive, settings)))})
    found = METHODS[job.methods](archive, settings)
    return Done({name: (one.scores.as_json(), one._replace(scores=None)) for name, one in found.items()})  # type: ignore[arg-type]


def _of_truth(crps: float) -> Found:
    return Found(None, 0.0, "", "", crps)  # type: ignore[arg-type]


def _archive(job: Job) -> Archive:
    if job.archive == HIMAWARI:
        return himawari(job.folder)
    settings = job.settings
    return simulated(settings.simulated_days, settings.simulated_size, settings.patch, seed=0)


def jobs_of(folder: Path, settings: Settings) -> list[Job]:
    """The longest first, so that no core waits at the end."""
    on_simulated = replace(
        settings,
        seconds=settings.simulated_seconds,
        presets=(PRESET,),
        test_tasks=max(3, settings.test_tasks // 2),
    )
    return [
        *(Job(HIMAWARI, methods, folder, settings) for methods in METHODS),
        *(Job(SIMULATED, methods, folder, on_simulated) for methods in (*SIMULATED_METHODS, TRUTH)),
    ]


def run(folder: Path, *, quick: bool = False, workers: int | None = None) -> BenchResult:
    """Every method on both archives."""
    settings = QUICK if quick else Settings()
    baselines.require_optical_flow()  # before an hour of training, not after it
    jobs = jobs_of(folder, settings)
    done = run_all(measure, jobs, workers=workers, label="Solar")
    by_archive: dict[str, dict[str, Found]] = {HIMAWARI: {}, SIMULATED: {}}
    for job, result in zip(jobs, done, strict=True):
        for name, (scores, found) in result.found.items():
            restored = LeadTimeScores.from_json(scores) if scores else None
            by_archive[job.archive][name] = found._replace(scores=restored)  # type: ignore[arg-type]
    truth = by_archive[SIMULATED].pop(TRUTH).validation_crps
    rows = [row for archive, found in by_archive.items() for row in rows_of(archive, found)]
    rows.append({"archive": SIMULATED, "method": TRUTH, "crps": truth})
    headline = headline_of(by_archive[HIMAWARI], settings.members) | simulated_headline(by_archive[SIMULATED], truth)
    return BenchResult(headline, rows, {"bench": "solar", "quick": quick, **asdict(settings)}, _notes(quick))


def rows_of(archive: str, found: Mapping[str, Found]) -> list[Row]:
    """All lead times together, and the skill by lead time."""
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
    """Ratios below 1 are in our favour; ``members`` are those of the ensemble."""
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
    """How far from the best that is possible."""
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


def _notes(quick: bool) -> list[str]:
    return [
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
        *["--quick: too short a training to compare anything"] * quick,
    ]
