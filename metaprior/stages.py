"""Networks that are a chain of stages, so that they can be run in two halves.

Where adapted parameters sit behind a part of the network that does not move in the inner loop (the trunk), that part
needs to run only once for a task.
"""

from collections.abc import Collection, Sequence
from typing import Any, Protocol, cast

from torch import nn


class Staged(Protocol):
    """A module that says where it splits.

    ``stages()`` returns its parts in order: ``forward(x)`` has to be the same as running x through them one after the
    other. What passes from one to the next is a tensor, or a tuple of tensors, whose first axis is the observations.
    """

    def stages(self) -> Sequence[nn.Module]:
        """The parts, in order."""


def stages_of(module: nn.Module) -> Sequence[nn.Module]:
    """A module's stages: its own, the children of an ``nn.Sequential``, or the whole as a single one."""
    if callable(getattr(type(module), "stages", None)):  # a method, and not a layer that is called so
        return cast(Staged, module).stages()
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        return list(module)
    return [module]


def first_stage_with(module: nn.Module, names: Collection[str]) -> int:
    """Index of the first stage that holds one of the named parameters; parameters may be shared between stages."""
    named = dict(module.named_parameters(remove_duplicate=False))
    _refuse_strays(module)
    wanted = {id(named[name]) for name in names}
    for index, stage in enumerate(stages_of(module)):
        if any(id(parameter) in wanted for parameter in stage.parameters()):
            return index
    return 0


def _refuse_strays(module: nn.Module) -> None:
    """Raise if a parameter belongs to no stage: it would be read behind the stages' back."""
    held = {id(parameter) for stage in stages_of(module) for parameter in stage.parameters()}
    strays = [name for name, parameter in module.named_parameters() if id(parameter) not in held]
    if strays:
        raise ValueError(
            f"{type(module).__name__}.stages() leaves out parameters: {', '.join(strays[:8])}; every parameter has to "
            "belong to a stage that is returned (a stage is an nn.Module with its own parameters)"
        )


class Chain(nn.Module):
    """Stages ``start`` up to ``stop`` of a module, as a module whose parameters are called ``module.<name>``."""

    def __init__(self, module: nn.Module, start: int = 0, stop: int | None = None) -> None:
        super().__init__()
        self.module = module
        self.window = slice(start, stop)

    def forward(self, features: Any) -> Any:
        """Features before the first of the stages -> features after the last."""
        if self.window == slice(0, None):
            return self.module(features)
        for stage in stages_of(self.module)[self.window]:
            features = stage(features)
        return features
