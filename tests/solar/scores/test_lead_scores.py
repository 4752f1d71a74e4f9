import json
import math

import pytest
import torch
from scoringrules import crps_mixnorm, crps_normal  # type: ignore[import-untyped]
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from metaprior.forecasts import GaussianForecast
from metaprior.scores import IntervalReliability
from metaprior.solar.scores.lead_scores import LeadTimeScores, compare

LEADS = [30, 60]
SHAPE = (3, 2, 12, 13)  # windows, lead times, rows, columns


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def example(seed: int = 0, samples: int = 4) -> tuple[GaussianForecast, Tensor]:
    means = normal(samples, *SHAPE, seed=seed)
    scales = 0.3 + normal(samples, *SHAPE, seed=seed + 1000).abs()
    return GaussianForecast(means, scales), normal(*SHAPE, seed=seed + 2000)


def empty(**changes: float) -> LeadTimeScores:
    return LeadTimeScores(LEADS, **{"value_range": 4.0, **changes})


def scored(*tasks: str, point: bool = False) -> LeadTimeScores:
    scores = empty()
    for number, task in enumerate(tasks):
        forecast, targets = example(seed=number)
        scores.add(forecast.mean if point else forecast, targets, task=task, references={"zero": torch.zeros(SHAPE)})
    return scores


def constant(values: list[float], size: int = 2) -> Tensor:
    """One window whose frames have one value each."""
    return torch.tensor(values, dtype=torch.float64)[None, :, None, None].expand(1, len(values), size, size)


def test_errors_are_pooled_over_the_pixels_of_all_tasks() -> None:
    scores = empty()
    targets = constant([0.0, 0.0])
    scores.add(constant([3.0, 1.0]), targets, task="one window")
    scores.add(constant([-1.0, 2.0]).repeat(3, 1, 1, 1), targets.repeat(3, 1, 1, 1), task="three windows")
    first, second, both = scores.rows()
    assert [row["lead"] for row in (first, second, both)] == [30, 60, "all"]
    assert (scores.row(lead=30), scores.row(lead=60), scores.row()) == (first, second, both)
    assert (first["tasks"], first["values"], both["values"]) == (2, 16, 32)
    assert first["rmse"] == pytest.approx(math.sqrt((9 + 3 * 1) / 4))
    assert second["rmse"] == pytest.approx(math.sqrt((1 + 3 * 4) / 4))
    assert both["rmse"] == pytest.approx(math.sqrt((9 + 3 + 1 + 12) / 8))
    assert first["bias"] == pytest.approx((3 - 3) / 4)
    assert first["mae"] == pytest.approx((3 + 3) / 4)
    assert first["crps"] == first["mae"]  # of a point


def test_skill_is_measured_by_root_mean_squared_errors() -> None:
    scores = empty()
    references = {"persistence": constant([4.0, 1.0]), "itself": constant([1.0, 2.0])}
    scores.add(constant([1.0, 2.0]), constant([0.0, 0.0]), task="t", references=references)
    first, second, both = scores.rows()
    assert [first["skill_persistence"], second["skill_persistence"]] == pytest.approx([0.75, -1.0])
    assert both["skill_persistence"] == pytest.approx(1 - math.sqrt(5 / 17))
    assert [row["skill_itself"] for row in (first, second, both)] == [0, 0, 0]


def test_a_reference_that_is_always_right_leaves_the_skill_unknown() -> None:
    scores = empty()
    scores.add(constant([1.0, 1.0]), constant([0.0, 0.0]), task="t", references={"truth": constant([0.0, 0.0])})
    assert scores.rows()[0]["skill_truth"] is None


def test_point_forecasts_have_no_measures_of_spread() -> None:
    scores = scored("a", point=True)
    assert not {"nll", "coverage_90", "width_50", "spread"} & set(scores.rows()[0])
    with pytest.raises(ValueError, match="needs forecasts with spread, got point forecasts"):
        scores.reliability()
    with pytest.raises(ValueError, match=r"measure must be one of rmse, mae, .*, got 'coverage_90'"):
        scores.share_of_tasks(at_least=0.8)


