import pytest
import torch

from metaprior.tasks import FewShotClasses, Task

CLASSES, EACH = 7, 6


def coded(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """One-pixel images that say 10 * class + example, in mixed order; labels are 100, 103, 106, ..."""
    order = torch.randperm(CLASSES * EACH, generator=torch.Generator().manual_seed(5))
    kind, example = order // EACH, order % EACH
    return (10 * kind + example).to(dtype)[:, None], 100 + 3 * kind


def kinds(x: torch.Tensor) -> list[int]:
    return [int(value) // 10 for value in x[:, 0]]


def drawn(index: int, **options: int) -> Task:
    return FewShotClasses(*coded(), **{"ways": 3, "k_shot": 2, "k_query": 4, **options})[index]


def test_labels_go_round_the_classes_and_name_one_class_each() -> None:
    for index in range(20):
        task = drawn(index)
        assert task.support.y.tolist() == [0, 1, 2] * 2
        assert task.query.y.tolist() == [0, 1, 2] * 4
        first_round = kinds(task.support.x[:3])
        assert len(set(first_round)) == 3
        assert kinds(task.support.x) == first_round * 2
        assert kinds(task.query.x) == first_round * 4


def test_support_and_query_share_no_example() -> None:
    for index in range(20):
        task = drawn(index)
        seen = torch.cat([task.support.x, task.query.x])[:, 0].tolist()
        assert len(set(seen)) == len(seen) == 3 * EACH, "with six examples a class, all of them are used"


def test_classes_and_their_new_labels_are_drawn_evenly() -> None:
    count = 700
    as_label_zero = torch.zeros(CLASSES)
    appearances = torch.zeros(CLASSES)
    for index in range(count):
        chosen = kinds(drawn(index, k_shot=1, k_query=1).support.x)
        as_label_zero[chosen[0]] += 1
        appearances[chosen] += 1
    assert (as_label_zero - count / 7).abs().max() < 4 * (count * 6 / 49) ** 0.5
    assert (appearances - count * 3 / 7).abs().max() < 4 * (count * 12 / 49) ** 0.5


def test_every_example_can_be_support_and_query() -> None:
    source = FewShotClasses(*coded(), ways=7, k_shot=1, k_query=1)
    support = {int(v) for i in range(60) for v in source[i].support.x[:, 0]}
    query = {int(v) for i in range(60) for v in source[i].query.x[:, 0]}
    assert len(support) == len(query) == CLASSES * EACH


def test_bytes_become_numbers_from_zero_to_one_and_floats_stay() -> None:
    images, labels = torch.tensor([[0], [255], [51], [102]], dtype=torch.uint8), torch.tensor([0, 0, 1, 1])
    task = FewShotClasses(images, labels, ways=2, k_shot=1, k_query=1)[0]
    values = torch.cat([task.support.x, task.query.x]).flatten().sort().values
    assert values.tolist() == pytest.approx([0, 0.2, 0.4, 1])
    assert values.dtype == torch.float32
    task = FewShotClasses(images.double(), labels, ways=2, k_shot=1, k_query=1)[0]
    assert torch.cat([task.support.x, task.query.x]).flatten().sort().values.tolist() == [0, 51, 102, 255]


def test_turned_classes_are_classes_of_their_own() -> None:
    square = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    images = torch.stack([square, square + 4, square + 40, square + 44])[:, None]  # examples of a class differ by 4
    source = FewShotClasses(images, torch.tensor([0, 0, 1, 1]), ways=8, k_shot=1, k_query=1, turns=True)
    assert source.num_classes == 8
    task = source[0]
    turned = {
        0: [[1, 2], [3, 4]],
        1: [[2, 4], [1, 3]],  # counter-clockwise
        2: [[4, 3], [2, 1]],
        3: [[3, 1], [4, 2]],
    }
    found = set()
    for support, query in zip(task.support.x[:, 0], task.query.x[:, 0], strict=True):
        kind = int(support.min() > 40)
        assert support.shape == (2, 2)
        assert (support - query).abs().unique().tolist() == [4], "the same turn, another example"
        plain = (support - support.min() + 1).tolist()
        found.add((kind, next(turn for turn, expected in turned.items() if plain == expected)))
    assert len(found) == 8


def test_small_classes_are_named() -> None:
    labels = torch.tensor([1] * 5 + [2] * 3 + [9] * 5 + [4] * 2)
    with pytest.raises(
        ValueError, match=r"needs 5 examples of each class .* 2 of 4 classes have fewer: 2 \(3\), 4 \(2\);"
    ):
        FewShotClasses(torch.zeros(15, 1), labels, ways=2, k_shot=1, k_query=4)
    with pytest.raises(ValueError, match=r"9 of 9 classes have fewer: 0 \(1\), .*, 4 \(1\), \.\.\.; leave them out"):
        FewShotClasses(torch.zeros(9, 1), torch.arange(9), ways=2, k_shot=1, k_query=4)


def test_bad_arguments_are_refused() -> None:
    images, labels = coded()
    for x, y, options, message in (
        (images, labels, {"ways": 8}, "ways must be at most 7, the number of classes, got 8"),
        (images, labels, {"ways": 0}, "ways must be an integer of at least 1, got 0"),
        (images, labels[1:], {}, "must have the same length, got 42 and 41"),
        (images.long(), labels, {}, "images must be floating point or uint8, got torch.int64"),
        (images, labels.float(), {}, "labels must be one integer for each image, got torch.float32"),
        (images, labels[:, None], {}, r"got torch.int64 of shape \(42, 1\)"),
        (images, labels, {"turns": True}, r"images must be square .* got the shape \(42, 1\)"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            FewShotClasses(x, y, **{"k_query": 2, **options})
