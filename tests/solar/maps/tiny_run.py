"""A solar run of a few seconds."""

from pathlib import Path

from metaprior.runs.program import Request, train
from metaprior.runs.reading import read_config

TEXT = """
[model]
kind = "bayesian_unet"
input_len = 2
target_len = 2
width = 4
levels = 2
known = 2

[likelihood]
kind = "crps"

[tasks]
kind = "frames"
path = "june.nc"
units = "clear_sky"
input_len = 2
target_len = 2
k_shot = 3
k_query = 2
patch = 8
min_elevation = 5

[adaptation]
kind = "descent"
steps = 2
lr = 1e-6
adapt = ""

[meta]
epochs = 1
tasks_per_epoch = 4
meta_batch = 2
warm_start = 3
search_step_size = false

[evaluate]
tasks = 2
samples = 3
shots = [0]
adaptation_steps = [2]
"""
STEPS = 5  # 3 of the warm start, then 2


def request(folder: Path, archive: Path, *changes: str, resume: bool = False) -> Request:
    source = folder.parent / f"{folder.name}.toml"
    source.write_text(TEXT)
    return Request(
        read_config(source, [f"tasks.path={archive}", *changes]),
        TEXT,
        folder,
        "metaprior train ...",
        resume=resume,
        progress=False,
    )


def run(folder: Path, archive: Path, *changes: str, resume: bool = False) -> list[str]:
    """Train; what was said."""
    said: list[str] = []
    train(request(folder, archive, *changes, resume=resume), said.append)
    return said
