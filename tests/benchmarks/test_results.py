"""Every benchmark of the registry runs on tiny settings, reports the pinned headline, and reads it off its rows."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import omniglot, permuted, sinusoid, speed, warmstart
from benchmarks.adaptation.problems import PROBLEMS
from benchmarks.adaptation.ways import CLOSED_FORM, DESCENT, EXACT
from benchmarks.common import budget
from benchmarks.common.registry import find, names
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.hierarchy import collapsed
from benchmarks.hierarchy import comparison as hierarchy
from benchmarks.hierarchy.gains import ALONE, HIERARCHICAL, NEW, SAME
from benchmarks.hierarchy.memory import Job as MemoryJob
from benchmarks.memory import comparison as memory
from benchmarks.scaling import comparison as scaling
from benchmarks.wheel import comparison as wheel
from benchmarks.worlds import costs
from metaprior.adaptation import descent
from tests.benchmarks.pretended import Machine, pretended_peaks
from tests.benchmarks.tiny import TINY, short_table_peers

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")

HEADLINES: dict[str, list[str]] = json.loads(Path(__file__).with_name("headlines.json").read_text())
"""The names of every benchmark's headline, which readers of old results rely on."""


@pytest.fixture(scope="module")
def results(made_up_data: Path) -> Callable[[str], BenchmarkResult]:
    """Results on tiny settings, computed once; measurements in fresh processes are pretended."""
    known: dict[str, BenchmarkResult] = {}

    def result(name: str) -> BenchmarkResult:
        if name not in known:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(descent, "SEARCH_TASKS", 1)
                patch.setattr(budget, "TRIAL_STEPS", 3)
                patch.setattr(speed, "threads_of", lambda group: 1)
                patch.setattr(memory, "available_gib", lambda: 100.0)
                patch.setattr(memory, "measured", pretended_peaks([]))
                patch.setattr(speed, "measured", pretended_peaks([]))
                patch.setattr(scaling, "by_torchrun", Machine(8))
                patch.setattr(hierarchy, "in_own_process", pretended_training)
                patch.setattr(costs, "_command_cpu", lambda prior, settings: 1.0)
                if name == "table":
                    pytest.importorskip("laplace", reason="laplace-torch is not installed (make peers)")
                    short_table_peers(patch, steps=30)
                known[name] = find(name).run(settings=TINY[name], data=made_up_data, workers=0)
        return known[name]

    return result


def pretended_training(_: object, job: MemoryJob) -> Row:
    return {"weights": 7, "peak_gib": 1 + job.tasks}


@pytest.mark.parametrize("name", names())
def test_headline_names_are_those_of_published_results(
    results: Callable[[str], BenchmarkResult], name: str, tmp_path: Path
) -> None:
    threads, result = torch.get_num_threads(), results(name)
    assert torch.get_num_threads() == threads
    assert sorted(result.headline) == sorted(HEADLINES[name])
    assert all(isinstance(value, int | float) for value in result.headline.values())
    assert (result.settings["bench"], result.settings["quick"]) == (name, False)
    assert result.notes
    for path in result.write(tmp_path / "result.json"):
        assert path.stat().st_size > 500
    assert set(json.loads((tmp_path / "result.json").read_text())) == {"headline", "rows", "settings", "versions"}
    assert all(row.keys() - {"part"} for row in result.rows)
    assert result.table().endswith(f"- {result.notes[-1]}")


@pytest.mark.parametrize("name", names())
def test_headlines_are_read_off_the_rows(results: Callable[[str], BenchmarkResult], name: str) -> None:
    if name in CHECKS:
        result = results(name)
        CHECKS[name](result.headline, result.rows)


def _by(rows: Any, *columns: str) -> dict[Any, Row]:
    return {tuple(row.get(column) for column in columns): row for row in rows}


