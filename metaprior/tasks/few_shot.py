"""N-way K-shot classification tasks drawn from one collection of labelled images."""

import torch
from torch import Tensor

from metaprior.checks import check_counts
from metaprior.noise import task_generator
from metaprior.tasks.task import Examples, Task, check_index

NAMED_AT_MOST = 5


class FewShotClasses:
    """Endless tasks of ``ways`` classes, drawn with ``k_shot`` support and ``k_query`` query examples of each.

    Args:
        images: (N, ...), floating point, or bytes: uint8 images are kept as they are and divided by 255 when a task is
            drawn, which takes a quarter of the memory.
        labels: (N,), integer class of each image.
        ways: classes in a task. Their labels in the task are 0 to ways - 1, in random order.
        k_shot: support examples of a class.
        k_query: query examples of a class, all different from the support examples.
        seed: seed of all draws.
        turns: add each class rotated by 90, 180 and 270 degrees as three more classes; images must be square.

    A task's x is (ways * k, ...) in float32 and its y (ways * k,) in int64. Classes alternate, so the first
    ``ways * j`` examples are a balanced task of j shots.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        ways: int = 5,
        k_shot: int = 1,
        k_query: int = 15,
        seed: int = 0,
        turns: bool = False,
    ) -> None:
        check_counts(ways=ways, k_shot=k_shot, k_query=k_query)
        _check_images(images, labels, turns)
        self.images, self.labels = images, labels
        self.ways, self.k_shot, self.k_query = ways, k_shot, k_query
        self.seed, self.turns = seed, turns
        self._rows = _rows_of_classes(labels, k_shot + k_query)
        self.num_classes = len(self._rows) * (4 if turns else 1)  # rotated ones included
        if self.num_classes < ways:
            raise ValueError(f"ways must be at most {self.num_classes}, the number of classes, got {ways}")

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index, 0 or more."""
        check_index(index)
        generator = task_generator("few-shot classes", self.seed, index)
        classes = torch.randperm(self.num_classes, generator=generator)[: self.ways].tolist()
        examples = [self._examples_of(number, generator) for number in classes]
        x = torch.stack(examples, 1)  # (k_shot + k_query, ways, ...)
        y = torch.arange(self.ways).expand(len(x), -1)
        support = Examples(x[: self.k_shot].flatten(0, 1), y[: self.k_shot].flatten())
        query = Examples(x[self.k_shot :].flatten(0, 1), y[self.k_shot :].flatten())
        return Task(support, query, f"{self.ways}-way task {index}")

    def _examples_of(self, number: int, generator: torch.Generator) -> Tensor:
        """Return different examples (k_shot + k_query, ...) of one class in float32."""
        quarter_turns, label = divmod(number, len(self._rows))
        rows = self._rows[label]
        chosen = rows[torch.randperm(len(rows), generator=generator)[: self.k_shot + self.k_query]]
        images = self.images[chosen].float() / (255 if self.images.dtype == torch.uint8 else 1)
        return images.rot90(quarter_turns, (-2, -1)) if quarter_turns else images


def _check_images(images: Tensor, labels: Tensor, turns: bool) -> None:
    if not (images.is_floating_point() or images.dtype == torch.uint8):
        raise TypeError(f"images must be floating point or uint8, got {images.dtype}")
    if labels.is_floating_point() or labels.is_complex() or labels.ndim != 1:
        raise TypeError(f"labels must be one integer for each image, got {labels.dtype} of shape {tuple(labels.shape)}")
    if len(images) != len(labels):
        raise ValueError(f"images and labels must have the same length, got {len(images)} and {len(labels)}")
    if turns and (images.ndim < 3 or images.shape[-1] != images.shape[-2]):
        raise ValueError(f"images must be square (N, ..., H, H) for turns=True, got the shape {tuple(images.shape)}")


def _rows_of_classes(labels: Tensor, needed: int) -> list[Tensor]:
    """Return the rows of each class in the order of labels; raise if a class has fewer than ``needed``."""
    kinds, sizes = labels.unique(return_counts=True)
    if short := [f"{kind} ({n})" for kind, n in zip(kinds.tolist(), sizes.tolist(), strict=True) if n < needed]:
        named = ", ".join(short[:NAMED_AT_MOST]) + (", ..." if len(short) > NAMED_AT_MOST else "")
        raise ValueError(
            f"a task needs {needed} examples of each class (k_shot + k_query), and {len(short)} of {len(kinds)} "
            f"classes have fewer: {named}; leave them out, or choose a smaller k_query"
        )
    return list(labels.argsort(stable=True).split(sizes.tolist()))
