from pathlib import Path

import pytest
import torch
from torch import Tensor

from metaprior.tasks.task import Examples, Task
from metaprior.team import agreement
from metaprior.team.agreement import SHOWN, Disagreement, code_facts, refuse_disagreement, task_digest, tensors_digest


def test_equal_facts_pass() -> None:
    refuse_disagreement([{"a": 1, "b": "x"}] * 3)


def test_both_values_are_shown_and_who_has_them() -> None:
    with pytest.raises(Disagreement) as refused:
        refuse_disagreement([{"lr": 0.1, "same": 1}, {"lr": 0.1, "same": 1}, {"lr": 0.2, "same": 1, "extra": "x"}])
    assert str(refused.value).splitlines() == [
        "the processes do not agree:",
        "  lr: rank 0 has 0.1, rank 2 has 0.2",
        "  extra: rank 0 has 'nothing', rank 2 has 'x'",
    ]


def test_what_only_the_first_has_is_a_difference() -> None:
    with pytest.raises(Disagreement, match="seed: rank 0 has 3, rank 1 has 'nothing'"):
        refuse_disagreement([{"seed": 3}, {}])


def test_a_long_list_is_cut() -> None:
    facts = [{f"key {number}": own for number in range(SHOWN + 5)} for own in (0, 1)]
    with pytest.raises(Disagreement) as refused:
        refuse_disagreement(facts)
    lines = str(refused.value).splitlines()
    assert len(lines) == SHOWN + 2
    assert lines[-1] == "  and 5 more"


def test_the_code_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_facts() == code_facts()
    assert code_facts().keys() >= {"version of metaprior", "version of torch", "version of python"}
    package = tmp_path / "metaprior"
    (package / "team").mkdir(parents=True)
    (package / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(agreement, "__file__", str(package / "team" / "agreement.py"))
    found = {code_facts()["code of metaprior"]}
    (package / "a.py").write_text("x = 2\n")
    found.add(code_facts()["code of metaprior"])
    (package / "a.py").rename(package / "b.py")
    found.add(code_facts()["code of metaprior"])
    assert len(found) == 3
    (package / "notes.txt").write_text("not code")
    assert code_facts()["code of metaprior"] in found


@pytest.mark.parametrize(
    "other",
    [
        torch.tensor([1.0, 2.0, 3.0, 4.0 + 1e-6]),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64),
        torch.tensor([1.0, 2.0, 3.0]),
    ],
)
def test_a_digest_is_that_of_numbers_shape_and_type(other: Tensor) -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert tensors_digest([values]) == tensors_digest([values.clone()])
    assert tensors_digest([values]) != tensors_digest([other])


def test_a_digest_does_not_depend_on_how_numbers_lie_in_memory() -> None:
    values = torch.arange(6.0).reshape(2, 3)
    assert tensors_digest([values.T]) == tensors_digest([values.T.contiguous()])
    assert tensors_digest([values.T]) != tensors_digest([values.reshape(3, 2)])
    assert tensors_digest([torch.tensor(1.0), torch.tensor([True]), torch.tensor(2)])
    assert tensors_digest([values.requires_grad_()]) == tensors_digest([values.detach()])


@pytest.mark.parametrize("part", ["support", "query"])
@pytest.mark.parametrize("place", [0, 1])
def test_every_part_of_a_task_counts(part: str, place: int) -> None:
    def task(change: float) -> Task:
        parts = {name: [torch.ones(2, 1), torch.ones(2, 1)] for name in ("support", "query")}
        parts[part][place][1] += change
        return Task(Examples(*parts["support"]), Examples(*parts["query"]))

    assert task_digest(task(0.0)) == task_digest(task(0.0))
    assert task_digest(task(0.0)) != task_digest(task(1e-6))
