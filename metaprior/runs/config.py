"""The configuration of a run, as data: nothing is opened or built here.

A section is one of the package's own dataclasses, some with a few more fields; ``[model]``, ``[likelihood]``,
``[tasks]`` and ``[adaptation]`` name a ``kind`` and take the arguments of its class. Defaults are those of the classes.
Several sections ``[[tasks]]`` are parts whose tasks take turns.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_type_hints

from metaprior.adaptation import Adaptation
from metaprior.checks import check_integer
from metaprior.likelihoods import LIKELIHOODS
from metaprior.metagrad.memory import Memory, bytes_of
from metaprior.metagrad.problem import Engine
from metaprior.models import MODELS
from metaprior.network import DEFAULT_RELATIVE_SIGMA
from metaprior.priors import NormalGammaHyperprior
from metaprior.registry import Registry
from metaprior.runs.adaptations import ADAPTATIONS
from metaprior.runs.folder import Sections, changes
from metaprior.runs.sources import TASKS
from metaprior.runs.task_list import TaskList
from metaprior.training.settings import MetaTraining


@dataclass(frozen=True)
class Meta(MetaTraining):
    """``[meta]``: the training of theta, and what it is trained for (see ``MetaLearner``)."""

    objective: Literal["query", "predictive", "abml", "evidence"] | None = None
    outer_samples: int = 1
    relative_sigma: float = DEFAULT_RELATIVE_SIGMA

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("outer_samples", self.outer_samples, 1)
        if not 0 <= self.relative_sigma < float("inf"):
            raise ValueError(f"relative_sigma must be at least 0, got {self.relative_sigma}")


@dataclass(frozen=True)
class WarmStart:
    """``[warm_start]``: weights for means that are trained already; with ``meta.warm_start`` steps they train on.

    Args:
        weights: a safetensors file with the network's state dict, or the name of weights of an application.
    """

    weights: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", self.weights or None)


@dataclass(frozen=True)
class Evaluate:
    """``[evaluate]``: how theta is judged, on tasks that training never sees.

    Args:
        tasks: how many, in every validation and at the end.
        shots: of the evaluation at the end, as far as the support sets go; all shots are always among them.
        adaptation_steps: of the evaluation at the end, where adapting takes steps; the run's own are always among them.
        samples: weight samples of a forecast.
        every: epochs from one validation to the next.
        patience: validations without a better score after which training stops; 0 is never.
        calibrate: fit the spread of forecasts, by number of examples, to the validation tasks when training is over.
    """

    tasks: int = 100
    shots: tuple[int, ...] = (0, 1, 5, 10)
    adaptation_steps: tuple[int, ...] = (1, 5, 10)
    samples: int = 20
    every: int = 1
    patience: int = 0
    calibrate: bool = True

    def __post_init__(self) -> None:
        for name, least in (("tasks", 1), ("samples", 2), ("every", 1), ("patience", 0)):
            check_integer(name, getattr(self, name), least)
        for name in ("shots", "adaptation_steps"):
            for value in getattr(self, name):
                check_integer(name, value, 0)


@dataclass(frozen=True)
class Run:
    """``[run]``: seed, device, threads, memory budget, and how many steps there are between checkpoints.

    At the end of an epoch there is always one, too. ``threads`` and ``device`` change the last bits of a sum (and the
    device the noise), so they belong to the run. ``memory`` and ``threads`` are those of each process; a fraction of
    the free memory is divided among the processes of a machine. ``scratch`` is the folder for what does not fit in it;
    None is the system's temporary one.
    """

    seed: int = 0
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    memory: Memory = 0.5
    scratch: str | None = None
    checkpoint_every: int = 100

    def __post_init__(self) -> None:
        check_integer("threads", self.threads, 1)
        check_integer("checkpoint_every", self.checkpoint_every, 1)
        object.__setattr__(self, "scratch", self.scratch or None)
        bytes_of(self.memory)


@dataclass(frozen=True)
class Choice:
    """A section with a kind: the arguments of that class, defaults included."""

    kind: str
    arguments: Mapping[str, Any]

    @property
    def parts(self) -> "tuple[Choice, ...]":
        """The section itself, as the only one."""
        return (self,)

    @property
    def content(self) -> dict[str, Any]:
        """Kind and arguments, as a table of TOML."""
        return {"kind": self.kind, **self.arguments}


@dataclass(frozen=True)
class Choices:
    """A list of sections with kinds, ``[[tasks]]``, numbered from 0."""

    parts: tuple[Choice, ...]

    @property
    def kind(self) -> str:
        """The kinds of the parts, for messages; it is no kind of a section."""
        return f"[{', '.join(part.kind for part in self.parts)}]"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of all parts by dotted keys such as ``0.path``."""
        return {
            f"{number}.{key}": value for number, part in enumerate(self.parts) for key, value in part.arguments.items()
        }

    @property
    def content(self) -> list[dict[str, Any]]:
        """Kind and arguments of every part, as an array of tables of TOML."""
        return [part.content for part in self.parts]


