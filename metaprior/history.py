"""The record of one epoch, the same for every method: what ``history_`` is a list of."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from metaprior.text_table import finite_or_none


@dataclass(frozen=True)
class EpochRecord:
    """Means over one epoch: ``loss == nll + kl + hyper``, per observation, in the network's units, in nats.

    Where targets are standardised, the network's units are standard deviations of the targets.
    """

    epoch: int
    """Number of the epoch, from 1."""
    loss: float
    """The objective that is minimised (with the whole KL, also during a KL warm-up)."""
    nll: float
    """Negative log-likelihood; of objective "abml" that of support and query sets together (``terms`` has each)."""
    kl: float
    hyper: float = 0.0
    """The share of the hyper-prior, for methods that have one."""
    observations: int = 0
    """Number of observations that the terms are means over; 0 where tasks differ in size from step to step."""
    phase: str = ""
    steps: int = 0
    tasks: int = 1
    """Tasks that were learned from."""
    bad_tasks: int = 0
    """Tasks without a finite gradient, which were left out."""
    failures: tuple[str, ...] = ()
    """Messages about the first few bad tasks."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """The parts of ``loss`` as the method names them, where it has more than nll and kl."""
    grad_norms: Mapping[str, float] = field(default_factory=dict)
    """Norms of the gradients before clipping, by group of parameters."""
    validation: float | None = None
    """The objective on held-out data; for a meta-learner the NLL of validation tasks after adaptation."""
    validation_before: float | None = None
    """That NLL before adaptation."""
    missing: int = 0
    """Targets that are missing and were left out."""


def described(history: Iterable[EpochRecord]) -> list[dict[str, Any]]:
    """Return records as plain JSON; a value that is not finite becomes None."""
    return [finite_or_none(asdict(record)) for record in history]


def restored(entries: Sequence[Mapping[str, Any]], observations: int = 1) -> list[EpochRecord]:
    """Return the records that ``described`` wrote, or that release 0.1.0 wrote.

    Args:
        entries: the JSON objects, one for each epoch.
        observations: number of observations that the terms of a hierarchy saved by 0.1.0 are sums over.
    """
    return [_restored(dict(entry), number, observations) for number, entry in enumerate(entries, start=1)]


def _restored(entry: dict[str, Any], number: int, observations: int) -> EpochRecord:
    if "hyper_kl" in entry:  # 0.1.0, HierarchicalVI
        nll, kl, hyper = (entry[name] / observations for name in ("nll", "kl", "hyper_kl"))
        return EpochRecord(number, nll + kl + hyper, nll, kl, hyper, observations)
    if "held_out" in entry:  # 0.1.0, BayesByBackprop
        nll, kl = entry["nll"], entry["kl"]
        return EpochRecord(int(entry["epoch"]), nll + kl, nll, kl, validation=entry["held_out"])
    known = {name: math.nan if entry[name] is None else entry[name] for name in ("loss", "nll", "kl", "hyper")}
    return EpochRecord(**{**entry, **known, "failures": tuple(entry["failures"])})