def test_weights_of_components_count_like_repeated_components() -> None:
    forecast, targets = example()
    counts = torch.tensor([1, 3, 0, 2])
    repeated = (values.repeat_interleave(counts, 0) for values in (forecast.means, forecast.scales))
    weighted, by_hand = empty(), empty()
    weighted.add(GaussianForecast(forecast.means, forecast.scales, weights=counts), targets, task="t")
    by_hand.add(GaussianForecast(*repeated), targets, task="t")
    for found, expected in zip(weighted.rows(), by_hand.rows(), strict=True):
        for name in ("rmse", "crps", "nll", "coverage_90", "width_50"):
            assert found[name] == pytest.approx(expected[name], rel=1e-5)


def test_measures_of_a_mixture_are_those_of_the_slow_formulas() -> None:
    forecast, targets = example()
    scores = empty()
    scores.add(forecast, targets, task="t")
    for lead, row in enumerate(scores.rows()[:2]):
        means, scales, y = forecast.means[:, :, lead], forecast.scales[:, :, lead], targets[:, lead]
        part = GaussianForecast(means, scales)
        expected = crps_mixnorm(y.numpy(), means.movedim(0, -1).numpy(), scales.movedim(0, -1).numpy())
        assert row["crps"] == pytest.approx(float(expected.mean()), rel=1e-6)
        one_by_one = GaussianForecast(means.flatten(1), scales.flatten(1))
        assert row["nll"] == pytest.approx(-float(one_by_one.log_prob(y.flatten()).mean()))
        for level in (50, 90):
            low, high = part.interval(level / 100)
            assert row[f"width_{level}"] == pytest.approx(float((high - low).mean()), rel=1e-5)
            assert row[f"coverage_{level}"] == pytest.approx(float(((y >= low) & (y <= high)).double().mean()))
        assert row["spread"] == pytest.approx(float(part.std.square().mean().sqrt()))
        assert row["spread_error"] == pytest.approx(row["spread"] / row["rmse"])


def test_known_answers_of_a_standard_normal() -> None:
    """At its mean: CRPS (sqrt 2 - 1)/sqrt pi, density 1/sqrt(2 pi), 90 % interval of 2 x 1.6449."""
    scores = empty()
    forecast = GaussianForecast(torch.zeros(2, 1, 2, 2, 2).double(), torch.ones(1, 1, 1, 1, 1).double())
    scores.add(forecast, constant([0.0, 0.0]), task="t")
    row = scores.rows()[-1]
    assert row["crps"] == pytest.approx(float(crps_normal(0.0, 0.0, 1.0)), abs=1e-9)
    assert row["nll"] == pytest.approx(0.5 * math.log(2 * math.pi))
    assert [row["width_50"], row["width_90"]] == pytest.approx([1.3489795, 3.2897073], abs=1e-6)
    assert [row["coverage_50"], row["spread"]] == [1, 1]


def test_a_true_forecast_is_calibrated_at_every_level() -> None:
    targets = normal(4, 2, 64, 64)
    scores = empty()
    forecast = GaussianForecast(torch.zeros(2, 4, 2, 64, 64), torch.ones(1, 1, 1, 1, 1))
    scores.add(forecast, targets, task="t")
    assert [level for level, _ in scores.reliability()] == list(IntervalReliability.LEVELS)
    for level, observed in scores.reliability():
        assert observed == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / targets.numel()))
    shares = [row["share"] for row in scores.pit_histogram()]
    assert len(shares) == 20
    assert sum(shares) == pytest.approx(1)
    assert shares == pytest.approx([0.05] * 20, abs=4 * math.sqrt(0.05 * 0.95 / targets.numel()))
    assert scores.rows()[-1]["spread_error"] == pytest.approx(1, abs=0.02)


