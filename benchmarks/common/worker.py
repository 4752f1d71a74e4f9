"""The fresh process of ``in_own_process``: ``python -m benchmarks.common.worker MODULE:FUNCTION JOB``.

Calls the function with the dataclass that ``JOB`` holds as JSON, and prints the row that it returns as a line of JSON.
"""

import argparse
import json
import os
import resource
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

from benchmarks.common.result import Row
from metaprior.team.launch import leave

GIB = 2**30


def peak_gib() -> float:
    """Return the most memory that this process has had so far.

    Read from /proc where it exists: ``ru_maxrss`` starts at the parent's peak, which a child inherits through exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / GIB
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB


def limit_memory(limit_gib: float | None) -> None:
    """Make this process the first to be killed where the machine runs out of memory, and set its own limit."""
    score = Path("/proc/self/oom_score_adj")
    if score.exists():
        score.write_text("1000", encoding="utf-8")
    if limit_gib is not None:
        limit = int(limit_gib * GIB)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def call(function_name: str, job: str, limit_gib: float | None = None) -> Row | None:
    """Return what ``MODULE:FUNCTION`` returns for a job in JSON."""
    module, _, name = function_name.partition(":")
    function = getattr(import_module(module), name)
    kind = next(annotation for name, annotation in get_type_hints(function).items() if name != "return")
    limit_memory(limit_gib)
    row: Row | None = function(kind(**json.loads(job)))
    return row


def main(arguments: Sequence[str]) -> None:
    """Print the row as the last line; of several ranks only one has a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("function")
    parser.add_argument("job")
    parser.add_argument("--limit-gib", type=float)
    options = parser.parse_args(arguments)
    row = call(options.function, options.job, options.limit_gib)
    if row is not None:
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        leave(0)
