import math

import numpy as np
import pytest
import scoringrules
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.forecasts import GaussianForecast
from metaprior.solar import sun
from metaprior.solar.maps.baselines import persistence, smart_persistence
from metaprior.solar.maps.comparison import (
    PERSISTENCE,
    SMART_PERSISTENCE,
    Context,
    context_of,
    empty_scores,
    of_learner,
    reference,
    score,
    with_shots,
)
from metaprior.solar.maps.units import ClearSkyIndex, ScaledValues, Units, has_coordinates
from metaprior.tasks.task import Examples, Task
from tests.solar.maps.tiny_archive import HALF_HOUR, LATITUDE, LONGITUDE, archive, dataset

SOURCE = dataset(archive(3), units=ScaledValues(0.0, 800.0), k_query=2, patch=12)
COUNT = 2


def constant(task: Task, index: int) -> GaussianForecast:
    """Another value for every task, surely too sure of itself: 0.1 + index / 10, and 0.2 on both sides."""
    shape = (2, *task.query.y.shape)
    return GaussianForecast(torch.full(shape, 0.1 + 0.1 * index), torch.full(shape, 0.2))


def targets() -> np.ndarray:
    """(task, window, lead, row, column), in W/m2 and double precision."""
    windows = [SOURCE.windows(index).query for index in range(COUNT)]
    return np.stack([[SOURCE.reader.read(window)[2:] for window in part] for part in windows]).astype(np.float64)


def test_scores_are_those_computed_by_hand() -> None:
    found = score(SOURCE, COUNT, {"constant": constant}, {"held": reference(PERSISTENCE)}, progress=False)
    assert list(found) == ["held", "constant"]
    rows = {row["lead"]: row for row in found["constant"].rows()}
    assert list(rows) == [30, 60, "all"]

    y = targets()
    mean = 400 + 400 * np.array([0.1, 0.2]).reshape(2, 1, 1, 1, 1)  # back in W/m2
    held = np.stack([[SOURCE.reader.read(w)[1] for w in SOURCE.windows(i).query] for i in range(COUNT)])[:, :, None]
    crps = scoringrules.crps_normal(y, mean, 80.0)
    nll = 0.5 * ((y - mean) / 80) ** 2 + math.log(80) + 0.5 * math.log(2 * math.pi)
    for number, lead in enumerate((30, 60)):
        errors, row = (mean - y)[:, :, number], rows[lead]
        rmse = math.sqrt((errors**2).mean())
        assert row["values"] == errors.size
        assert row["rmse"] == pytest.approx(rmse, rel=1e-6)
        assert row["bias"] == pytest.approx(errors.mean(), rel=1e-5)
        assert row["crps"] == pytest.approx(crps[:, :, number].mean(), rel=1e-6)
        assert row["nll"] == pytest.approx(nll[:, :, number].mean(), rel=1e-6)
        of_held = math.sqrt(((held - y)[:, :, number] ** 2).mean())
        assert row["skill_persistence"] == pytest.approx(1 - rmse / of_held, rel=1e-5)
        point = next(one for one in found["held"].rows() if one["lead"] == lead)
        assert point["rmse"] == pytest.approx(of_held, rel=1e-6)
        assert point["skill_persistence"] == pytest.approx(0.0, abs=1e-12)
    assert rows["all"]["rmse"] == pytest.approx(math.sqrt(((mean - y) ** 2).mean()), rel=1e-6)
    assert found["constant"].tasks == sorted(SOURCE[index].name for index in range(COUNT))


def test_lead_times_come_from_the_cadence() -> None:
    frames = archive(3)[::2]  # every hour
    frames.attrs |= {"cadence": "1h"}
    scores = empty_scores(dataset(frames, k_shot=1, k_query=1))
    assert (scores.lead_minutes, scores.value_range) == ((60, 120), 1100.0)


def context(*, coordinates: bool = True, units: Units | None = None) -> tuple[Context, np.ndarray]:
    """Of the first task's query windows, and the values that were read for it by hand."""
    source = dataset(archive(3, coordinates=coordinates), units=units)
    windows = source.windows(0).query
    values = source.frames.values
    blocks = [values[w.start : w.start + 4, w.y : w.y + 6, w.x : w.x + 6] for w in windows]
    return context_of(source.reader, windows), np.stack(blocks)


def test_frames_are_in_their_own_units_and_issued_with_the_last_input() -> None:
    found, blocks = context()
    np.testing.assert_array_equal(found.inputs, blocks[:, :2])
    np.testing.assert_array_equal(found.targets, blocks[:, 2:])
    starts = np.array([window.start for window in found.windows])
    np.testing.assert_array_equal(found.issued, archive(3)["time"].values[starts] + HALF_HOUR)