def check_adaptation(headline: dict[str, float], rows: list[Row]) -> None:
    found = _by(rows, "part", "method", "shots")
    descent, closed = (found["sinusoids", way, 5] for way in (DESCENT, CLOSED_FORM))
    assert headline["nll_gain_sinusoid"] == descent["nll"] - closed["nll"]
    names = [PROBLEMS[part].name for part in ("sinusoid", "sine_or_line")]
    coverages = [found[name, CLOSED_FORM, shots]["coverage_90"] for name in names for shots in (0, 5)]
    assert (headline["coverage_low"], headline["coverage_high"]) == (min(coverages), max(coverages))
    for problem in (PROBLEMS[part] for part in ("sinusoid", "frequency", "sine_or_line")):
        for way in (*problem.recipes, EXACT):
            assert math.isfinite(found[problem.name, way, 5]["crps"]), (problem.name, way)


def check_uci(headline: dict[str, float], rows: list[Row]) -> None:
    for (name,), row in _by(rows, "set").items():
        assert (headline[f"nll_{name}"], headline[f"rmse_{name}"], row["splits"]) == (row["nll"], row["rmse"], 2)


def check_mnist(headline: dict[str, float], rows: list[Row]) -> None:
    found = _by(rows, "what", "network", "T")
    assert headline["ece_400_T0.5"] == found["metaprior", "2x400", 0.5]["ece"]
    assert found["metaprior, 95% pruned", "2x1200", 1.0]["error_percent"] > 0
    assert found["published: SGD", "2x1200", None]["error_percent"] == 1.88


def check_gradients(headline: dict[str, float], rows: list[Row]) -> None:
    assert headline["max_difference_float64"] < 1e-10
    assert headline["max_difference_higher"] < 1e-10
    assert headline["max_difference_float32"] < 1e-4
    assert headline["error_first_order"] > 1e-3
    assert len(rows) == 2


def check_speed(headline: dict[str, float], rows: list[Row]) -> None:
    assert all(math.isfinite(value) for value in headline.values())
    for what in (speed.EVERYTHING, speed.HEAD_LEARNED, speed.MLP_TASKS):
        losses = [row["loss"] for row in rows if row["what"] == what]
        assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-4)


def check_memory(headline: dict[str, float], rows: list[Row]) -> None:
    assert headline["memory_ratio_5"] == pytest.approx(1.5 / 11)
    assert headline["memory_ratio_10"] == pytest.approx(2 / 21)
    assert headline["bytes_per_step_over_4D"] == pytest.approx(1.0)
    assert headline["planner_error"] == pytest.approx(0.2)
    assert headline["planner_error_graphs"] == pytest.approx(0.1)
    assert headline["planner_shortfall"] == pytest.approx(0.1)
    assert headline["leak_ratio"] == 1.0
    assert all(row["status"] == "ok" for row in rows)


def check_sinusoid(headline: dict[str, float], rows: list[Row]) -> None:
    found = _by(rows, "method", "shots", "steps")
    for name, ending in ((sinusoid.ABML, ""), (sinusoid.MAML, "_maml")):
        assert found[name, 0, 0]["tasks"] == 3
        assert headline[f"mse_5shot_10steps{ending}"] == found[name, 5, 10]["mse"]
        assert headline[f"mse_5shot_1steps{ending}"] == found[name, 5, 1]["mse"]
        assert headline[f"coverage_90{ending}"] == found[name, 5, 10]["coverage_90"]
    alone = found[sinusoid.ALONE, 5, 5]
    assert (alone["tasks"], headline["mse_5shot_alone"]) == (2, alone["mse"])
    assert found["published: MAML (Finn et al. 2017)", 5, 1]["mse"] == 0.6


def check_robustness(headline: dict[str, float], rows: list[Row]) -> None:
    runs = {(row["problem"], row["nets"], row["inner_lr"]) for row in rows}
    assert runs == {(p, n, lr) for p in ("sinusoid", "unet") for n in ("on", "off") for lr in (1e-2, 1.0)}
    for problem in ("sinusoid", "unet"):
        errors = [row["rmse"] for row in rows if (row["problem"], row["nets"]) == (problem, "on")]
        assert headline[f"worst_over_best_{problem}"] == max(errors) / min(errors)
    assert headline["non_finite_theta"] == 0