@dataclass(frozen=True)
class Config:
    """A whole configuration, checked."""

    model: Choice
    likelihood: Choice
    tasks: Choice | Choices
    adaptation: Choice
    meta: Meta
    hyperprior: NormalGammaHyperprior
    warm_start: WarmStart
    evaluate: Evaluate
    run: Run

    def __post_init__(self) -> None:
        if self.warm_start.weights is not None:
            object.__setattr__(self, "meta", replace(self.meta, pretrained=True))

    def resolved(self) -> Sections:
        """Return every section with every key, as JSON has it."""
        kinds = {name: getattr(self, name).content for name in KINDS}
        plain = {name: asdict(getattr(self, name)) for name in PLAIN_SECTIONS}
        content: Sections = json.loads(json.dumps({**kinds, **plain}))
        return content

    @property
    def adaptation_settings(self) -> tuple[Adaptation, Engine | None]:
        """The adaptation, and the engine that differentiates it where one is named."""
        section = ADAPTATIONS.build(self.adaptation.kind, self.adaptation.arguments)
        return section.adaptation, section.chosen_engine

    @property
    def task_settings(self) -> Any:
        """The object that ``[tasks]`` describes, of a list a ``TaskList``; nothing is opened."""
        parts = [TASKS.build(part.kind, part.arguments) for part in self.tasks.parts]
        return TaskList(tuple(parts)) if isinstance(self.tasks, Choices) else parts[0]

    @property
    def digest(self) -> str:
        """The name of this configuration in checkpoints, which does not depend on the number of epochs."""
        content = self.resolved()
        del content["meta"]["epochs"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


KINDS: dict[str, Registry] = {"model": MODELS, "likelihood": LIKELIHOODS, "tasks": TASKS, "adaptation": ADAPTATIONS}
PLAIN_SECTIONS: dict[str, Callable[..., Any]]
PLAIN_SECTIONS = {name: section for name, section in get_type_hints(Config).items() if name not in KINDS}
LISTS = ("tasks",)
"""Sections that may be a list."""
DEFAULT_KINDS = {"adaptation": "descent"}
"""The kind of a section that names none."""
EXTRA_KEYS: dict[str, dict[str, tuple[Any, Any]]] = {"model": {"stochastic": (str | None, None)}}
"""Keys of a section that are not arguments of its class: type and default."""
PYTHON_ONLY = ("targets",)
"""Arguments of classes that configurations cannot give: ``MLP`` takes it beside a likelihood in place of a number."""


def differences(old: Sections, new: Sections) -> list[tuple[str, Any, Any]]:
    """Return the dotted keys whose values differ, with both values."""
    return changes(flat(old), flat(new))


def flat(content: Sections) -> dict[str, Any]:
    """Return the values by dotted keys; parts of a list are numbered: ``tasks.0.path``."""
    tables = {section: table for section, table in content.items() if isinstance(table, dict)}
    for section in content.keys() - tables.keys():
        tables |= {f"{section}.{number}": table for number, table in enumerate(content[section])}
    return {f"{section}.{key}": value for section, table in tables.items() for key, value in table.items()}
