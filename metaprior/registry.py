"""Names of interchangeable classes: what a configuration calls a network, a likelihood or a source of tasks."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Registry(Mapping[str, type]):
    """Classes by the ``kind`` that configurations and saved files name.

    Args:
        what: the kind of thing, for messages.
        classes: the classes of this package.
        load: called before every lookup; imports the modules that add classes of their own.
    """

    def __init__(self, what: str, classes: Mapping[str, type], load: Callable[[], object] = lambda: None) -> None:
        self.what, self._classes, self._load = what, dict(classes), load

    def add(self, kind: str, cls: type) -> None:
        """Give a class a name; a name that belongs to another class raises."""
        if self._classes.setdefault(kind, cls) is not cls:
            raise ValueError(f"the {self.what} {kind!r} is {self._classes[kind].__name__} already; choose another name")

    def kind_of(self, thing: object) -> str | None:
        """Return the name of an object's class, or None if it has none."""
        return next((kind for kind, cls in self.items() if type(thing) is cls), None)

    def build(self, kind: str, arguments: Mapping[str, Any]) -> Any:
        """Return an object of the named class."""
        if kind not in self:
            raise ValueError(f"{self.what} must be one of {', '.join(self)}, got {kind!r}")
        return self[kind](**arguments)

    def __getitem__(self, kind: str) -> type:
        self._load()
        return self._classes[kind]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._classes)

    def __len__(self) -> int:
        self._load()
        return len(self._classes)
