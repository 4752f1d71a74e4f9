"""What every likelihood offers, and the one that leaves missing targets out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from metaprior.checks import all_true
from metaprior.forecasts import Forecast
from metaprior.missing import present_numbers
from metaprior.scaling import TargetScale

TRIED = 5
"""Observations that a likelihood's results are checked with."""


def per_observation(elementwise: Tensor) -> Tensor:
    """Return the sum over all axes but the first: (N, ...) -> (N,)."""
    return elementwise.reshape(len(elementwise), -1).sum(-1)


class Likelihood(ABC):
    """p(y | network output); the module's docstring has the conventions."""

    continuous: ClassVar[bool]
    """Whether targets are real numbers, which may be standardised; labels and counts are not."""
    labels: ClassVar[bool] = False
    """Whether targets are labels, which are scored by their error rate, and not numbers."""
    keeps_zero: ClassVar[bool] = False
    """Whether a zero must stay a zero: targets are then standardised by their root mean square, and not centred."""
    several_outputs: ClassVar[bool] = False
    """Whether the network may return a tuple or a dictionary of tensors, which ``outputs`` and, with the shape of each,
    ``output_shape`` then are."""

    @property
    def outputs_per_target(self) -> int:
        """Number of the network's outputs that describe one real-valued target."""
        return 1

    def num_outputs(self, targets: int) -> int:
        """Return the number of the network's outputs for an observation with so many targets."""
        return targets * self.outputs_per_target

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the plain parameters that the likelihood learns."""
        return ()

    @abstractmethod
    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log-likelihood of each target, in the targets' shape."""

    def counted_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor], counts: Tensor) -> Tensor:
        """Return ``elementwise_nll`` where each target counts as ``counts``, in the targets' shape.

        Only a loss that compares the observations of a batch depends on them: they are not multiplied with it.
        """
        return self.elementwise_nll(outputs, targets, parameters)

    def nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log-likelihood of each observation, shape (N,): the sum over its targets."""
        return per_observation(self.elementwise_nll(outputs, targets, parameters))

    def total_nll(
        self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor], counts: Tensor | None = None
    ) -> Tensor:
        """Return the negative log-likelihood of all observations; ``counts`` (N,): how many each one counts as."""
        nll = self.nll(outputs, targets, parameters)
        return (nll if counts is None else nll * counts).sum()

    def present(self, targets: Tensor) -> Tensor:
        """Return where targets are not missing, a Boolean tensor of their shape."""
        return present_numbers(targets)

    def masking(self, *targets: Tensor) -> "Likelihood":
        """Return the likelihood itself, or, if some of the targets are missing, ``Masked`` with it.

        On a GPU it is always masked, with the same numbers: to ask would make the CPU wait.
        """
        asked = all(own.device.type == "cpu" for own in targets)
        return self if asked and all_true([self.present(own).all() for own in targets]) else Masked(self)

    @abstractmethod
    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> Forecast:
        """Return the predictive distribution from the outputs of S weight samples, shape (S, N, ...)."""

    @abstractmethod
    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets in the type and shape that ``nll`` trusts, or raise; ``output_shape`` is of any batch.

        Missing targets pass, as they are.
        """

    def check_results(self, targets: Tensor, output_shape: Any) -> None:
        """Raise unless ``elementwise_nll`` has the targets' shape and ``forecast`` gives a forecast.

        ``targets`` are some that ``check_targets`` has returned; what is wrong here would be summed and learn nothing.
        """
        if not len(targets):
            return
        some = targets[torch.arange(TRIED, device=targets.device) % len(targets)]
        like = some if some.is_floating_point() else some.float()

        def zeros(shape: Sequence[int], *samples: int) -> Tensor:
            return like.new_zeros(*samples, TRIED, *shape[1:])

        parameters, own = self.initial_parameters(some), type(self).__name__
        found = self.masking(some).elementwise_nll(_of_shapes(zeros, output_shape), some, parameters)
        if found.shape != some.shape:
            raise ValueError(
                f"elementwise_nll of {own} must return the targets' shape {_with_n(some.shape)}, got "
                f"{_with_n(found.shape)}. Try one number for each target: no sum or mean, and no broadcasting"
            )
        forecast = self.forecast(_of_shapes(lambda shape: zeros(shape, 2), output_shape), parameters)
        if not isinstance(forecast, Forecast):
            raise TypeError(
                f"forecast of {own} must return a Forecast, got {type(forecast).__name__}. Try one of "
                "metaprior.forecasts, such as GaussianForecast(means, scales), or a subclass of your own"
            )

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Return first values of the learned plain parameters, for (standardised) targets of this shape."""
        return {}

    def in_units_of(self, units: TargetScale) -> "Likelihood":
        """Return the same likelihood for targets ``(y - units.loc) / units.scale``; fixed numbers have to change."""
        return self


def _of_shapes(make: Callable[[Sequence[int]], Tensor], shapes: Any) -> Any:
    """Return a tensor for a shape, and a tuple or dictionary of tensors for one of shapes."""
    if isinstance(shapes, torch.Size):
        return make(shapes)
    return {n: make(s) for n, s in shapes.items()} if isinstance(shapes, Mapping) else tuple(map(make, shapes))


def _with_n(shape: Sequence[int]) -> str:
    """Return text such as ``(N, 1)`` for the shape of something with ``TRIED`` observations."""
    sizes = ["N" if size == TRIED else str(size) for size in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def shape(shape: Sequence[int]) -> str:
    """Return text such as ``(N, 3, 4)`` for a shape whose first axis is the observations."""
    return f"({', '.join(['N', *map(str, shape[1:])])}{',' if len(shape) == 1 else ''})"


def match_continuous(targets: Tensor, expected: tuple[int, ...], what: str) -> Tensor:
    """Return targets of shape (N, *expected); a missing axis of length one is added."""
    if targets.ndim == 1 and expected == (1,):
        return targets.unsqueeze(-1)
    if tuple(targets.shape[1:]) != expected:
        raise ValueError(
            f"the network predicts targets of shape {shape((0, *expected))}{what}, "
            f"but the targets have shape {tuple(targets.shape)}"
        )
    return targets


def refuse_broadcast(targets: Tensor, outputs: Tensor) -> None:
    """Raise if targets have another shape: broadcasting would repeat them silently."""
    if targets.shape != outputs.shape:
        raise ValueError(
            f"targets must have the predictions' shape {tuple(outputs.shape)}, got {tuple(targets.shape)}. Try "
            "check_targets (for a task: problem.check), which converts them or raises with the reason."
        )


@dataclass(frozen=True)
class Masked(Likelihood):
    r"""A likelihood that leaves missing targets out: $-\log p(y_n|f_n) = -\sum_{c\ \text{present}} \log p(y_{nc}|f_n)$.

    Nothing is rescaled: an observation of which half the targets are missing informs half as much.
    """

    likelihood: Likelihood

    @property
    def continuous(self) -> bool:  # type: ignore[override]
        """Whether targets are real numbers."""
        return self.likelihood.continuous

    @property
    def several_outputs(self) -> bool:  # type: ignore[override]
        """Whether the network may return several tensors."""
        return self.likelihood.several_outputs

    @property
    def outputs_per_target(self) -> int:
        """Number of the network's outputs that describe one real-valued target."""
        return self.likelihood.outputs_per_target

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the plain parameters that the likelihood learns."""
        return self.likelihood.parameter_names

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log-likelihood of each target, zero for missing ones."""
        return self.counted_nll(outputs, targets, parameters, torch.ones_like(targets))

    def counted_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor], counts: Tensor) -> Tensor:
        """Return the same where each target that is present counts as ``counts``."""
        present = self.present(targets)
        filled = torch.where(present, targets, torch.zeros_like(targets))  # any number: NaN would reach the gradient
        losses = self.likelihood.counted_nll(outputs, filled, parameters, counts * present)
        return torch.where(present, losses, torch.zeros_like(losses))

    def total_nll(
        self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor], counts: Tensor | None = None
    ) -> Tensor:
        """Return the negative log-likelihood of all targets that are present."""
        if counts is None:
            return super().total_nll(outputs, targets, parameters)
        each = counts.reshape(-1, *[1] * (targets.ndim - 1)).expand(targets.shape)
        return (per_observation(self.counted_nll(outputs, targets, parameters, each)) * counts).sum()

    def present(self, targets: Tensor) -> Tensor:
        """Return where targets are not missing."""
        return self.likelihood.present(targets)

    def masking(self, *targets: Tensor) -> "Masked":
        """Return the likelihood itself."""
        return self

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> Forecast:
        """Return the forecast of all targets."""
        return self.likelihood.forecast(outputs, parameters)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets in the type and shape that ``nll`` trusts, or raise."""
        return self.likelihood.check_targets(targets, output_shape)

    def initial_parameters(self, targets: Tensor) -> dict[str, Tensor]:
        """Return first values of the learned plain parameters."""
        return self.likelihood.initial_parameters(targets)

    def in_units_of(self, units: TargetScale) -> "Masked":
        """Return the same likelihood for targets in other units."""
        return Masked(self.likelihood.in_units_of(units))
