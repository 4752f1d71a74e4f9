import gzip
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common.data import MNIST, UCI, DataMissing, mnist, uci_split
from benchmarks.common.data_folder import data_folder
from tests.benchmarks.made_up_data import write_mnist
from tests.conftest import folder_with


def test_data_folder_prefers_what_is_given_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAPRIOR_DATA", "elsewhere")
    assert data_folder() == Path("elsewhere")
    assert data_folder(Path("here")) == Path("here")
    monkeypatch.delenv("METAPRIOR_DATA")
    assert data_folder() == Path("../shared/data")


def test_uci_features_are_standardised_by_the_training_rows_alone(made_up_data: Path) -> None:
    split = uci_split(made_up_data, "yacht", 0)
    assert split.train_x.shape == (18, 3)
    assert split.test_y.shape == (2,)
    np.testing.assert_allclose(split.train_x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(split.train_x.std(0), 1)
    assert abs(split.test_x.mean()) > 1e-3


def test_mnist_files_are_read_and_cut_ones_refused(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="MNIST database"):
        mnist(tmp_path, "test")
    write_mnist(tmp_path)
    images, labels = mnist(tmp_path, "test")
    assert images.shape == (40, 784)
    assert images.dtype == np.float32
    assert images[9, 1] == np.float32(225 / 126)
    assert labels.tolist() == list(range(10)) * 4
    path = tmp_path / MNIST.files[-1]
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
    with pytest.raises(ValueError, match="cut short"):
        mnist(tmp_path, "test")


def test_real_data_have_their_published_sizes() -> None:
    folder = folder_with(*UCI.files, *MNIST.files)
    split = uci_split(folder, "boston", 19)
    assert len(split.train_y) + len(split.test_y) == 506
    assert split.train_x.shape[1] == 13
    images, labels = mnist(folder, "test")
    assert images.shape == (10_000, 784)
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
