import pytest
import torch

from benchmarks.wheel.tasks import WheelTasks
from metaprior.tasks.task import Examples, VariedSupport
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
    with pytest.raises(ValueError, match="at least 1"):
        VariedSupport(Sinusoids(), (0, 2))
    with pytest.raises(IndexError, match="start at 0"):
        VariedSupport(Sinusoids(), (2,))[-1]
