"""Tasks of digits under permutations, on made-up digits."""

from dataclasses import replace
from pathlib import Path

import torch

import metaprior as mp
from benchmarks import permuted
from benchmarks.common.benchmark import Context
from benchmarks.permuted import ALONE, HIERARCHICAL, LABELS, METHODS, PIXELS, SCRATCH, Permuted


def digit_of(images: torch.Tensor) -> torch.Tensor:
    """What the image shows, whatever its label: the median pixel."""
    return ((images.flatten(1).median(1).values + 0.26) * 2 * 126 / 25).round().long()


def test_permuted_labels_rename_digits_alike_in_support_and_query(made_up_data: Path) -> None:
    task = Permuted(made_up_data, LABELS, 60, 30)[3]
    assert task.support.x.shape == (60, 1, 28, 28)
    names = {}
    for part in (task.support, task.query):
        for digit, label in zip(digit_of(part.x).tolist(), part.y.tolist(), strict=True):
            assert names.setdefault(digit, label) == label
    assert sorted(names.values()) == list(range(10))
    assert names != {digit: digit for digit in range(10)}


def test_permuted_pixels_change_places_alike_in_all_images(made_up_data: Path) -> None:
    task, other = (Permuted(made_up_data, PIXELS, 60, 30)[index] for index in (0, 1))
    odd = [(part.x != part.x.median(1, keepdim=True).values).sum(0) for part in (task.support, task.query)]
    places = [counts.nonzero().flatten().tolist() for counts in odd]
    assert places[0] == places[1]  # the pixel that counts went to one place
    assert len(places[0]) == 1
    order = task.support.x - other.support.x
    assert task.support.y.equal(digit_of(task.support.x))
    assert order.abs().sum() > 0


def test_a_pixel_permutation_swaps_pairs_and_leaves_many_where_they_were(made_up_data: Path) -> None:
    change = Permuted(made_up_data, PIXELS, 1, 1)._change(7)
    place = torch.arange(784.0).unsqueeze(0)
    moved = change(mp.Examples(place, torch.zeros(1, dtype=torch.long))).x[0]
    assert sorted(moved.tolist()) == place[0].tolist()
    assert 250 < int((moved != place[0]).sum()) <= 2 * permuted.SWAPS


def test_the_same_index_is_the_same_task_and_same_limits_the_permutations(made_up_data: Path) -> None:
    tasks = Permuted(made_up_data, LABELS, 20, 10)
    assert all(a.equal(b) for a, b in zip(tasks[5].support, tasks[5].support, strict=True))
    few = Permuted(made_up_data, LABELS, 60, 10, same=2)

    def names(index: int) -> dict[int, int]:
        support = few[index].support
        return dict(zip(digit_of(support.x).tolist(), support.y.tolist(), strict=True))

    assert names(0) == names(2)
    assert names(0) != names(1)
    assert not few[0].support.x.equal(few[2].support.x)  # but other images


def test_a_plain_network_learns_the_made_up_digits(made_up_data: Path) -> None:
    pixels = replace(permuted.QUICK, images=100, test_images=20, plain_epochs=60, plain_lr=3e-3, test_tasks=1)
    context = Context(permuted.Settings(pixels=pixels), made_up_data)
    assert permuted.measure_method(context, PIXELS, SCRATCH)["error_percent"] < 50  # chance is 90


def test_headline_compares_with_the_better_of_those_alone() -> None:
    errors = {(kind, method): 8.0 for kind in (LABELS, PIXELS) for method in METHODS}
    errors |= {(LABELS, SCRATCH): 3.0, (LABELS, ALONE): 4.0, (LABELS, HIERARCHICAL): 1.5}
    headline = permuted.headline_of(errors)
    assert headline["gain_labels"] == 2.0
    assert headline["gain_pixels"] == 1.0
    assert headline["error_labels_hierarchical"] == 1.5
