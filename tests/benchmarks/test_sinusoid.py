import math

import pytest
import torch

from benchmarks import sinusoid
from metaprior.tasks.sinusoids import Sinusoids

TINY = sinusoid.Settings(
    seconds=0.3,
    inner_steps=2,
    meta_batch=2,
    test_tasks=3,
    test_query=20,
    test_samples=5,
    shots=(0, 5),
    steps=(1, 2),
    alone_tasks=2,
    alone_steps=5,
)


def test_the_result_has_every_method_and_its_headline_is_read_off_the_rows(short_search: None) -> None:
    threads = torch.get_num_threads()
    result = sinusoid.run(settings=TINY)
    assert torch.get_num_threads() == threads
    cells = {(row["method"], row["shots"], row["steps"]): row for row in result.rows}
    for name, ending in ((sinusoid.ABML, ""), (sinusoid.MAML, "_maml")):
        assert cells[name, 0, 0]["tasks"] == 3
        assert result.headline[f"mse_5shot_2steps{ending}"] == cells[name, 5, 2]["mse"]
        assert result.headline[f"mse_5shot_1steps{ending}"] == cells[name, 5, 1]["mse"]
        assert result.headline[f"coverage_90{ending}"] == cells[name, 5, 2]["coverage_90"]
    alone = cells[sinusoid.ALONE, 5, 5]
    assert (alone["tasks"], result.headline["mse_5shot_alone"]) == (2, alone["mse"])
    published = [row for row in result.rows if row["method"].startswith("published")]
    assert {row["steps"]: row["mse"] for row in published} == {1: 0.6, 10: 0.28}
    assert all(math.isfinite(value) for value in result.headline.values())
    assert (result.settings["bench"], result.settings["seconds"]) == ("sinusoid", 0.3)


def test_maml_is_the_same_code_with_a_point_prior() -> None:
    learners = sinusoid.learners(TINY)
    abml, maml = learners[sinusoid.ABML], learners[sinusoid.MAML]
    assert (maml.relative_sigma, maml.inner.kl_weight, maml.objective) == (0.0, 0.0, "query")
    assert (maml.inner.steps, maml.inner.learn_lr, maml.inner.adapt) == (
        abml.inner.steps,
        abml.inner.learn_lr,
        abml.inner.adapt,
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
