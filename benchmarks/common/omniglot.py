"""Omniglot, 1623 handwritten characters by 20 people each, in the splits of Vinyals et al. 2016.

Every character is four classes, one for each quarter turn: 4112 classes to train on, 688 to validate, 1692 to test.

Lake, Salakhutdinov, Tenenbaum 2015, "Human-level concept learning through probabilistic program induction"; Vinyals et
al. 2016, "Matching Networks for One Shot Learning"; Snell, Swersky, Zemel 2017, "Prototypical Networks for Few-shot
Learning", whose lists of classes are read here.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

IMAGES = "omniglot/omniglot_28_uint8.npz"
SPLITS = "omniglot/splits_vinyals"
PARTS = ("train", "val", "test", "trainval")
QUARTER_TURNS = {"rot000": 0, "rot090": 1, "rot180": 2, "rot270": 3}

Part = Literal["train", "val", "test", "trainval"]


def omniglot(folder: Path, part: Part) -> tuple[Tensor, Tensor]:
    """Images (N, 1, 28, 28), bytes with ink = 255 and paper = 0, and labels (N,) in int64, by line of the split's list.

    ``FewShotClasses`` takes the bytes and makes numbers from 0 to 1 of what it draws; all of "train" in float32 would
    be 260 MB. Turns are counter-clockwise.

    Args:
        folder: the data folder; it holds ``omniglot/omniglot_28_uint8.npz`` (``img`` (32460, 28, 28), ``label``
            (32460,), ``class_name`` by label, "alphabet/character") and ``omniglot/splits_vinyals/<part>.txt``.
        part: "train", "val", "test", or "trainval" (the first two together).
    """
    if part not in PARTS:
        raise ValueError(f"unknown part {part!r} of Omniglot; there are {', '.join(PARTS)}")
    characters = _characters(folder)
    images = [_turned(characters, line) for line in _lines(folder, part)]
    labels = torch.arange(len(images)).repeat_interleave(torch.tensor([len(group) for group in images]))
    return torch.cat(images)[:, None], labels


def _characters(folder: Path) -> dict[str, Tensor]:
    """The images (20, 28, 28) of every character, by its name."""
    path = _existing(folder, IMAGES, "github.com/brendenlake/omniglot, scaled down to 28 x 28 with ink = 255")
    with np.load(path, allow_pickle=False) as file:
        images, labels, names = torch.from_numpy(file["img"]), torch.from_numpy(file["label"]), file["class_name"]
    rows = labels.argsort(stable=True).split(labels.long().bincount(minlength=len(names)).tolist())
    return {str(name): images[chosen] for name, chosen in zip(names, rows, strict=True)}


def _lines(folder: Path, part: str) -> list[str]:
    path = _existing(
        folder,
        f"{SPLITS}/{part}.txt",
        "github.com/jakesnell/prototypical-networks (data/omniglot/splits/vinyals)",
    )
    return path.read_text().split()


def _turned(characters: dict[str, Tensor], line: str) -> Tensor:
    """The images of one class, named as in "Angelic/character01/rot090"."""
    name, _, turn = line.rpartition("/")
    if name not in characters or turn not in QUARTER_TURNS:
        raise ValueError(
            f"the split names {line!r}; expected is alphabet/character/turn with a character of {IMAGES} and "
            f"a turn of {', '.join(QUARTER_TURNS)}"
        )
    return characters[name].rot90(QUARTER_TURNS[turn], (-2, -1))


def _existing(folder: Path, name: str, source: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there. Put it there from {source}, or name the folder that holds {name!r}: with the "
            "environment variable METAPRIOR_DATA, --data of a benchmark, or tasks.path of a configuration"
        )
    return path
