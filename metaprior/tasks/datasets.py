"""Torch's data sets and loaders as sources of tasks."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset


def joined(datasets: Mapping[str, Dataset[Any]]) -> tuple[ConcatDataset[Any], list[str]]:
    """Return map-style data sets as one, whose rows are read when they are asked for, and the name of every row."""
    if not isinstance(datasets, Mapping) or not datasets:
        raise TypeError(f"datasets must be a mapping of at least one Dataset by name, got {datasets!r}")
    for name, own in datasets.items():
        if (
            isinstance(own, IterableDataset | DataLoader)
            or not hasattr(own, "__getitem__")
            or not hasattr(own, "__len__")
        ):
            raise TypeError(
                f"datasets must have a length and examples by index, which {type(own).__name__} {name!r} has not. Try "
                "a map-style Dataset, or GroupedTasks.from_examples with what it gives"
            )
    labels = [name for name, own in datasets.items() for _ in range(len(own))]  # type: ignore[arg-type]
    return ConcatDataset(datasets.values()), labels


def refuse_batches(tasks: object) -> None:
    """Raise TypeError for a loader that stacks tasks to batches: what it gives are no tasks any more."""
    if isinstance(tasks, DataLoader) and tasks.batch_sampler is not None:
        raise TypeError(
            "tasks must come one by one, got a DataLoader of batches. Try its data set, loader.dataset; methods make "
            "their batches themselves"
        )


def refuse_unindexed(tasks: object) -> None:
    """Raise TypeError for torch's sources that have no index: task i would not be the same every time."""
    if isinstance(tasks, DataLoader | IterableDataset):
        raise TypeError(
            f"tasks must be indexed by integers, which a {type(tasks).__name__} is not. Try a Dataset whose "
            "__getitem__(i) returns task i (that of a loader is loader.dataset), or list(tasks)"
        )