@pytest.mark.parametrize("units", [None, ClearSkyIndex()])
def test_decoded_targets_are_the_frames(units: Units | None) -> None:
    source = dataset(archive(3), units=units)
    found, targets = context_of(source.reader, source.windows(0).query), source[0].query.y
    forecast = GaussianForecast(targets.expand(2, *targets.shape), torch.full((1, 1, 1, 1, 1), 0.5))
    decoded = found.decoded(forecast)
    torch.testing.assert_close(decoded.mean, found.targets, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(decoded.aleatoric, (0.5 * found.scale).expand_as(found.targets))


def test_references_are_persistence_and_where_the_sun_is_known_smart_persistence() -> None:
    found, blocks = context()
    assert set(found.references) == {PERSISTENCE, SMART_PERSISTENCE}
    values = torch.from_numpy(blocks)
    assert torch.equal(found.references[PERSISTENCE], persistence(values[:, :2], 2))
    issued, leads = found.issued, found.issued[:, None] + np.arange(1, 3) * HALF_HOUR
    for number, window in enumerate(found.windows):
        place = LATITUDE[window.y : window.y + 6], LONGITUDE[window.x : window.x + 6]
        now = torch.tensor(sun.clear_sky(issued[number : number + 1], *place)).float()
        then = torch.tensor(sun.clear_sky(leads[number], *place)).float()[None]
        expected = smart_persistence(values[number : number + 1, :2], now, then)[0]
        torch.testing.assert_close(found.references[SMART_PERSISTENCE][number], expected)


def test_persistence_of_the_clear_sky_index_is_smart_persistence_in_watts() -> None:
    source = dataset(archive(3), units=ClearSkyIndex())
    found, x = context_of(source.reader, source.windows(0).query), source[0].query.x
    held = found.loc + found.scale * x[:, 1:2]  # channel 1 is the last of two input frames
    torch.testing.assert_close(held, found.references[SMART_PERSISTENCE], rtol=1e-5, atol=1e-3)


def test_daylight_has_a_value_for_every_target_pixel() -> None:
    found, blocks = context(coordinates=False)
    np.testing.assert_array_equal(found.daylight, blocks[:, 2:] > sun.DARK_SHARE * 1100)
    by_sun, _ = context()
    assert by_sun.daylight.shape == by_sun.targets.shape
    assert bool(by_sun.daylight.all()), "windows are in daylight, whatever the values"


def test_without_coordinates_there_is_persistence_alone() -> None:
    found, _ = context(coordinates=False)
    assert set(found.references) == {PERSISTENCE}
    assert has_coordinates(archive(1))
    assert not has_coordinates(archive(1, coordinates=False))


def maps(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(2, outputs, 1)


def test_a_learner_forecasts_before_and_after_adaptation() -> None:
    learner = mp.MetaLearner(maps(2), mp.Gaussian(), adaptation=mp.Descent(steps=3, lr=1e-3), standardize=False).start(
        SOURCE
    )
    task = SOURCE[1]
    for steps in (None, 0, 3):
        posterior = learner.prior_predictive() if steps is None else learner.adapt(task.support, steps)
        expected = posterior.predict(task.query.x, samples=3, seed=1)
        found = of_learner(learner, adapted=steps is not None, steps=steps, samples=3)(task, 1)
        assert torch.equal(found.means, expected.means), steps
    with pytest.raises(TypeError, match=r"maps need a Gaussian likelihood .* got a BernoulliForecast"):
        of_learner(labels(), adapted=False, samples=2)(task, 0)


def labels() -> mp.MetaLearner:
    class Labels:
        def __getitem__(self, index: int) -> Task:
            support, query, name = SOURCE[0]
            return Task(support._replace(y=_signs(support.y)), query._replace(y=_signs(query.y)), name)

    return mp.MetaLearner(maps(2), mp.Bernoulli()).start(Labels())


def _signs(values: Tensor) -> Tensor:
    return (values > 0).float()


def test_fewer_shots_are_the_first_ones() -> None:
    seen: list[Task] = []

    def forecaster(task: Task, index: int) -> GaussianForecast:
        seen.append(task)
        return GaussianForecast(torch.zeros(2, 1), torch.ones(2, 1))

    support = Examples(torch.arange(5.0), 10 * torch.arange(5.0))
    with_shots(forecaster, 2)(Task(support, support, "name"), 7)
    assert seen[0].support.x.tolist() == [0.0, 1.0]
    assert seen[0].support.y.tolist() == [0.0, 10.0]
    assert seen[0].query is support
    assert seen[0].name == "name"
