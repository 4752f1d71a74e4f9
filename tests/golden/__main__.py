"""``python -m tests.golden``: write the digests, or compare two versions bitwise on one machine.

python -m tests.golden --update                    # rewrite digests.json (all cases, or those named by --only)
python -m tests.golden --bitwise before.json       # exact SHA-256 digests of every entry
python -m tests.golden --compare before.json       # which cases differ bitwise from that file
python -m tests.golden --times                     # seconds of each case
"""

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.golden.digest import Entries, digest, exact_digest, read, write
from tests.golden.registry import all_cases, entries_of

DIGESTS = Path(__file__).parent / "digests.json"


def computed(pattern: str) -> tuple[dict[str, Entries], dict[str, float]]:
    """Return entries and seconds of all cases whose name contains the pattern."""
    found, seconds = {}, {}
    for name, case in all_cases().items():
        if re.search(pattern, name):
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                found[name] = entries_of(case, Path(folder))
                seconds[name] = time.perf_counter() - began
    return found, seconds


def main(arguments: list[str] | None = None) -> int:
    """Run the program and return its exit code: 1 if something differs bitwise."""
    parser = argparse.ArgumentParser("python -m tests.golden", description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="rewrite digests.json")
    parser.add_argument("--bitwise", metavar="FILE", type=Path, help="write exact digests to a file")
    parser.add_argument("--compare", metavar="FILE", type=Path, help="report cases that differ bitwise from a file")
    parser.add_argument("--times", action="store_true", help="print the seconds that each case takes")
    parser.add_argument("--only", metavar="PATTERN", default="", help="regular expression for the names of cases")
    given = parser.parse_args(arguments)
    if not (given.update or given.bitwise or given.compare or given.times):
        parser.error("nothing to do: give --update, --bitwise FILE, --compare FILE or --times")
    entries, seconds = computed(given.only)
    exact = {name: {key: exact_digest(value) for key, value in one.items()} for name, one in entries.items()}
    if given.update:
        kept = read(DIGESTS) if given.only and DIGESTS.exists() else {}
        new = {name: {key: digest(value) for key, value in one.items()} for name, one in entries.items()}
        write(DIGESTS, kept | new)
    if given.bitwise:
        write(given.bitwise, exact)
    if given.times:
        for name in sorted(seconds, key=seconds.__getitem__):
            say(f"{seconds[name]:7.2f} s  {name}")
        say(f"{sum(seconds.values()):7.2f} s  in all")
    return report(exact, read(given.compare), given.only) if given.compare else 0


def report(found: dict[str, Any], expected: dict[str, Any], pattern: str) -> int:
    """Print which cases differ bitwise and in which entries; return 1 if any does."""
    expected = {name: entries for name, entries in expected.items() if re.search(pattern, name)}
    different = 0
    for name in sorted(found.keys() | expected.keys()):
        one, other = found.get(name, {}), expected.get(name, {})
        keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
        if keys:
            different += 1
            shown = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
            say(f"differs: {name}: {len(keys)} of {len(one.keys() | other.keys())} entries: {shown}")
    say(f"{different} of {len(found.keys() | expected.keys())} cases differ bitwise")
    return int(different > 0)


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