def check_warmstart(headline: dict[str, float], rows: list[Row]) -> None:
    found = _by(rows, "problem", "method", "chosen_by")
    for ratio, measure in warmstart.RATIOS.items():
        waves, frames = (found[problem, warmstart.OURS, measure] for problem in ("sinusoid", "drifting blobs"))
        assert headline[f"{ratio}_finetuned"] == max(waves[ratio], frames[ratio])
        assert headline[f"{ratio}_finetuned_drifting_blobs"] == frames[ratio]
        tuned = found["drifting blobs", warmstart.TUNED, measure]
        by_hand = {
            "rmse": frames["rmse"] / tuned["rmse"],
            "nll": math.exp((frames["nll"] - tuned["nll"]) / (2 * 8 * 8)),
        }
        assert frames[ratio] == pytest.approx(by_hand[measure])
        assert tuned[ratio] == pytest.approx(1.0)
        assert min(frames["warm_steps"], frames["meta_steps"]) > 0
    assert found["drifting blobs", warmstart.POOLED, ""]["meta_steps"] == 0


def check_omniglot(headline: dict[str, float], rows: list[Row]) -> None:
    found = _by(rows, "method", "shots")
    for shots in (1, 5):
        for name, ending in (("ABML", ""), ("MAML", "_maml"), (omniglot.ANIL, "_anil"), (omniglot.ALONE, "_alone")):
            row = found[name, shots]
            assert (row["tasks"], row["failed"]) == (3, 0)
            assert row["steps"] >= 1
            for measure in ("accuracy", "nll", "ece"):
                assert headline[f"{measure}_{shots}shot{ending}"] == row[measure]
                assert math.isfinite(row[f"{measure}_se"])
        abml, maml, both = (found[name, shots] for name in ("ABML", "MAML", "ABML minus MAML, same tasks"))
        assert headline[f"ece_ratio_{shots}shot"] == abml["ece"] / maml["ece"]
        assert [both[m] for m in ("accuracy", "nll")] == pytest.approx([abml[m] - maml[m] for m in ("accuracy", "nll")])
    assert found["published: PACOH-NN", 5]["accuracy"] == 0.885


def check_wheel(headline: dict[str, float], rows: list[Row]) -> None:
    found = {what: row for (what,), row in _by(rows, "what").items()}
    kinds = {"": "ABML, Thompson", "_maml": "MAML, greedy", "_optimistic": "ABML, optimistic Thompson"}
    for delta in wheel.DELTAS:
        for ending, name in kinds.items():
            assert headline[f"wheel_{delta}{ending}"] == found[name][f"delta {delta}"] >= 0
    assert found["published: ABML, Thompson (n = 2,000)"]["delta 0.99"] == 35.04
    assert (found["ABML, Thompson"]["trainings"], found["MAML, greedy, support sets of 512"]["trainings"]) == (2, 1)
    assert {"exact posterior, Thompson", "exact posterior, highest expected reward"} < set(found)