def test_reliability_is_that_of_the_package() -> None:
    forecast, targets = example()
    scores, usual = empty(), IntervalReliability()
    scores.add(forecast, targets, task="t")
    usual.add(forecast, targets)
    assert scores.reliability() == [(row["level"], pytest.approx(row["observed"])) for row in usual.rows]
    second = IntervalReliability()
    second.add(GaussianForecast(forecast.means[:, :, 1], forecast.scales[:, :, 1]), targets[:, 1])
    assert scores.reliability(lead=60)[4][1] == pytest.approx(second.coverage(0.5))


def test_structural_similarity_is_the_mean_over_frames() -> None:
    forecast, targets = example()
    scores = empty()
    scores.add(forecast, targets, task="t")
    expected = structural_similarity_index_measure(forecast.mean[:, :1], targets[:, :1], data_range=4.0)
    assert isinstance(expected, Tensor)
    assert scores.rows()[0]["ssim"] == pytest.approx(float(expected), abs=1e-6)


def test_structural_similarity_needs_whole_frames_that_hold_its_window() -> None:
    small = empty()
    small.add(constant([1.0, 1.0], size=10), constant([0.0, 0.0], size=10), task="t")
    assert small.rows()[0]["ssim"] is None
    daylight = torch.ones(SHAPE, dtype=torch.bool)
    daylight[0, 0, 3, 3] = False
    forecast, targets = example()
    masked, rest = empty(), empty()
    masked.add(forecast.mean, targets, task="t", daylight=daylight)
    rest.add(forecast.mean[1:], targets[1:], task="t")
    assert masked.rows()[0]["ssim"] == pytest.approx(rest.rows()[0]["ssim"])


def test_a_mask_is_the_same_as_leaving_the_pixels_out() -> None:
    forecast, targets = example()
    daylight = torch.ones(SHAPE, dtype=torch.bool)
    daylight[..., 5:] = False
    broken = torch.where(daylight, targets, torch.nan)
    masked, cut = empty(), empty()
    masked.add(
        forecast, broken, task="t", references={"zero": torch.where(daylight, 0.0, torch.nan)}, daylight=daylight
    )
    smaller = GaussianForecast(forecast.means[..., :5], forecast.scales[..., :5])
    cut.add(smaller, targets[..., :5], task="t", references={"zero": torch.zeros(*SHAPE[:-1], 5)})
    for one, other in zip(masked.rows(), cut.rows(), strict=True):
        assert one == pytest.approx(other)


def test_a_lead_time_in_the_night_is_unknown_and_counts_for_nothing() -> None:
    forecast, targets = example()
    daylight = torch.ones(SHAPE, dtype=torch.bool)
    daylight[:, 1] = False
    scores = empty()
    scores.add(forecast, targets, task="t", daylight=daylight)
    first, second, both = scores.rows()
    assert (second["tasks"], second["values"], second["rmse"], second["coverage_90"]) == (0, 0, None, None)
    assert both["rmse"] == first["rmse"]


def test_neither_order_nor_parts_matter() -> None:
    whole, parts = scored("a", "b", "c"), empty()
    zero = {"zero": torch.zeros(1, *SHAPE[1:])}
    for number in (2, 0, 1):
        forecast, targets = example(seed=number)
        for n in range(SHAPE[0]):
            window = GaussianForecast(forecast.means[:, n : n + 1], forecast.scales[:, n : n + 1])
            parts.add(window, targets[n : n + 1], task="abc"[number], references=zero)
    assert parts.tasks == whole.tasks
    for one, other in zip(whole.rows(), parts.rows(), strict=True):
        assert one == pytest.approx(other)


