from pathlib import Path

import pytest
import torch
from hypothesis import settings

from benchmarks.common.data_folder import data_folder

torch.set_num_threads(1)  # tensors this small are faster on one thread
settings.register_profile("no deadline", deadline=None)  # nothing here is a question of time
settings.load_profile("no deadline")


def folder_with(*names: str) -> Path:
    folder = data_folder()
    for name in names:
        if not (folder / name).is_file():
            pytest.skip(f"{folder / name} is not there (METAPRIOR_DATA names the folder)")
    return folder
