"""Bars of ``metaprior.progress`` for tests: shown without delay, or recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from metaprior import progress
from metaprior.progress import ProgressBar, TerminalBar


def bars_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show bars as on a terminal, from the first update on."""
    monkeypatch.setattr(progress, "LineBar", lambda *given, pace: TerminalBar(*given, delay=0, mininterval=0))


@dataclass
class RecordedBar:
    """What a bar was made with, and its counts."""

    label: str
    total: int | None
    show: bool
    counts: list[int] = field(default_factory=list)


def recorded_bars(monkeypatch: pytest.MonkeyPatch, *modules: Any) -> list[RecordedBar]:
    """Record the bars that modules make in place of showing them."""
    bars: list[RecordedBar] = []

    def make(label: str, total: int | None, *, unit: str, show: bool, done: int = 0) -> ProgressBar:
        record = RecordedBar(label, total, show)
        bars.append(record)

        class Recording(ProgressBar):
            def update(self, count: int = 1, **shown: str) -> None:
                super().update(count)
                record.counts.append(self.done)

        return Recording(label, total, unit, done)

    for module in (progress, *modules):
        monkeypatch.setattr(module, "progress_bar", make)
    return bars


def by_label(bars: list[RecordedBar]) -> Mapping[str, bool]:
    """Return whether the bars of each label were to be shown."""
    return {bar.label: bar.show for bar in bars}