def test_merged_is_together() -> None:
    together, first, second = scored("a", "b"), empty(), scored("a", "b")
    first.merge(second)
    assert first.rows() == together.rows()
    first.merge(empty())
    first.merge(second)  # the same sums again: twice the pixels, the same measures
    assert first.rows()[0]["values"] == 2 * together.rows()[0]["values"]
    assert first.rows()[0]["rmse"] == pytest.approx(together.rows()[0]["rmse"])
    with pytest.raises(
        ValueError, match=r"to merge must be of one kind, got .*with spread against zero.* and .*point forecasts"
    ):
        first.merge(scored("c", point=True))


def test_references_may_come_in_any_order() -> None:
    forecast, targets = example()
    references = {"zero": torch.zeros(SHAPE), "one": torch.ones(SHAPE)}
    straight, turned = empty(), empty()
    for name, scores in (("a", straight), ("b", straight), ("a", turned), ("b", turned)):
        turn = scores is turned and name == "b"
        given = dict(reversed(references.items())) if turn else references
        scores.add(forecast, targets, task=name, references=given)
    assert turned.rows() == straight.rows()


def test_scores_survive_json() -> None:
    scores = scored("a", "b")
    again = LeadTimeScores.from_json(json.loads(json.dumps(scores.as_json())))
    assert again.rows() == scores.rows()
    assert again.reliability() == scores.reliability()
    assert LeadTimeScores.from_json(empty().as_json()).tasks == []


def test_json_of_something_else_is_refused() -> None:
    content = scored("a").as_json()
    with pytest.raises(ValueError, match=r"scores must have the keys .*, got \['rows'\]"):
        LeadTimeScores.from_json({"rows": []})
    with pytest.raises(ValueError, match="must be those of this version"):
        LeadTimeScores.from_json({**content, "columns": ["values"]})
    with pytest.raises(ValueError, match=r"sums of task 'a' must have shape \(2, 52\), got \(1, 1\)"):
        LeadTimeScores.from_json({**content, "sums": {"a": [[1.0]]}})


def test_per_task_rows_are_those_of_each_task_alone() -> None:
    rows = scored("a", "b").per_task()
    alone = scored("a").rows()
    assert [(row["task"], row["lead"]) for row in rows] == [(t, lead) for t in "ab" for lead in (30, 60, "all")]
    for row, expected in zip(rows, alone, strict=False):
        assert {name: expected[name] for name in row if name != "task"} == {k: v for k, v in row.items() if k != "task"}


def test_limits_hold_the_true_mean_as_often_as_they_say() -> None:
    """Biases of tasks are drawn from a normal around 0.5; 95 % limits of 40 tasks should hold it nearly always."""
    held = 0
    for trial in range(60):
        scores = LeadTimeScores([30], value_range=1.0)
        for task, bias in enumerate((0.5 + normal(40, seed=trial)).tolist()):
            scores.add(constant([bias]), constant([0.0]), task=str(task))
        row = scores.rows(seed=trial)[0]
        held += row["bias_low"] <= 0.5 <= row["bias_high"]
        assert row["bias_high"] - row["bias_low"] == pytest.approx(2 * 1.96 / math.sqrt(40), rel=0.4)
    assert 51 <= held <= 60  # 57 expected; fewer than 51 would be a chance of one in a hundred


def test_limits_are_reproducible_and_unknown_for_one_task() -> None:
    scores = scored("a", "b", "c")
    assert scores.rows(seed=1) == scores.rows(seed=1)
    assert scores.rows(seed=1)[0]["rmse_low"] <= scores.rows()[0]["rmse"] <= scores.rows(seed=1)[0]["rmse_high"]
    assert scored("a").rows()[0]["rmse_low"] is None


def test_share_of_tasks() -> None:
    scores = empty()
    for task, error in enumerate([1.0, 2.0, 3.0, 4.0]):
        scores.add(constant([error, 0.0]), constant([0.0, 0.0]), task=str(task))
    night = torch.zeros(1, 2, 2, 2, dtype=torch.bool)
    scores.add(constant([9.0, 9.0]), constant([0.0, 0.0]), task="night", daylight=night)
    assert scores.share_of_tasks("mae", at_least=2.0, lead=30) == 0.75
    assert scores.share_of_tasks("mae", at_least=2.0) == 0.25  # both lead times together: half the error
    with pytest.raises(ValueError, match=r"lead must be one of \(30, 60, 'all'\), got 90"):
        scores.share_of_tasks("mae", at_least=2.0, lead=90)


