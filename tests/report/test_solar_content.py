import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.context import SMART_PERSISTENCE, context_of
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.report.solar_content import StoryFacts, maps_of, page_content, units_text
from metaprior.solar.maps.report.solar_page import PageContent
from metaprior.solar.maps.report.solar_story import Change, change, story
from metaprior.solar.maps.units import ClearSkyIndex
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.solar.simulator import simulate
from metaprior.tasks.task import Task

FACTS = StoryFacts(trained_on="19 days", tested_on="other days", shots=5)
SHAPE = (1, 2, 16, 16)
CALIBRATED = torch.special.ndtri((torch.arange(256, dtype=torch.float64) + 0.5) / 256).reshape(16, 16)


def point(*errors: float) -> LeadTimeScores:
    """Tasks with targets 0, forecast with these errors; persistence errs by 1."""
    scores = LeadTimeScores([30, 60], value_range=1.0)
    for number, error in enumerate(errors):
        _add(scores, number, torch.full(SHAPE, error, dtype=torch.float64), torch.zeros(SHAPE, dtype=torch.float64))
    return scores


def spread(z: Tensor, tasks: int = 3) -> LeadTimeScores:
    """Standard normal forecasts of targets that are z."""
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
        "to two tasks that it had not seen: other days. In brackets are 95 % limits over tasks.\n\n"
        "Beside persistence (the last frame, held), its RMSE is 25 % lower (25 to 25 %) 30 minutes ahead "
        "and 25 % lower (25 to 25 %) 60 minutes ahead.\n\n"
        "And so on."
    )


@pytest.mark.parametrize(
    ("ours", "rival", "verdict"),
    [
        ((0.5, 0.25), (0.6, 0.3), "the prior wins"),
        ((0.75, 0.65), (0.6, 0.6), "the tuned one wins"),
        ((0.75, 0.25), (0.5, 0.5), "neither wins beyond doubt"),
    ],
)
def test_the_rival_is_named_where_it_wins(ours: tuple[float, ...], rival: tuple[float, ...], verdict: str) -> None:
    scores = {"ours": point(*ours), "tuned one": point(*rival)}
    told = story("ours", scores, replace(FACTS, rival="tuned one", rival_is="a tuned one"))
    assert "Beside a tuned one, its CRPS over all lead times is " in told
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
    assert "the prior wins by CRPS, the tuned one by RMSE" in told


def test_others_with_lower_numbers_are_named() -> None:
    scores = {"ours": point(0.5, 0.5), "flow": point(0.4, 0.4), "worse": point(0.6, 0.6)}
    assert "Lower numbers than the adapted prior's are those of flow (CRPS and RMSE)." in story("ours", scores, FACTS)
    assert "Lower numbers" not in story("flow", scores, FACTS)


def test_what_the_windows_are_worth() -> None:
    scores = {"ours": point(0.45, 0.45), "before": point(0.5, 0.5)}
    told = story("ours", scores, replace(FACTS, unadapted="before", shots=1))
    assert "Adapting to one window: beside the prior as it is, CRPS is 10 % lower" in told


@pytest.mark.parametrize(
    ("z", "said"),
    [
        (
            CALIBRATED,
            "hold 89.8 % of what happened (89.8 to 89.8 %): they keep what they promise. On 3 of 3",
        ),
        (
            torch.full((16, 16), 3.0),
            "hold 0.0 % of what happened (0.0 to 0.0 %): they are too narrow. On 0 of 3",
        ),
        (torch.zeros(16, 16), "hold 100.0 % of what happened (100.0 to 100.0 %): they are wider than"),
    ],
)
def test_intervals_are_judged(z: Tensor, said: str) -> None:
    assert f"Its 90 % intervals {said}" in story("ours", {"ours": spread(z)}, FACTS)


