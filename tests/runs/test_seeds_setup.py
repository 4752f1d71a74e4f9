"""The largest network that is promised to train in 4000 MiB: three meta-steps in a fresh process, its peak measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = """
[model]
kind = "bayesian_unet"
width = 64
known = 4
random = "all"

[likelihood]
kind = "crps"

[tasks]
kind = "simulated"
days = 6
size = 256
start = "2025-06-10"
patch = 0
by = "period"
k_shot = 5
k_query = 10

[adaptation]
kind = "descent"
steps = 5
lr = 1e-7

[meta]
epochs = 1
tasks_per_epoch = 3
meta_batch = 1
search_step_size = false

[run]
memory = "4000MiB"
threads = 2
"""
PROGRAM = """
import json, re, resource, sys, time
from pathlib import Path
import torch
from metaprior.runs.build import learner_of
from metaprior.runs.reading import read_config
from metaprior.runs.checkpoints import gradients

def peak_gib():  # not ru_maxrss, which a new process inherits from the one that started it
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 2**20

config = read_config(Path(sys.argv[1]))
torch.set_num_threads(config.run.threads)
trainer = learner_of(config).trainer(config.task_settings.open(progress=True).tasks("train"), config.meta)
before, peak_before = resource.getrusage(resource.RUSAGE_SELF), peak_gib()
began = time.perf_counter()
reports = [trainer.step() for _ in range(config.meta.steps)]
seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
found = {
    "losses": [report.loss for report in reports],
    "tasks": [report.tasks for report in reports],
    "weights": trainer.theta.mu.numel(),
    "gradients": gradients(trainer),
    "seconds_a_step": seconds / len(reports),
    "cpu_seconds_a_step": (after.ru_utime - before.ru_utime) / len(reports),
    "peak_before_gib": peak_before,
    "peak_gib": peak_gib(),
}
sys.stdout.write(json.dumps(found))
"""


@pytest.mark.slow
def test_three_meta_steps_of_the_largest_network_stay_inside_their_budget(tmp_path: Path) -> None:
    """Width 64, 256 x 256 frames, every weight random, 5 + 10 windows, 5 inner steps. Some twenty minutes of a core."""
    (tmp_path / "seeds.toml").write_text(TEXT)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "seeds.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)  # noqa: T201 (shown with -s: what was measured)
    assert found["weights"] > 17e6
    assert found["tasks"] == [1, 1, 1]
    assert all(0 < loss < float("inf") for loss in found["losses"])
    assert "path on disk" in found["gradients"][0]
    assert found["peak_gib"] < 4000 / 1024
