"""Sources of tasks whose examples have two inputs draw the rows that those with one draw."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from metaprior.tasks import GroupedTasks, VariedSupport
from metaprior.tasks.task import Examples, Task, all_examples, as_task, stacked_examples
from tests.several_inputs import FORMS, examples, task


def as_one(x: Any) -> Tensor:
    return torch.cat([*(x.values() if isinstance(x, dict) else x)], 1)


def assert_same_task(found: Task, expected: Task) -> None:
    for own, other in zip(found[:2], expected[:2], strict=True):
        assert torch.equal(as_one(own.x), other.x)
        assert torch.equal(own.y, other.y)


@pytest.mark.parametrize("form", FORMS)
def test_examples(form: str) -> None:
    found, single = examples(6, 1, form), examples(6, 1)
    assert found.size == 6
    assert found.shapes == ((6, 3), (6, 2), (6, 1))
    index = torch.tensor([4, 0])
    assert torch.equal(as_one(found.rows(index).x), single.x[index])
    assert torch.equal(as_one(found.first(2).x), single.x[:2])
    assert torch.equal(as_one(all_examples(found.split(4)).x), single.x)
    assert stacked_examples([found, found]).shapes == ((2, 6, 3), (2, 6, 2), (2, 6, 1))
    assert_same_task(task(1, form), task(1))


def test_empty_examples_need_not_have_the_same_inputs() -> None:
    none = Examples(torch.empty(0), torch.empty(0))
    assert all_examples([none, examples(2, 1, "tuple")]).shapes == ((2, 3), (2, 2), (2, 1))


@pytest.mark.parametrize("form", FORMS)
def test_varied_support(form: str) -> None:
    found, single = (VariedSupport([task(1, own)], (0, 2, 3), seed=2) for own in (form, None))
    for position in range(4):
        assert_same_task(found[position], single[position])


@pytest.mark.parametrize("form", FORMS)
def test_groups(form: str) -> None:
    def grouped(form: str | None) -> GroupedTasks:
        groups: dict[str, tuple[Any, Any]] = {name: examples(8, seed, form) for seed, name in enumerate("abc")}
        return GroupedTasks.from_examples(groups, k_shot=3, k_query=2)

    for index in range(3):
        assert_same_task(grouped(form)[index], grouped(None)[index])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [False, True])
def test_a_data_set_with_groups(form: str, rows: bool) -> None:
    def grouped(form: str | None) -> GroupedTasks:
        given = examples(9, 1, form)
        pairs: Any = [(Examples(given.rows(torch.tensor([i])).x, i).x, given.y[i]) for i in range(9)] if rows else given
        if rows:
            pairs = [(_without_axis(x), y) for x, y in pairs]
        return GroupedTasks(pairs, [0, 1, 2] * 3, k_shot=1, k_query=2)

    for index in range(3):
        assert_same_task(grouped(form)[index], grouped(None)[index])


def _without_axis(x: Any) -> Any:
    if isinstance(x, dict):
        return {name: part[0] for name, part in x.items()}
    return tuple(part[0] for part in x) if isinstance(x, tuple) else x[0]


def test_groups_with_other_inputs_are_refused() -> None:
    pairs: dict[str, tuple[Any, Any]] = {"a": examples(4, 1, "dict"), "b": examples(4, 2, "tuple")}
    with pytest.raises(ValueError, match=r'the same inputs, got x\["sky"\], x\["wind"\], y and x\[0\], x\[1\], y'):
        GroupedTasks.from_examples(pairs, k_shot=1, k_query=1)
    odd: dict[str, tuple[Any, Any]] = {"a": ((torch.zeros(4, 2), torch.zeros(3, 2)), torch.zeros(4))}
    with pytest.raises(ValueError, match="must have the same length, got other ones in 'a'"):
        GroupedTasks.from_examples(odd, k_shot=1, k_query=1)


def test_arrays_and_frames_as_parts() -> None:
    x, y = {"sky": np.zeros((2, 3)), "wind": np.zeros((2, 2))}, np.zeros((2, 1))
    assert as_task(Task((x, y), ((x["sky"], x["wind"]), y), "arrays")).support.size == 2  # type: ignore[arg-type]
