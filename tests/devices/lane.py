"""Run scenarios on the CPU and on the mirror device, in a process of their own, and read what was found."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """What a scenario did on the device. ``error`` is the traceback of one that did not end."""

    error: str
    differences: dict[str, float]
    """Largest difference of each result from that of the CPU, relative to its largest number."""
    events: list[dict[str, str]]
    """What was recorded while it was watched: see ``mirror.Event``."""

    def of(self, *kinds: str) -> list[str]:
        """Return the places of all events of these kinds, with the operation."""
        return [f"{e['kind']}: {e['operation']} at {e['place']}" for e in self.events if e["kind"] in kinds]


@cache
def outcomes(names: tuple[str, ...]) -> dict[str, Outcome]:
    """Return the outcomes of scenarios, run in one new process; if that dies, its last words stand for the rest."""
    own = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
    command = [sys.executable, "-m", "tests.devices", *names]
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    found = {line.pop("name"): Outcome(**line) for line in lines}
    dead = Outcome(f"the process ended with {done.returncode}:\n{done.stderr[-4000:]}", {}, [])
    return {name: found.get(name, dead) for name in names}


def checked(names: Sequence[str], name: str, tolerance: float) -> Outcome:
    """Return the outcome of one of several scenarios; fail unless it ended with the CPU's numbers and no mix."""
    outcome = outcomes(tuple(names))[name]
    assert not outcome.error, outcome.error
    assert not outcome.of("mix"), "\n".join(outcome.of("mix"))
    assert outcome.differences, "a scenario without results would show nothing"
    wrong = {what: found for what, found in outcome.differences.items() if not found <= tolerance}
    assert not wrong, wrong
    return outcome
