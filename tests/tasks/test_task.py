import pytest

from benchmarks.wheel.tasks import WheelTasks
from metaprior.tasks import Sinusoids, Task
from metaprior.tasks.task import length_of, task_at

NAMES = [Task(*Sinusoids()[0][:2], name) for name in "abcdef"]


def order(turn: int, seed: int = 0) -> list[str]:
    return [task_at(NAMES, turn * 6 + place, seed).name for place in range(6)]


def test_a_finite_source_is_passed_through_in_shuffled_turns() -> None:
    turns = [order(turn) for turn in range(8)]
    assert all(sorted(turn) == list("abcdef") for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 4
    assert order(3) == turns[3], "a function of the position alone"
    assert [order(turn, seed=1) for turn in range(8)] != turns


def test_an_endless_source_is_read_by_position() -> None:
    assert task_at(Sinusoids(), 12345, 0).name == "sinusoid 12345"


def test_lengths() -> None:
    assert length_of(NAMES) == 6
    assert length_of(WheelTasks(num_tasks=3)) == 3
    assert length_of(Sinusoids()) is None
    with pytest.raises(ValueError, match="there are no tasks: the collection is empty"):
        length_of([])


class Sometimes:
    """A source with a ``__len__`` that may have no answer."""

    def __init__(self, count: int | None) -> None:
        self.count = count

    def __getitem__(self, index: int) -> Task:
        return NAMES[index % 6]._replace(name=str(index))

    def __len__(self) -> int:
        if self.count is None:
            raise TypeError("endless")
        return self.count


def test_a_source_whose_length_is_a_type_error_is_endless() -> None:
    assert (length_of(Sometimes(None)), length_of(Sometimes(4))) == (None, 4)
    assert task_at(Sometimes(None), 12345, 0).name == "12345"
    assert sorted(task_at(Sometimes(4), place, 0).name for place in range(4)) == list("0123")


def test_what_cannot_be_asked_by_index_is_refused() -> None:
    with pytest.raises(TypeError, match=r"indexed by integers, which a generator cannot be. Try list\(tasks\)"):
        length_of(task for task in NAMES)  # type: ignore[arg-type]
