from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.common.omniglot import IMAGES, PARTS, SPLITS, omniglot
from metaprior.tasks import FewShotClasses
from tests.conftest import folder_with


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two characters with two drawings each, rows mixed; pixel (0, 1) is inked with a number of its own."""
    (tmp_path / SPLITS).mkdir(parents=True)
    images = np.zeros((4, 28, 28), np.uint8)
    images[:, 0, 1] = [10, 20, 30, 40]
    np.savez(
        tmp_path / IMAGES,
        img=images,
        label=np.array([1, 0, 1, 0], np.int16),
        class_name=np.array(["Greek/character01", "Greek/character02"]),
    )
    (tmp_path / SPLITS / "train.txt").write_text("Greek/character02/rot090\nGreek/character01/rot000\n")
    return tmp_path


def test_classes_follow_the_list_and_turns_are_counter_clockwise(small: Path) -> None:
    images, labels = omniglot(small, "train")
    assert images.shape == (4, 1, 28, 28)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [0, 0, 1, 1]
    assert labels.dtype == torch.int64
    expected = torch.zeros(4, 1, 28, 28, dtype=torch.uint8)
    expected[:2, 0, 26, 0] = torch.tensor([10, 30], dtype=torch.uint8)  # from the top left to the bottom left
    expected[2:, 0, 0, 1] = torch.tensor([20, 40], dtype=torch.uint8)
    assert torch.equal(images, expected)


def test_missing_files_say_where_they_come_from(small: Path, tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"test\.txt is not there.*jakesnell/prototypical-networks.*METAPRIOR_DATA"
    ):
        omniglot(small, "test")
    (small / IMAGES).unlink()
    with pytest.raises(FileNotFoundError, match=r"uint8\.npz is not there.*brendenlake/omniglot.*METAPRIOR_DATA"):
        omniglot(small, "train")


def test_unknown_parts_and_classes_are_refused(small: Path) -> None:
    with pytest.raises(ValueError, match="unknown part 'validation' of Omniglot; there are train, val, test, trainval"):
        omniglot(small, "validation")
    for line in ("Latin/character01/rot000", "Greek/character01/rot045", "Greek"):
        (small / SPLITS / "val.txt").write_text(line)
        with pytest.raises(ValueError, match=f"the split names '{line}'; expected is alphabet/character/turn"):
            omniglot(small, "val")


@pytest.fixture(scope="module")
def data() -> Path:
    return folder_with(IMAGES, *(f"{SPLITS}/{part}.txt" for part in PARTS))


@pytest.mark.parametrize(("part", "classes"), [("train", 4112), ("val", 688), ("test", 1692), ("trainval", 4800)])
def test_sizes_of_the_splits(data: Path, part: str, classes: int) -> None:
    images, labels = omniglot(data, part)
    assert images.shape == (20 * classes, 1, 28, 28)
    assert torch.equal(labels.bincount(), torch.full((classes,), 20))


def test_the_parts_are_all_characters_once(data: Path) -> None:
    lines = {part: (data / SPLITS / f"{part}.txt").read_text().split() for part in PARTS}
    everything = lines["train"] + lines["val"] + lines["test"]
    assert len(set(everything)) == len(everything) == 4 * 1623
    assert set(lines["trainval"]) == set(lines["train"]) | set(lines["val"])


def test_images_are_the_drawings_turned_with_ink_on_empty_paper(data: Path) -> None:
    with np.load(data / IMAGES, allow_pickle=False) as file:
        drawings, numbers, names = file["img"], file["label"], file["class_name"].tolist()
    images, labels = omniglot(data, "val")
    lines = (data / SPLITS / "val.txt").read_text().split()
    for label in (0, 1, 2, 3, 401, 402, 687):
        alphabet, character, turn = lines[label].split("/")
        own = drawings[numbers == names.index(f"{alphabet}/{character}")]
        expected = np.rot90(own, int(turn.removeprefix("rot")) // 90, axes=(1, 2))
        assert np.array_equal(images[labels == label][:, 0].numpy(), expected)
    assert float((images > 127).float().mean()) < 0.15, "most of the paper is empty"
    assert int(images[labels == 0].max()) > 200


def test_tasks_of_omniglot(data: Path) -> None:
    task = FewShotClasses(*omniglot(data, "val"), ways=5, k_shot=1, k_query=15)[0]
    assert task.support.x.shape == (5, 1, 28, 28)
    assert task.query.x.shape == (75, 1, 28, 28)
    assert float(task.query.x.min()) == 0
    assert 0.9 < float(task.query.x.max()) <= 1
