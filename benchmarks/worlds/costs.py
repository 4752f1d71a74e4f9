"""What nowcasts cost: CPU seconds of the command, start included, milliseconds of a flow, megabytes of the prior."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.common.benchmark import Context
from benchmarks.common.processes import ROOT
from benchmarks.common.result import Row
from benchmarks.worlds.flows import motions
from benchmarks.worlds.settings import Settings
from metaprior.solar.maps.nowcast.forecaster import PRIOR
from metaprior.solar.maps.nowcast.motion import estimate_flow
from metaprior.solar.simulator import write_frames
from metaprior.solar.simulator.worlds import draw_world

COMMAND_SIZE, FLOW_SIZE = 256, 128
REPEATED = 7


def costs(context: Context[Settings]) -> Row:
    """Return one row; each time of a flow is the median of several, on one thread."""
    prior = Path(context.settings.prior) if context.settings.prior else PRIOR
    window = draw_world(context.settings.first_seed, size=FLOW_SIZE, days=1, frames=4, cadence=15).values
    frames = torch.from_numpy(np.nan_to_num(window))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    flows = {"own": lambda: estimate_flow(frames), **motions(frames)}
    times = {f"flow_ms_{name}": 1000 * _median_cpu(flow) for name, flow in flows.items()}
    torch.set_num_threads(threads)
    weights = sum(path.stat().st_size for path in prior.glob("*.safetensors"))
    return {"part": "costs", "command_cpu_s": _command_cpu(prior, context.settings), "prior_mb": weights / 1e6, **times}


def _median_cpu(function: Callable[[], object]) -> float:
    """Return CPU seconds of a call, the median of several after a first one."""
    function()
    taken = []
    for _ in range(REPEATED):
        begin = time.process_time()
        function()
        taken.append(time.process_time() - begin)
    return float(np.median(taken))


def _command_cpu(prior: Path, settings: Settings) -> float:
    """Return the CPU seconds of ``metaprior nowcast`` on three days of frames of 256 x 256 pixels."""
    with tempfile.TemporaryDirectory() as folder:
        archive, out = Path(folder) / "archive.nc", Path(folder) / "forecast.nc"
        write_frames(draw_world(settings.first_seed, size=COMMAND_SIZE, cadence=15).to_frames(), archive)
        command = [sys.executable, "-m", "metaprior", "nowcast", str(archive), "--out", str(out), "--prior", str(prior)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=os.environ)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
