"""``metaprior inspect PATH``: what something is, what is wrong with it, what would work, and the exact next command.

Every kind of thing has an ``Inspector``. Those of runs, priors and configurations are in ``inspectors.py``; an
application adds its own by a function ``inspectors()`` in its module. The first one that recognises a path inspects it.
"""

import glob
import inspect as signatures
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from metaprior.checkpoint import write_file
from metaprior.text_table import finite_or_none

AT_MOST_LOOKED_AT, AT_MOST_LISTED = 100, 8
"""Entries of a folder that are looked at, and that are named."""


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Args:
        kind: What the path is, as "an archive of frames".
        facts: What is known about it, by name.
        problems: What is wrong with it, all at once, a sentence each.
        next_commands: Commands that work for this path, the most useful one first.
        body: Text between facts and problems, such as a table.
        config: Name of the packaged configuration that can be trained on it, if any.
        changes: Changes that make that configuration fit, as ``--set`` takes them.
    """

    kind: str
    facts: Mapping[str, str]
    problems: Sequence[str] = ()
    next_commands: Sequence[str] = ()
    body: str = ""
    config: str | None = None
    changes: Sequence[str] = ()

    def text(self, path: Path) -> str:
        """Return all of it for a person."""
        width = max(map(len, self.facts), default=0)
        lines = [f"{path}: {self.kind}", *(f"  {name:{width}}  {fact}" for name, fact in self.facts.items())]
        lines += [self.body] if self.body else []
        lines += ["problems:", *(f"- {problem}" for problem in self.problems)] if self.problems else []
        return "\n".join([*lines, *(f"next: {command}" for command in self.next_commands)])


@dataclass(frozen=True)
class Inspector:
    """A way to inspect one kind of thing.

    Args:
        what: What it recognises, for the message about a path that nothing recognises.
        recognises: Whether a path that exists is of this kind; must be fast, and raise for nothing.
        inspect: Takes the path and, by keyword, the options that belong to this kind, declared as those of a command.
        fit: Returns the inspection of data that tasks can be drawn from, with the configuration; writes nothing.
    """

    what: str
    recognises: Callable[[Path], bool]
    inspect: Callable[..., Inspection] = field(repr=False)
    fit: Callable[[Path], Inspection] | None = field(default=None, repr=False)

    @property
    def options(self) -> dict[str, signatures.Parameter]:
        """The options that belong to this kind, by name."""
        _, *options = signatures.signature(self.inspect).parameters.values()
        return {option.name: option for option in options}


def find_inspector(path: Path, inspectors: Sequence[Inspector]) -> Inspector:
    """Return the inspector of a path; raise if it cannot be inspected, with what was looked for."""
    pattern = not path.exists() and glob.has_magic(str(path))
    if not path.exists() and not (pattern and glob.glob(str(path), recursive=True)):  # noqa: PTH207
        raise FileNotFoundError(f"{path} does not exist. Check the spelling and the folder that you are in")
    if not (pattern or path.is_file() or path.is_dir()):
        raise ValueError(f"{path} must be a file or a folder, got something else, such as a pipe or a device")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"{path} is empty (0 bytes): what should have written it was stopped, or the disk was full")
    if path.is_dir() and not any(path.iterdir()):
        raise ValueError(f"{path} is an empty folder")
    found = next((one for one in inspectors if one.recognises(path)), None)
    if found is None:
        raise ValueError(f"{path} is nothing that this package knows{_content(path, inspectors)}")
    return found


def _content(path: Path, inspectors: Sequence[Inspector]) -> str:
    """Return the entries of a folder that can be inspected; if there are none, what was looked for."""
    entries = sorted(entry for entry in path.iterdir() if entry.name[0] != ".") if path.is_dir() else []
    known = [entry for entry in entries[:AT_MOST_LOOKED_AT] if any(one.recognises(entry) for one in inspectors)]
    if known:
        known.sort(key=lambda entry: entry.suffix == ".txt")  # mostly notes about the other files
        lines = [f"\n  metaprior inspect {shlex.quote(str(entry))}" for entry in known[:AT_MOST_LISTED]]
        return f", but {len(known)} of its entries can be inspected:{''.join(lines)}"
    names = ", ".join(entry.name for entry in entries[:AT_MOST_LISTED])
    held = f" (it holds {names}{', ...' if len(entries) > AT_MOST_LISTED else ''})" if entries else ""
    return held + ". Looked for:" + "".join(f"\n- {one.what}" for one in inspectors)


def inspect_path(path: Path, inspectors: Sequence[Inspector], given: Mapping[str, Any]) -> Inspection:
    """Return the inspection of a path; ``given`` are options, of which those that do not belong to it are refused."""
    found = find_inspector(path, inspectors)
    all_options = {name: option for one in inspectors for name, option in one.options.items()}
    chosen = {name for name, value in given.items() if value != all_options[name].default}
    if foreign := sorted(chosen - set(found.options)):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in foreign)
        owners = [one.what for one in inspectors if set(foreign) & set(one.options)]
        raise typer.BadParameter(f"{names}: only for {' or '.join(owners)}; {path} is {found.what}")
    return found.inspect(path, **{name: value for name, value in given.items() if name in found.options})


def inspect_command(inspectors: Sequence[Inspector]) -> Callable[..., None]:
    """Return the command, whose options are those of all inspectors."""

    def inspect(path: Path, json_file: Path | None = None, **given: Any) -> None:
        if json_file is not None and json_file.exists():
            raise FileExistsError(f"{json_file} exists. Give another name with --json, or remove it yourself")
        found = inspect_path(path, inspectors, given)
        typer.echo(found.text(path))
        if json_file is not None:
            content = finite_or_none({"path": str(path), **asdict(found)})
            write_file(json_file, (json.dumps(content, indent=2) + "\n").encode())
            typer.echo(f"written: {json_file}")

    inspect.__doc__ = HELP
    options = {name: option for one in inspectors for name, option in one.options.items()}
    keyword = signatures.Parameter.KEYWORD_ONLY
    parameters = [
        signatures.Parameter("path", signatures.Parameter.POSITIONAL_OR_KEYWORD, annotation=PATH),
        *(option.replace(kind=keyword) for option in options.values()),
        signatures.Parameter("json_file", keyword, annotation=JSON, default=None),
    ]
    inspect.__signature__ = signatures.Signature(parameters)  # type: ignore[attr-defined]
    inspect.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return inspect


HELP = """Say what something is, what is wrong with it, what would work, and the next command.

Works for a table of power, an archive of frames (NetCDF, HDF5, Zarr, npz, a
folder or a pattern of files), a forecast, a configuration
(TOML), the folder of a run, a saved prior, and the JSON of an evaluation, a backtest or a benchmark.

Example: metaprior inspect power.csv

Example: metaprior inspect archive.nc

Example: metaprior inspect runs/sinusoid
"""
PATH = Annotated[Path, typer.Argument(help="A file, a folder, or a pattern in quotes such as 'data/*.nc'.")]
JSON = Annotated[Path | None, typer.Option("--json", help="Also write what was found to this file.")]