def test_a_change_knows_its_limits() -> None:
    assert str(Change(-0.05, -0.08, -0.012)) == "5.0 % lower (1.2 to 8.0 %)"
    assert str(Change(0.2, 0.1, 0.3)) == "20 % higher (10 to 30 %)"
    assert str(Change(-0.01, -0.03, 0.02)) == ("1.0 % lower, which may be chance (3.0 % lower to 2.0 % higher)")
    assert str(Change(-0.01, math.nan, math.nan)) == "1.0 % lower (a single task: no limits)"
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
    assert "lead" not in page.scores[0]
    assert set(page.reliability) == {"ours"}  # what is held has no intervals
    assert dict(page.reliability["ours"])[0.5] == pytest.approx(0.5, abs=0.01)


def test_methods_without_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="rival is 'tuned', which has no scores; there are ours, held"):
        content(facts=replace(FACTS, rival="tuned"))
    with pytest.raises(ValueError, match="ours is 'theirs'"):
        content(ours="theirs")


def test_units_are_written_as_people_do() -> None:
    assert units_text("W m-2") == "W/m²"
    assert units_text("reflectance") == "reflectance"


@pytest.mark.parametrize("none", ["1", "", " "])
def test_units_that_nobody_knows_are_words_so_that_no_text_ends_in_nothing(none: str) -> None:
    assert units_text(none) == "units of the frames"
    assert units_text(units_text(none)) == "units of the frames"  # as read again from the examples of a run


@pytest.fixture(scope="module")
def dataset() -> MetaSolarPredictionDataset:
    frames = simulate(days=3, size=12, progress=False)
    return MetaSolarPredictionDataset(frames, k_shot=3, k_query=2, patch=8, period_days=2, units=ClearSkyIndex())


def held(task: Task, number: int) -> GaussianForecast:
    """The last frame in the network's numbers, plus or minus 0.3 and 0.4: std 0.5."""
    last = task.query.x[:, 3:4].expand_as(task.query.y)
    apart = 0.3 / math.sqrt(2)
    return GaussianForecast(torch.stack([last - apart, last + apart]), torch.full((2, 1, 1, 1, 1), 0.4))


def test_maps_are_in_the_frames_own_units(dataset: MetaSolarPredictionDataset) -> None:
    maps, windows = maps_of(dataset, 1, held, window=1), dataset.windows(1).query
    context = context_of(dataset.reader, windows)
    block = dataset.reader.block(windows[1])
    torch.testing.assert_close(torch.from_numpy(maps.mean), context.references[SMART_PERSISTENCE][1])
    np.testing.assert_allclose(maps.std, (0.5 * context.scale[1]).expand(4, 8, 8).numpy(), rtol=1e-5)
    np.testing.assert_array_equal(maps.target, block[4:].values)
    assert maps.inputs is not None
    np.testing.assert_array_equal(maps.inputs, block[:4].values)
    np.testing.assert_array_equal(maps.latitude, block["latitude"].values)
    np.testing.assert_array_equal(maps.longitude, block["longitude"].values)
    assert np.datetime64(maps.issued) == block["time"].values[3]
    assert (maps.units, maps.cadence_minutes) == ("W/m²", 30)
    assert maps.name == f"{block['latitude'].mean():.1f}° N, {block['longitude'].mean():.1f}° E"


def test_samples_of_maps_repeat_the_errors_of_the_support_windows(dataset: MetaSolarPredictionDataset) -> None:
    maps, support = maps_of(dataset, 1, held), dataset[1].support
    errors = (support.y - support.x[:, 3:4]) / 0.5
    assert maps.samples is not None
    np.testing.assert_allclose(maps.samples, maps.mean + maps.std * errors.numpy(), rtol=1e-4, atol=1e-3)


def test_places_without_coordinates_are_named_by_their_task() -> None:
    frames = simulate(days=3, size=12, progress=False).drop_vars(("latitude", "longitude"))
    plain = MetaSolarPredictionDataset(frames, k_shot=2, k_query=1, patch=8, by="place")
    maps = maps_of(plain, 0, held)
    assert maps.name.startswith("task 0 at row")
    assert maps.latitude is None
