"""How a task is learned: the ways of adapting, by name, and what makes each of them a ``TaskModel``.

A way of adapting is a frozen dataclass of settings and a function that binds it to a network. A new one is one line in
``WAYS``; ``+`` joins ways whose combination is registered as well.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from metaprior.adaptation import descent
from metaprior.adaptation.closed_form import model as closed_form
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.context import model as context
from metaprior.adaptation.context import with_closed_form, with_descent
from metaprior.adaptation.context.settings import Combination, Context, described, restored
from metaprior.adaptation.task_model import Binding, TaskModel
from metaprior.metagrad.problem import Descent
from metaprior.network import NOTHING_RANDOM, BayesianNetwork

__all__ = ["WAYS", "Adaptation", "Binding", "TaskModel", "bind", "describe", "network_for", "restore"]


class Adaptation(Protocol):
    """Settings of a way of adapting: a frozen dataclass whose class is in ``WAYS``."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


@runtime_checkable
class Combined(Protocol):
    """A combination of adaptations, made by ``type(combination)(*parts)``."""

    @property
    def parts(self) -> tuple[Adaptation, ...]:
        """Return the adaptations that are combined."""


@dataclass(frozen=True)
class Way:
    """One way of adapting.

    Args:
        settings: the class of its settings.
        bind: makes a task model of settings and what they are bound to.
        random_weights: whether the network's weights are random; otherwise all of its parameters are plain.
        described: returns the settings as JSON.
        restored: the inverse of ``described``.
    """

    settings: type
    bind: Callable[[Any, Binding], TaskModel]
    random_weights: bool
    described: Callable[[Any], dict[str, Any]] = asdict
    restored: Callable[..., Any] | None = None


WAYS: dict[str, Way] = {
    "descent": Way(Descent, descent.bind, random_weights=True),
    "closed_form": Way(ClosedForm, closed_form.bind, random_weights=False),
    "context": Way(Context, context.bind, random_weights=False, described=described, restored=restored),
    "context+closed_form": Way(Combination, with_closed_form.bind, random_weights=False),
    "context+descent": Way(Combination, with_descent.bind, random_weights=True),
}
"""Ways of adapting by the kind that configurations and saved files name."""


def kind_of(adaptation: object) -> str:
    """Return the kind of an adaptation; that of a combination joins those of its ``parts`` by "+"."""
    if isinstance(adaptation, Combined):
        kinds = ["+".join(map(kind_of, adaptation.parts))]
    else:
        kinds = [kind for kind, way in WAYS.items() if type(adaptation) is way.settings]
    if not kinds or kinds[0] not in WAYS:
        raise TypeError(f"adaptation must be one of the kinds {', '.join(WAYS)}, such as Descent(); got {adaptation!r}")
    return kinds[0]


def network_for(adaptation: object, module: Any, stochastic: str | None) -> BayesianNetwork:
    """Return the module with the choice of its random parameters, none where weights are plain."""
    kind = kind_of(adaptation)
    if WAYS[kind].random_weights:
        return BayesianNetwork(module, stochastic)
    if stochastic not in (None, NOTHING_RANDOM):
        raise ValueError(
            f"stochastic must be None with adaptation {kind!r}, whose network has no random weights; got {stochastic!r}"
        )
    return BayesianNetwork(module, NOTHING_RANDOM)


def bind(adaptation: object, binding: Binding) -> TaskModel:
    """Return the task model of an adaptation; raise for arguments that cannot work together."""
    return WAYS[kind_of(adaptation)].bind(adaptation, binding)


def describe(adaptation: object) -> dict[str, Any]:
    """Return an adaptation as JSON: its ``kind`` and its settings."""
    kind = kind_of(adaptation)
    if isinstance(adaptation, Combined):
        return {"kind": kind, **{kind_of(part): describe(part) for part in adaptation.parts}}
    return {"kind": kind, **WAYS[kind].described(adaptation)}


def restore(description: Mapping[str, Any]) -> Any:
    """Return the adaptation that ``describe`` described."""
    settings = dict(description)
    kind = settings.pop("kind")
    if kind not in WAYS:
        raise ValueError(f"adaptation kind must be one of {', '.join(WAYS)}, got {kind!r}")
    way = WAYS[kind]
    if "+" in kind:
        return way.settings(*(restore(settings[part]) for part in kind.split("+")))
    return (way.restored or way.settings)(**settings)
