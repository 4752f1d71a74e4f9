"""The files of an archive of several files: those of a folder, or those that a pattern such as ``*.nc`` names."""

import glob
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from metaprior.solar.maps.archives.archive import Times
from metaprior.solar.maps.archives.notes import Notes
from metaprior.text_table import counted

NETCDF = (".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".hdf", ".he5")
"""Endings of files that the NetCDF library reads: NetCDF and HDF5."""
NPY = (".npy",)
MOST_NAMED = 3
Files = list[Path]


def is_pattern(path: Path) -> bool:
    """Return whether a path is a pattern of names and no file or folder."""
    return glob.has_magic(str(path)) and not path.exists()


def is_npy_folder(path: Path) -> bool:
    """Return whether a folder, or what a pattern names, is an archive of npy files."""
    files = [] if path.is_file() or path.suffix == ".zarr" else files_of(path, Notes())
    return bool(files) and files[0].suffix.lower() in NPY


def holds_frames(path: Path) -> bool:
    """Return whether a folder, or what a pattern names, has files of frames; fast, and raises nothing.

    Those of subfolders count if there are only subfolders, and the first ones that hold files hold little else.
    """
    if is_pattern(path):
        return any(_kind(one) is not None for one in _matching(path))
    entries = sorted(entry for entry in _entries(path) if not entry.name.startswith("."))
    if any(_kind(entry) is not None for entry in entries):
        return True
    while entries and all(entry.is_dir() for entry in entries):
        entries = sorted(entry for entry in _entries(entries[0]) if not entry.name.startswith("."))
    return 2 * sum(_kind(entry) is not None for entry in entries) > len(entries)


def root_of(path: Path) -> Path:
    """Return the folder that the names of the files of an archive are relative to."""
    if not is_pattern(path):
        return path if path.is_dir() else path.parent
    fixed = next(number for number, part in enumerate(path.parts) if glob.has_magic(part))
    return Path(*path.parts[:fixed]) if fixed else Path()


def archive_name(path: Path) -> Path:
    """Return the path after which things made of an archive are named: of a pattern its folder."""
    return root_of(path) if is_pattern(path) else path


def files_of(path: Path, notes: Notes) -> Files:
    """Return the files of frames, all of one kind, sorted by name; others are left out and told.

    Those directly in a folder are taken; if there are none, those of its subfolders. Hidden files are ignored.
    """
    entries = sorted(_matching(path) if is_pattern(path) else _entries(path))
    entries = [entry for entry in entries if not entry.name.startswith(".")]
    files = [entry for entry in entries if entry.is_file()]
    if not any(entry.suffix.lower() in (*NETCDF, *NPY) for entry in files) and not is_pattern(path):
        deeper = sorted(entry for entry in path.rglob("*") if entry.is_file())
        found = [entry for entry in deeper if not any(part.startswith(".") for part in entry.relative_to(path).parts)]
        if any(entry.suffix.lower() in (*NETCDF, *NPY) for entry in found):
            files = entries = found
            notes.finding(f"frames are read from {counted(len({file.parent for file in files}), 'subfolder')}")
    kinds = Counter(kind for file in files if (kind := _kind(file)) is not None)
    if not kinds:
        return []
    chosen = kinds.most_common(1)[0][0]
    others = [entry for entry in entries if entry.is_dir() or _kind(entry) != chosen]
    if others:
        what = "file or folder" if len(others) == 1 else "files or folders"
        notes.finding(f"{len(others)} other {what} left out: {named(others)}")
    return [file for file in files if _kind(file) == chosen]


def in_order(files: Files, times: Times) -> tuple[Files, Times]:
    """Return files and their times in order of time; of equal times the file with the shortest name comes first."""
    order = sorted(range(len(files)), key=lambda number: (times[number], len(files[number].name), number))
    return [files[number] for number in order], times[order]


def named(paths: Iterable[Path]) -> str:
    """Return the first few names of files."""
    names = [path.name for path in paths]
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


def _matching(pattern: Path) -> Iterator[Path]:
    """Iterate over the paths that a pattern names."""
    return map(Path, glob.iglob(str(pattern), recursive=True))  # noqa: PTH207 (a pattern may begin anywhere)


def _kind(path: Path) -> str | None:
    ending = path.suffix.lower()
    return "netcdf" if ending in NETCDF else "npy" if ending in NPY else None


def _entries(folder: Path) -> Files:
    return list(folder.iterdir()) if folder.is_dir() else []
