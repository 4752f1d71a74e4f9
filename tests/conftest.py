from pathlib import Path

import pytest
import torch

from metaprior.bench.data import data_folder

torch.set_num_threads(1)  # tensors this small are faster on one thread


@pytest.fixture
def real_data() -> Path:
    folder = data_folder()
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder} (METAPRIOR_DATA)")
    return folder
