"""Frames that are not usable: refused with an error, or left out and listed."""

from typing import Literal

OnBad = Literal["raise", "skip"]


class BadFramesSkipped(UserWarning):
    """Bad frames were left out; the DataArray's attribute ``skipped`` lists all of them."""


class GapsInTime(UserWarning):
    """Frames are missing between the first and the last; the DataArray's attribute ``gaps`` lists all gaps."""


class BadFrames:
    """Collects bad frames: ``report`` raises with ``on_bad="raise"`` and appends to ``skipped`` with ``"skip"``."""

    def __init__(self, on_bad: OnBad) -> None:
        if on_bad not in ("raise", "skip"):
            raise ValueError(f'on_bad must be "raise" or "skip", got {on_bad!r}')
        self.on_bad = on_bad
        self.skipped: list[str] = []

    def report(self, name: str, problem: str) -> None:
        """Raise ValueError for this frame, or list it."""
        if self.on_bad == "raise":
            raise ValueError(
                f'{name}: {problem}. Repair or remove it; on_bad="skip" leaves such frames out and lists '
                "them (metaprior train: --set tasks.on_bad=skip, metaprior predict: --on-bad skip)"
            )
        self.skipped.append(f"{name}: {problem}")


def first_lines(lines: list[str], count: int = 5) -> str:
    """Return the first lines of a list, indented, and the number of the others."""
    more = f"\n  ... and {len(lines) - count} more" if len(lines) > count else ""
    return "".join(f"\n  {line}" for line in lines[:count]) + more