def test_a_paired_comparison_sees_through_tasks_of_different_difficulty() -> None:
    better, worse = empty(), empty()
    for task in range(20):
        hard = 10.0 ** (task % 4)
        better.add(constant([0.9 * hard, 0.9 * hard]), constant([0.0, 0.0]), task=str(task))
        worse.add(constant([hard, hard]), constant([0.0, 0.0]), task=str(task))
    found = compare(better, worse, "rmse")
    assert list(found.values()) == pytest.approx([0.9, 0.9, 0.9])
    row = worse.rows()[0]
    assert row["rmse_high"] / row["rmse_low"] > 1.5  # unpaired limits could not tell the two apart
    assert compare(worse, better, lead=60)["ratio"] == pytest.approx(1 / 0.9)


def test_only_the_same_tasks_can_be_compared() -> None:
    with pytest.raises(ValueError, match="tasks that only one has: b, c"):
        compare(scored("a", "b"), scored("a", "c"))
    with pytest.raises(ValueError, match=r"measure must be one of rmse, .* to have a meaningful ratio, got 'nll'"):
        compare(scored("a"), scored("a"), "nll")
    less = empty()
    less.add(torch.zeros(1, 2, 2, 2), torch.ones(1, 2, 2, 2), task="a")
    with pytest.raises(ValueError, match="must be of the same pixels"):
        compare(scored("a"), less)
    assert compare(scored("a"), scored("a")) == {"ratio": 1.0, "ratio_low": None, "ratio_high": None}


@pytest.mark.parametrize("broken", ["targets", "forecast", "forecast's scales", "reference 'zero'"])
def test_values_that_are_not_finite_are_refused_by_name(broken: str) -> None:
    forecast, targets = example()
    zero = torch.zeros(SHAPE)
    part = {"targets": targets, "forecast": forecast.means[0], "forecast's scales": forecast.scales[0]}.get(
        broken, zero
    )
    part[1, 1, 2, 3] = torch.nan
    scores = empty()
    with pytest.raises(ValueError, match=f"^{broken} of task 'hill', window 1, 60 minutes ahead has 1 NaN"):
        scores.add(forecast, targets, task="hill", references={"zero": zero})
    assert scores.tasks == []  # all or nothing


def test_arguments_that_do_not_fit_are_refused() -> None:
    forecast, targets = example()
    scores = scored("a")
    with pytest.raises(ValueError, match=r"task 'b': targets must be \(windows, 2 lead times, rows, columns\)"):
        scores.add(forecast, targets[:, :1], task="b")
    with pytest.raises(ValueError, match=r"task 'b': reference 'zero' must have the targets' shape .* got \(1,\)"):
        scores.add(forecast, targets, task="b", references={"zero": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"daylight must hold booleans .*, got torch.float32"):
        scores.add(forecast, targets, task="b", daylight=torch.ones(SHAPE))
    with pytest.raises(ValueError, match=r"throughout, .* against zero, got .* against no reference"):
        scores.add(forecast, targets, task="b")
    still = GaussianForecast(forecast.means, torch.zeros(1, 1, 1, 1, 1))
    with pytest.raises(ValueError, match=r"scales of task 'b'.* must be positive, got 0\.0"):
        scores.add(still, targets, task="b", references={"zero": torch.zeros(SHAPE)})
    with pytest.raises(ValueError, match=r"distinct lead times, got \(30, 30\)"):
        LeadTimeScores([30, 30], value_range=1.0)
    with pytest.raises(ValueError, match="value_range must be positive"):
        empty(value_range=0.0)
    with pytest.raises(ValueError, match="nothing has been scored yet"):
        empty().rows()
