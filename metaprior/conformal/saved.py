"""Saving and loading: one readable JSON file, no pickle."""

import json
import os
from pathlib import Path
from typing import Any

from metaprior.checkpoint import readable, write_file
from metaprior.conformal.split import ConformalIntervals, ConformalSets
from metaprior.conformal.tasks import ConformalByShots

KINDS: dict[str, Any] = {one.__name__: one for one in (ConformalIntervals, ConformalSets, ConformalByShots)}
FORMAT = "metaprior-conformal"


def save(calibration: ConformalIntervals | ConformalSets | ConformalByShots[Any], path: str | os.PathLike[str]) -> None:
    """Write a calibration to a JSON file; an earlier one is replaced only when the new one is complete."""
    content = {"format": FORMAT, "kind": type(calibration).__name__, **calibration.as_json()}
    write_file(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def load(path: str | os.PathLike[str]) -> Any:
    """Return the calibration that ``save`` wrote; raise ``CheckpointError`` for any other file."""
    with readable(path):
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError("it is not a file of metaprior.conformal.save")
        return KINDS[content.pop("kind")].from_json(content)
