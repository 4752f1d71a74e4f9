import math

import numpy as np
import pytest
import scoringrules
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.comparison import (
    PERSISTENCE,
    empty_scores,
    of_learner,
    reference,
    score,
    with_shots,
)
from metaprior.solar.maps.units import ScaledValues
from metaprior.tasks.task import Examples, Task
from tests.solar.maps.tiny_archive import archive, dataset

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


def maps(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(2, outputs, 1)


def test_a_learner_forecasts_before_and_after_adaptation() -> None:
    learner = mp.MetaLearner(maps(2), mp.Gaussian(), inner=mp.InnerLoop(steps=3, lr=1e-3), standardize=False).start(
        SOURCE
    )
    task = SOURCE[1]
    for steps in (None, 0, 3):
        posterior = learner.prior_predictive() if steps is None else learner.adapt(task.support, steps)
        expected = posterior.predict(task.query.x, samples=3, seed=1)
        found = of_learner(learner, steps=steps, samples=3)(task, 1)
        assert torch.equal(found.means, expected.means), steps
    with pytest.raises(TypeError, match=r"maps need a Gaussian likelihood .* got a BernoulliForecast"):
        of_learner(labels(), steps=None, samples=2)(task, 0)


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
