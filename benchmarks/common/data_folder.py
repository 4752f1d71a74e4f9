"""Where public data lie on this machine."""

import os
from pathlib import Path


def data_folder(given: Path | None = None) -> Path:
    """Return the folder given, or the one that METAPRIOR_DATA names, or ../shared/data."""
    return given or Path(os.environ.get("METAPRIOR_DATA", "../shared/data"))
