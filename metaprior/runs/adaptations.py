"""``[adaptation]`` of a configuration: the settings of every way of adapting, as flat keys.

A kind such as "context+descent" takes the keys of both parts. What a file cannot hold (an encoder of your own) has no
key; ``Descent`` has one more, the engine that differentiates it.
"""

from dataclasses import MISSING, field, fields, make_dataclass
from typing import Any, ClassVar, Literal, get_type_hints

from metaprior import metagrad
from metaprior.adaptation import WAYS, Adaptation
from metaprior.metagrad.problem import Descent, Engine
from metaprior.registry import Registry

EngineName = Literal[
    "auto", "mixed", "twice_reverse", "unrolled", "checkpointed", "first_order", "finite_difference", "implicit"
]
NOT_IN_FILES = ("encoder",)
"""Settings that are Python objects."""
DEFAULTS: dict[str, Any] = {"learn_lr": "per_tensor"}
"""Defaults that are those of ``MetaLearner``, and not of the class."""


class Section:
    """The keys of one kind, checked together with the settings that they make."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        """Raise for invalid values, and store the others as the settings have them (``learn_lr = true``)."""
        for part in self._parts():
            for name in _keys(type(part)):
                object.__setattr__(self, name, getattr(part, name))

    def _parts(self) -> list[Any]:
        classes = _classes(self.kind)
        return [cls(**{name: getattr(self, name) for name in _keys(cls)}) for cls in classes]

    @property
    def adaptation(self) -> Adaptation:
        """The settings, or the combination of them."""
        parts = self._parts()
        return parts[0] if len(parts) == 1 else WAYS[self.kind].settings(*parts)  # type: ignore[no-any-return]

    @property
    def chosen_engine(self) -> Engine | None:
        """The engine that is named; None if it is left open, or if there is nothing to choose."""
        name = getattr(self, "engine", "auto")
        return None if name == "auto" else getattr(metagrad, name)


def _classes(kind: str) -> list[type]:
    return [WAYS[part].settings for part in kind.split("+")]


def _keys(settings: type) -> list[str]:
    return [entry.name for entry in fields(settings) if entry.name not in NOT_IN_FILES]


def section(kind: str) -> type:
    """Return the class whose fields are the keys of a kind, with types and defaults."""
    keys: list[tuple[str, Any, Any]] = []
    for settings in _classes(kind):
        types, entries = get_type_hints(settings), {entry.name: entry for entry in fields(settings)}
        for name in _keys(settings):
            default = DEFAULTS.get(name, entries[name].default)
            keys.append((name, types[name], MISSING if default is MISSING else field(default=default)))
        if settings is Descent:
            keys.append(("engine", EngineName, field(default="auto")))
    return make_dataclass("Section", keys, bases=(Section,), frozen=True, namespace={"kind": kind})


ADAPTATIONS = Registry("adaptation.kind", {kind: section(kind) for kind in WAYS})
