import numpy as np
import pytest
import torch

from benchmarks.wheel.tasks import WheelTasks
from metaprior.tasks.task import Examples, Task, VariedSupport
from metaprior.tasks.waves import Sinusoids


def rows(*examples: Examples) -> list[tuple[float, ...]]:
    return [tuple(row) for part in examples for row in torch.cat(part, 1).tolist()]


def test_a_tasks_examples_are_divided_anew() -> None:
    whole, varied = Sinusoids(k_shot=8, k_query=6), VariedSupport(Sinusoids(k_shot=8, k_query=6), (1, 3, 8))
    for position in range(20):
        task, full = varied[position], whole[position]
        assert task.support.size in (1, 3, 8)
        assert task.query.size == 6
        drawn = rows(task.support, task.query)
        assert len(set(drawn)) == len(drawn), "no example is in both"
        assert set(drawn) <= set(rows(full.support, full.query))
    assert {varied[position].support.size for position in range(40)} == {1, 3, 8}
    mixed = set(rows(varied[0].query)) & set(rows(whole[0].support))
    assert mixed, "examples of the support set come to be asked for too"


def test_neighbours_share_a_size_and_a_finite_source_starts_over() -> None:
    varied = VariedSupport(WheelTasks(k_shot=16, k_query=4, num_tasks=3), (2, 4, 8, 16), together=4)
    sizes = [varied[position].support.size for position in range(40)]
    assert all(len(set(sizes[start : start + 4])) == 1 for start in range(0, 40, 4))
    assert len(set(sizes)) > 1
    assert varied[0].name == varied[3].name
    assert not torch.equal(varied[0].support.x[:2], varied[3].support.x[:2])
    assert torch.equal(varied[7].support.x, varied[7].support.x)


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(ValueError, match="fewer than the 6 drawn from sizes"):
        VariedSupport(Sinusoids(k_shot=5), (6,))[0]
    with pytest.raises(ValueError, match="sizes must be an integer of at least 0, got -1"):
        VariedSupport(Sinusoids(), (-1, 2))
    for sizes in ((), 3):
        with pytest.raises(ValueError, match=r"sizes must be support set sizes such as \(0, 1, 5\) or range\(11\)"):
            VariedSupport(Sinusoids(), sizes)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="start at 0"):
        VariedSupport(Sinusoids(), (2,))[-1]


def test_size_zero_is_an_empty_support_set_in_the_shape_of_the_others() -> None:
    images = [
        Task(Examples(torch.rand(3, 1, 4, 4), torch.arange(3)), Examples(torch.rand(2, 1, 4, 4), torch.arange(2)))
    ]
    task = VariedSupport(images, (0,))[0]
    assert (task.support.x.shape, task.support.y.shape) == ((0, 1, 4, 4), (0,))
    assert (task.support.y.dtype, task.query.size) == (torch.int64, 2)
    sizes = [VariedSupport(Sinusoids(k_shot=4), range(5), together=3)[i].support.size for i in range(60)]
    assert set(sizes) == {0, 1, 2, 3, 4}
    assert all(len(set(sizes[start : start + 3])) == 1 for start in range(0, 60, 3))


def test_supports_lie_in_the_past_of_the_query() -> None:
    hours = torch.arange(12.0)[:, None]
    days = [Task(Examples(hours[:8], hours[:8]), Examples(hours[8:], hours[8:]), "day")]
    varied = VariedSupport(days, (0, 1, 8), together=2, past=True)
    for position in range(30):
        support, query, _ = varied[position]
        drawn = torch.cat([support.x, query.x])[:, 0]
        assert query.size == 4
        assert bool((drawn.diff() > 0).all())
    assert len({tuple(varied[position].query.x[:, 0].tolist()) for position in range(30)}) > 5, "query sets differ too"


def test_tasks_may_be_given_in_arrays() -> None:
    pairs = [(np.ones((n, 2)), np.zeros(n)) for n in (3, 2)]
    assert VariedSupport([Task(*pairs)], (1,))[0].support.x.shape == (1, 2)  # type: ignore[arg-type]