def check_hierarchy(headline: dict[str, float], rows: list[Row]) -> None:
    closed = _by([row for row in rows if "sets" in row], "method", "tasks", "observations")
    assert {key[1:] for key in closed} == {(1, 3), (2, 3), (3, 3), (3, 6)}
    assert headline["coverage_3x5"] == closed[collapsed.HMC, 1, 3]["coverage_90"]
    assert headline["nll_50x5"] == closed[collapsed.HMC, 3, 3]["nll"]
    gap = closed[collapsed.HMC, 2, 3]["nll"] - closed[collapsed.GAUSSIAN_PROCESS, 2, 3]["nll"]
    assert headline["nll_over_process_10x5"] == pytest.approx(gap)
    found = _by([row for row in rows if "scored" in row], "method", "tasks", "observations", "on")
    methods = (ALONE, HIERARCHICAL, hierarchy.AMORTISED)
    assert found.keys() == {(m, t, n, on) for m in methods for t in (1, 2) for n in (3, 6) for on in (SAME, NEW)}
    for (_, tasks, _, on), row in found.items():
        assert (row["scored"], row["failed"]) == (tasks if on == SAME else 2, 0)
        assert all(math.isfinite(row[measure]) for measure in ("mse", "nll", "coverage_90"))
    assert headline["hvi_memory_ratio"] == pytest.approx(5 / 3)
    for name, corner in {"gain_few_data": (2, 3, SAME), "gain_many_data_few_tasks": (1, 6, SAME)}.items():
        assert headline[name] == pytest.approx(found[ALONE, *corner]["mse"] / found[HIERARCHICAL, *corner]["mse"])
    assert headline["coverage_hierarchical"] == found[HIERARCHICAL, 2, 3, SAME]["coverage_90"]


def check_permuted(headline: dict[str, float], rows: list[Row]) -> None:
    found = _by(rows, "tasks", "method")
    for kind in (permuted.LABELS, permuted.PIXELS):
        own = {method: found[f"permuted {kind}", method] for method in permuted.METHODS}
        assert headline[f"error_{kind}_warm_start"] == own[permuted.WARM]["error_percent"]
        best = min(own[method]["error_percent"] for method in (permuted.SCRATCH, permuted.ALONE))
        assert headline[f"gain_{kind}"] == best / own[permuted.HIERARCHICAL]["error_percent"]
        assert {method: row["training_tasks"] for method, row in own.items()} == {
            **dict.fromkeys(own, 2),
            **permuted.TRAINED_ON,
        }
    assert found["permuted pixels", "published: MAML"]["error_percent"] == 3.77


def check_table(headline: dict[str, float], rows: list[Row]) -> None:
    small = [row for row in rows if row["part"] == "yacht"]
    methods = {row["method"] for row in small}
    assert len(small) == len(methods) >= 9
    for score in ("nll", "crps"):
        assert sum(row[f"{score}_rank"] for row in small) == sum(range(1, len(methods) + 1))
    assert {row["method"] for row in rows if row["part"] == "all tables"} == methods
    groups = [row for row in rows if row["part"] == "linear"]
    assert {row["rows"] for row in groups} == {"known groups", "new groups, 5 rows"}
    assert all(math.isfinite(row["nll"]) for row in [*small, *groups])
    (ours,) = [row for row in rows if row["method"] == "BayesRegressor, defaults" and "tables" in row] or [headline]
    for name in ("coverage_worst", "nll_rank", "crps_rank"):
        assert headline[name] == pytest.approx(ours[name], nan_ok=True)


def check_reading(headline: dict[str, float], rows: list[Row]) -> None:
    found = _by(rows, "archive")
    assert list(found) == [("simulated",), ("himawari",)]
    for (archive,), row in found.items():
        assert headline[f"reading_share_{archive}"] == row["reading_share"]
        assert headline[f"finite_share_{archive}"] == row["finite_share"]
        assert 0 < row["reading_share"] + row["finite_share"] < 1
    assert headline["reading_share"] == max(row["reading_share"] for row in rows)


def check_solar(headline: dict[str, float], rows: list[Row]) -> None:
    found = _by(rows, "archive", "method")
    ours, truth = found["simulated", "ABML (head) *"], found["simulated", "true distribution"]
    assert headline["crps_ratio_truth"] == pytest.approx(ours["crps"] / truth["crps"])
    assert headline["skill_60"] == found["Himawari-9", "ABML (head) *"]["skill_60"]
    assert ("Himawari-9", "ensemble of 2, fine-tuned") in found
    assert ("simulated", "smart persistence") in found


CHECKS: dict[str, Callable[[dict[str, float], Any], None]] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}
