import pytest
import torch

from benchmarks import sinusoid
from metaprior.tasks.waves import Sinusoids
from tests.benchmarks.tiny import TINY as ALL

TINY: sinusoid.Settings = ALL["sinusoid"]


def test_maml_is_the_same_code_with_a_point_prior() -> None:
    learners = sinusoid.learners(TINY)
    abml, maml = learners[sinusoid.ABML], learners[sinusoid.MAML]
    assert (maml.relative_sigma, maml.problem().inner.kl_weight, maml.objective) == (0.0, 0.0, "query")
    assert (maml.problem().inner.steps, maml.problem().inner.learn_lr, maml.problem().inner.adapt) == (
        abml.problem().inner.steps,
        abml.problem().inner.learn_lr,
        abml.problem().inner.adapt,
    )
    for one, other in zip(abml.network.module.parameters(), maml.network.module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_rows_are_means_over_tasks_with_their_standard_errors() -> None:
    found = (
        sinusoid.learners(TINY)[sinusoid.ABML]
        .start(Sinusoids())
        .evaluate(sinusoid.test_tasks(TINY), shots=(0,), progress=False)
    )
    (row,) = sinusoid.rows_of("x", found, {"more": 1})
    errors = torch.tensor([task["mse"] for task in found.per_task], dtype=torch.float64)
    assert row["mse"] == pytest.approx(float(errors.mean()))
    assert row["mse_se"] == pytest.approx(float(errors.std() / 3**0.5))
    assert (row["method"], row["more"], row["tasks"]) == ("x", 1, 3)


def test_five_shots_are_the_first_of_ten_and_test_tasks_are_not_those_of_training() -> None:
    tasks = sinusoid.test_tasks(TINY)
    assert [task.support.size for task in tasks] == [10, 10, 10]
    seen = Sinusoids(seed=sinusoid.TRAINING_SEED)
    assert not any(bool(torch.isclose(tasks[0].support.x, seen[i].support.x[:1]).any()) for i in range(50))
