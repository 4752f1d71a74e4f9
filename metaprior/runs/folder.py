"""The folder of a run. Every file in it is replaced in one step, so a run killed at any moment leaves only whole ones.

config.toml, config.json   as given; and with every default and --set filled in
run.json                   versions, seed, every start (when, which command, from which step), the step that was saved
metrics.jsonl              one line an epoch
checkpoints/               last, previous, best
tensorboard/               the same numbers, for TensorBoard
prior/                     what was learned (MetaLearner.load)
evaluation.json, *.png     how good it is on unseen tasks

An application may add files: what it has to know of its data, scores of its own, pictures.
"""

import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from metaprior import checkpoint

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

EpochLine = dict[str, Any]
"""A line of ``metrics.jsonl``."""
Sections = dict[str, Any]
"""A configuration: sections (tables, or lists of them), keys and values, every default filled in."""
LEFTOVER = re.compile(r"\w+\.\w+\.\d+\.tmp")
"""Names of files that a killed process was about to move to their places."""


class RunFolderError(ValueError):
    """A folder that a run cannot be started in, or resumed from."""


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the keys whose values differ, with both values."""
    return [(key, before.get(key), now.get(key)) for key in {**before, **now} if before.get(key) != now.get(key)]


def refuse_changes(what: str, changed: list[tuple[str, Any, Any]], hint: str) -> None:
    """Raise if there are changes, with a line for each."""
    if changed:
        lines = [f"  {key}: the run has {old!r}, now {new!r}" for key, old, new in changed]
        raise RunFolderError("\n".join([what, *lines, hint]))


class RunFolder:
    """Names and contents of the files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints, self.prior, self.tensorboard = path / "checkpoints", path / "prior", path / "tensorboard"

    def is_new(self) -> bool:
        """Return whether nothing is there yet; what a start that was killed at once leaves counts as nothing."""
        if not self.path.exists():
            return True
        if not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file; a run needs a folder")
        left = {entry.name for entry in self.path.iterdir() if not LEFTOVER.fullmatch(entry.name)}
        return left <= {"lock", "config.toml"}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training in this folder; the system opens the lock when the process ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise RunFolderError(f"another process is training in {self.path}; wait for it or end it") from None
            for entry in self.path.glob("*.tmp"):
                if LEFTOVER.fullmatch(entry.name):
                    entry.unlink()
            yield

    def write_config(self, text: str, resolved: Sections) -> None:
        """Write the configuration as given, and with all defaults."""
        checkpoint.write_file(self.path / "config.toml", text.encode())
        self.write_json("config.json", resolved)

    def config(self) -> Sections:
        """Return the configuration of the run, with all defaults."""
        content: Sections = self.read_json("config.json")
        return content

    @property
    def tasks_kind(self) -> str:
        """The kind of the run's tasks; of several, which have no kind in common, all of them in brackets."""
        tasks = self.config()["tasks"]
        return f"[{', '.join(part['kind'] for part in tasks)}]" if isinstance(tasks, list) else str(tasks["kind"])

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file of the folder."""
        checkpoint.write_file(self.path / name, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())

    def read_json(self, name: str) -> Any:
        """Return the content of a JSON file of the folder."""
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RunFolderError(
                f"{path} cannot be read ({error.strerror}); {self.path} is not the folder of a run of metaprior train"
            ) from None
        except ValueError as error:
            raise RunFolderError(f"{path} is damaged: {error}; restore it from a copy") from None

    def _record(self) -> dict[str, Any]:
        """Return the content of ``run.json``."""
        content = self.read_json("run.json")
        if not isinstance(content, dict) or not isinstance(content.get("finished"), bool):
            raise RunFolderError(
                f'{self.path / "run.json"} is damaged: it does not say whether the run has finished ("finished": true '
                "or false); restore it from a copy, or write that"
            )
        return content

    def note_start(self, command: str, step: int, seed: int, threads: int, processes: int) -> None:
        """Add a start to ``run.json``."""
        before = self._record() if (self.path / "run.json").exists() else {}
        start = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command,
            "from_step": step,
            "processes": processes,
            "threads": threads,
            "cores": os.cpu_count(),
            "versions": {name: version(name) for name in ("metaprior", "torch")}
            | {"python": platform.python_version()},
        }
        starts = [*before.get("starts", []), start]
        self.write_json("run.json", {**before, "seed": seed, "finished": False, "starts": starts})

    def note_saved(self, name: str, step: int) -> None:
        """Record that the prior (or scores, ...) in the folder is now that of theta after ``step`` steps."""
        before = self._record()
        self.write_json("run.json", {**before, "saved": {**before.get("saved", {}), name: step}})

    def saved_step(self, name: str) -> int | None:
        """Return the step that ``note_saved`` recorded; None if it never did."""
        step: int | None = self._record().get("saved", {}).get(name)
        return step

    def write_notes(self, notes: Sequence[str]) -> None:
        """Record what the user should know about the training, in place of earlier notes."""
        self.write_json("run.json", {**self._record(), "notes": list(notes)})

    @property
    def notes(self) -> list[str]:
        """The notes about the training."""
        notes: list[str] = self._record().get("notes", [])
        return notes

    def note_finished(self) -> None:
        """Record that everything is done and written."""
        self.write_json("run.json", {**self._record(), "finished": True})

    @property
    def finished(self) -> bool:
        """Whether all was done and written."""
        return (self.path / "run.json").exists() and bool(self._record()["finished"])

    @property
    def how_to_go_on(self) -> str:
        """How to have the end of the run again, and with it the files that only the end writes; for messages."""
        again = "give the command of metaprior train again with --resume"
        return f'write "finished": false into {self.path / "run.json"} and {again}' if self.finished else again

    def metrics(self) -> list[EpochLine]:
        """Return the lines of all epochs so far."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        try:
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except ValueError as error:
            raise RunFolderError(f"{path} is damaged: {error}; restore it from a copy, or remove it") from None

    def best_step(self, latest: int) -> int:
        """Return the steps before the best validation so far; ``latest`` if there was none."""
        best = [line["step"] for line in self.metrics() if line["validation"] and line["validation"]["best"]]
        return int(best[-1]) if best else latest

    def write_metrics(self, lines: list[EpochLine]) -> None:
        """Replace the lines of all epochs, so that half a line can never stand in the file."""
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
        checkpoint.write_file(self.path / "metrics.jsonl", text.encode())
