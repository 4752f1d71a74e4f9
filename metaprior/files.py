"""Files and folders that appear under their name only when they are complete."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def bare_name(path: str | Path) -> str:
    """Return the name of a file or folder without endings: ``power`` of ``data/power.csv.gz``."""
    return Path(path).resolve().name.split(".")[0]


def named_after(path: str | Path, what: str) -> str:
    """Return the name of a new file, in the present folder, for something that is made of a file or folder.

    Names of what is made of different things differ: "forecast.csv" of "data/power.csv" is "power_forecast.csv".
    """
    return f"{bare_name(path)}_{what}"


@contextmanager
def written_when_complete(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; what was written there gets the name when the block ends without error.

    A file or folder that was there before is replaced.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        if temporary.is_dir():
            _replace_folder(temporary, path)
        else:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # a name must not survive a power failure that the content does not survive
            temporary.replace(path)
    finally:
        _remove(temporary)


def _replace_folder(temporary: Path, path: Path) -> None:
    """Move a folder to a name that may be taken: the old folder is moved aside, and moved back if this fails."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        path.rename(aside)
    try:
        temporary.rename(path)
    except BaseException:
        if aside.exists():
            aside.rename(path)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
