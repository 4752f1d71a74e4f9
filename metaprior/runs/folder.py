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
from collections.abc import Iterator
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
Sections = dict[str, dict[str, Any]]
"""A configuration: sections, keys and values, every default filled in."""
LEFTOVER = re.compile(r"\w+\.\w+\.\d+\.tmp")


class RunFolderError(ValueError):
    """A folder that a run cannot be started in, or resumed from."""


class RunFolder:
    """Names and contents of the files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints, self.prior, self.tensorboard = path / "checkpoints", path / "prior", path / "tensorboard"

    def is_new(self) -> bool:
        """Whether nothing is there yet; what a start that was killed at once leaves counts as nothing."""
        if not self.path.exists():
            return True
        if not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file; a run needs a folder")
        left = {entry.name for entry in self.path.iterdir() if not LEFTOVER.fullmatch(entry.name)}
        return left <= {"lock", "config.toml"}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else trains in this folder meanwhile. The system opens the lock when the process ends, however."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise RunFolderError(f"another process is training in {self.path}; wait for it or end it") from None
            self._remove_leftovers()
            yield

    def _remove_leftovers(self) -> None:
        """Files that a killed process was about to move to their places."""
        for entry in self.path.glob("*.tmp"):
            if LEFTOVER.fullmatch(entry.name):
                entry.unlink()

    def write_config(self, text: str, resolved: Sections) -> None:
        """The configuration as given, and as it is understood."""
        checkpoint.write_file(self.path / "config.toml", text.encode())
        self.write_json("config.json", resolved)

    def config(self) -> Sections:
        """The configuration of the run, as it was understood."""
        content: Sections = self.read_json("config.json")
        return content

    def write_json(self, name: str, content: Any) -> None:
        """Write a file of the folder."""
        checkpoint.write_file(self.path / name, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())

    def read_json(self, name: str) -> Any:
        """Read a file of the folder."""
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RunFolderError(
                f"{path} cannot be read ({error.strerror}); {self.path} is not the folder of a run of metaprior train"
            ) from None
        except ValueError as error:
            raise RunFolderError(f"{path} is damaged: {error}; restore it from a copy") from None

    def _story(self) -> dict[str, Any]:
        """What ``run.json`` says."""
        content = self.read_json("run.json")
        if not isinstance(content, dict) or not isinstance(content.get("finished"), bool):
            raise RunFolderError(
                f'{self.path / "run.json"} is damaged: it does not say whether the run has finished ("finished": true '
                "or false); restore it from a copy, or write that"
            )
        return content

    def note_start(self, command: str, step: int, seed: int, threads: int, processes: int) -> None:
        """Add a start to ``run.json``."""
        before = self._story() if (self.path / "run.json").exists() else {}
        start = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command,
            "from_step": step,
            "processes": processes,
            "threads": threads,
            "cores": os.cpu_count(),
            "versions": {
                "metaprior": version("metaprior"),
                "torch": version("torch"),
                "python": platform.python_version(),
            },
        }
        starts = [*before.get("starts", []), start]
        self.write_json("run.json", {**before, "seed": seed, "finished": False, "starts": starts})

    def note_saved(self, name: str, step: int) -> None:
        """The prior, or the scores, in the folder are now those of theta after so many steps."""
        before = self._story()
        self.write_json("run.json", {**before, "saved": {**before.get("saved", {}), name: step}})

    def saved_step(self, name: str) -> int | None:
        """The step that ``note_saved`` noted; None where it never did."""
        step: int | None = self._story().get("saved", {}).get(name)
        return step

    def note_finished(self) -> None:
        """All is done and written."""
        self.write_json("run.json", {**self._story(), "finished": True})

    @property
    def finished(self) -> bool:
        """Whether all was done and written."""
        return (self.path / "run.json").exists() and bool(self._story()["finished"])

    @property
    def how_to_go_on(self) -> str:
        """For messages: what to do so that the end of the run comes again, and with it what only the end writes."""
        again = "give the command of metaprior train again with --resume"
        return f'write "finished": false into {self.path / "run.json"} and {again}' if self.finished else again

    def metrics(self) -> list[EpochLine]:
        """What is known of every epoch so far."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        try:
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except ValueError as error:
            raise RunFolderError(f"{path} is damaged: {error}; restore it from a copy, or remove it") from None

    def best_step(self, latest: int) -> int:
        """Steps before the best validation so far; ``latest`` if there was none."""
        best = [line["step"] for line in self.metrics() if line["validation"] and line["validation"]["best"]]
        return int(best[-1]) if best else latest

    def write_metrics(self, lines: list[EpochLine]) -> None:
        """All lines anew: an epoch is long, the file is small, and half a line can never stand in it."""
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
        checkpoint.write_file(self.path / "metrics.jsonl", text.encode())
