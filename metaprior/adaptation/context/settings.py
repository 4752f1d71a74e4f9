"""The settings of a context, alone and together with another way of adapting."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from metaprior.adaptation.context.reading import READINGS, Reading
from metaprior.checks import check_integer
from metaprior.errors import CheckpointError


@dataclass(frozen=True)
class Context:
    """Adapt by a summary of the support set that the network reads; train with support sets of varied sizes.

    Args:
        size: length of the summary.
        reading: how the network reads it: "norms" (scale and shift of its normalisation layers), "layers" (of its
            hidden linear and convolutional layers), "inputs" (further inputs of its first such layer); "auto" takes
            "norms" where there are any, and otherwise "layers".
        encoder: a module ``encoder(x, y) -> (N, size)`` that embeds each example; mean and maximum over the examples,
            and their number, make the summary. The default suits vectors and images, real-valued targets and labels.

    A network with a method ``support_encoder()``, which returns a ``SupportEncoder``, summarises support sets itself,
    and takes the summary as its second argument; the three settings then have no meaning.
    ``Context() + Descent()`` and ``Context() + ClosedForm()`` adapt the network that reads the summary further.
    """

    size: int = 128
    reading: Reading = "auto"
    encoder: nn.Module | None = None

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1)
        if self.reading not in READINGS:
            raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {self.reading!r}")
        if self.encoder is not None and not isinstance(self.encoder, nn.Module):
            raise TypeError(f"encoder must be an nn.Module, or None for the default, got {type(self.encoder).__name__}")

    def __add__(self, other: Any) -> "Combination":
        return Combination(self, other)

    def __radd__(self, other: Any) -> "Combination":
        return Combination(self, other)


@dataclass(frozen=True)
class Combination:
    """A network that reads the context of a support set, and is then adapted to the same set.

    ``Context() + Descent()`` is ``Combination(Context(), Descent())``; the order does not matter.
    """

    context: Context
    then: Any

    def __post_init__(self) -> None:
        if not isinstance(self.context, Context) or isinstance(self.then, Context | Combination):
            raise TypeError(
                "a combination must be of one Context and another way of adapting, such as Context() + Descent(), got "
                f"{type(self.context).__name__} and {type(self.then).__name__}"
            )

    @property
    def parts(self) -> tuple[Context, Any]:
        """The context, and what comes after it."""
        return self.context, self.then


def described(context: Context) -> dict[str, Any]:
    """Return the settings as JSON; of an encoder of one's own only its class."""
    encoder = None if context.encoder is None else type(context.encoder).__name__
    return {"size": context.size, "reading": context.reading, "encoder": encoder}


def restored(size: int, reading: Reading, encoder: str | None) -> Context:
    """Return what ``described`` described; raise for an encoder that only the user's code can make."""
    if encoder is not None:
        raise CheckpointError(
            f"it was saved with an encoder of your own ({encoder}), which only your code can build: give it as "
            "load(folder, adaptation=Context(encoder=...))"
        )
    return Context(size, reading)
